//! One epoll set of the program: the kernel's set, and the answers that the library adds.
//!
//! Every registration is made in the kernel first, whose errors are the program's. Not here:
//! waiting (`set_wait`), and all sets of the process (`sets`). Read `docs/understand/streams.md`,
//! "epoll", then `set_entry` and `set_ready`.
//!
//! # Theory of operation
//! A set in which no session has ever joined is left to the kernel, but for notes of what is
//! registered. The first join sets `ever`; from then on each waiter translates the kernel's answers
//! ([`State::sort`]). A waiter counts itself in `plain` first, and looks at `ever` afterwards,
//! while a joining thread sets `ever` first and looks at `plain` afterwards. So either the joining
//! thread finds the sleeping waiter and announces it on the inboxes, or the waiter translates.
//!
//! # Locks
//! `state` comes before the locks of a session; nothing here sends a session home.

use crate::host::epoll::{Interest, bit, control, op};
use crate::host::lock::lock;
use crate::ready::set_entry::{RegisteredFd, Registration, Tag};
use crate::ready::set_readiness::ReadinessSource;
use crate::ready::set_ready::PlaceInSet;
use crate::ready::set_state::State;
use crate::ready::set_state::replace;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::io::Errno;
use sojourn_stream::{Inbox, SlotNumber};
use std::sync::{Arc, Mutex};

/// One epoll set. Used again for another one after a close.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// A session has joined, or a tag was registered for another reason: the kernel's answers must
    /// be translated.
    pub(crate) ever: AtomicBool,
    /// Threads that sleep in the kernel and found `ever` not set.
    pub(crate) plain: AtomicU32,
    pub(crate) state: Mutex<State>,
}

/// The remaining holders of a description whose number is closed. The kernel forgets a registration
/// with the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemainingHolder {
    /// There is none, as far as is known.
    None,
    /// Another number of the program's holds it: the registration stays.
    Program,
    /// The server or the protocol thread may hold it for a moment, which the program must not see.
    Sojourn,
}

/// The outcome of a change by the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The change is complete.
    Done,
    /// The program uses the prefix of tags: the set cannot carry sessions.
    Collides,
}

impl Set {
    /// Starts with an empty set, just made at `epfd`.
    pub(crate) fn open(&self, epfd: i32) {
        let mut state = lock(&self.state);
        let (policy, version) = (state.policy.take(), state.version + 1);
        *state = State { epfd, is_open: true, policy, version, ..State::default() };
        self.ever.store(false, Ordering::SeqCst);
    }

    /// Notes what was registered before the set was known. Returns the numbers; `None` if the set
    /// cannot carry sessions. Changes that the program makes meanwhile wait.
    pub(crate) fn adopt(
        &self,
        read: impl FnOnce() -> Option<Vec<RegisteredFd>>,
    ) -> Option<Vec<i32>> {
        let mut state = lock(&self.state);
        let all = read()?;
        let collides = all.iter().any(|one| Tag::of_data(one.registration.data).is_some());
        let numbers = all.iter().map(|one| one.fd).collect();
        for RegisteredFd { fd, registration } in all {
            state.registrations.entry(fd).or_insert(registration);
        }
        (!collides).then_some(numbers)
    }

    /// Returns the set's own number while it is open.
    pub(crate) fn number(&self) -> Option<i32> {
        let state = lock(&self.state);
        state.is_open.then_some(state.epfd)
    }

    /// Ends the set, which is about to be closed. Returns the numbers that were registered in it.
    pub(crate) fn close(&self) -> Vec<i32> {
        let mut state = lock(&self.state);
        let numbers = state.registrations.keys().copied().collect();
        let (policy, version) = (state.policy.take(), state.version + 1);
        // A thread that still sleeps is the kernel's to wake, or not, as without the library.
        *state = State { policy, version, ..State::default() };
        numbers
    }

    /// Makes the program's `EPOLL_CTL_ADD`, `MOD` or `DEL`.
    pub(crate) fn change(
        &self,
        source: &dyn ReadinessSource,
        epfd: i32,
        op: i32,
        fd: i32,
        interest: Interest,
    ) -> Result<Changed, Errno> {
        let mut state = lock(&self.state);
        match op {
            op::ADD if state.put_back(source, epfd, fd, interest)? => {}
            op::ADD => {
                control(epfd, op, fd, interest)?;
                // The number may have been closed past the library, and old notes of it are wrong
                // now.
                state.forget(fd);
                state.registrations.insert(fd, Registration::new(interest.events, interest.data));
            }
            op::DEL if state.take_out(fd)? => {}
            op::DEL => {
                control(epfd, op, fd, Interest::default())?;
                state.forget(fd);
            }
            _ => state.modify(source, epfd, fd, interest)?,
        }
        let collides = op != op::DEL && Tag::of_data(interest.data).is_some();
        Ok(if collides { Changed::Collides } else { Changed::Done })
    }

    /// Makes the session of `fd` answer from now on; its peers post to `slot` of `inbox`. Returns
    /// false if the set cannot take it.
    pub(crate) fn join(&self, fd: i32, inbox: &Arc<Inbox>, slot: SlotNumber) -> bool {
        let mut state = lock(&self.state);
        let Some(found) = state.registrations.get(&fd).copied() else {
            // The program has taken the descriptor out: there is nothing to answer.
            return true;
        };
        if found.member != 0 {
            return true;
        }
        // A one-shot registration that was not watched may have had its shot, or not.
        let is_unknown = found.is_oneshot() && !found.is_watched;
        if state.is_unfit || is_unknown || !Tag::fits(fd) {
            return false;
        }
        // SYNC: before `plain` is looked at; pairs with `begin_plain`.
        self.ever.store(true, Ordering::SeqCst);
        if self.plain.load(Ordering::SeqCst) > 0 && !state.is_plain_announced {
            state.is_plain_announced = true;
            state.each_inbox(Inbox::announce);
        }
        let Some(index) = state.inbox(inbox) else { return false };
        state.take_over(fd, PlaceInSet { inbox: index, slot })
    }

    /// Makes the kernel answer for `fd` again.
    pub(crate) fn leave(&self, fd: i32) {
        let mut state = lock(&self.state);
        let epfd = state.epfd;
        let Some(registration) = state.registrations.get_mut(&fd) else { return };
        let Some(member) = registration.member.checked_sub(1) else { return };
        if registration.is_absent {
            let _ = control(epfd, op::DEL, fd, Interest::default());
            state.forget(fd);
            return;
        }
        registration.member = 0;
        registration.next_count();
        let registration = *registration;
        // `EPOLL_CTL_MOD` makes the kernel look at the descriptor (`ep_modify`): if it is ready
        // that is an edge, so nothing is lost.
        replace(epfd, fd, &registration, registration.kernel_form(fd));
        state.ready.remove(member);
    }

    /// Notes that the number `fd` is about to be closed, or has been.
    pub(crate) fn closed(&self, fd: i32, holder: RemainingHolder) {
        if holder == RemainingHolder::Program {
            self.leave(fd);
        }
        let mut state = lock(&self.state);
        // The kernel would keep the registration as long as the other holder has the description.
        if holder == RemainingHolder::Sojourn && state.registrations.contains_key(&fd) {
            let _ = control(state.epfd, op::DEL, fd, Interest::default());
        }
        state.forget(fd);
    }

    /// Bars sessions from the set. Returns the numbers of those that are in it.
    pub(crate) fn make_unfit(&self) -> Vec<i32> {
        let mut state = lock(&self.state);
        state.is_unfit = true;
        let epfd = state.epfd;
        let mut members = Vec::new();
        for (fd, registration) in &mut state.registrations {
            if registration.member != 0 {
                members.push(*fd);
            } else if registration.is_watched {
                registration.is_watched = false;
                let events = if registration.is_spent { bit::ONESHOT } else { registration.events };
                let interest = Interest { events, data: registration.data };
                let _ = control(epfd, op::MOD, *fd, interest);
            }
        }
        members
    }

    /// Takes the inboxes and the packet sockets out of the kernel's set, which has no session left.
    pub(crate) fn let_inboxes_go(&self) {
        let mut state = lock(&self.state);
        state.let_inboxes_go(|_| true);
        if state.packets != 0 {
            let _ = control(state.epfd, op::DEL, state.packets, Interest::default());
            state.packets = 0;
        }
    }

    /// Has waiters of the set hear of packets, because this process runs the engine of a session in
    /// it.
    pub(crate) fn notify_on_packets(&self, packets: i32) {
        lock(&self.state).notify_on_packets(packets);
    }

    /// Has a one-shot registration of a hot descriptor watched from its next change on. Returns
    /// true if its state is known already.
    pub(crate) fn watch(&self, fd: i32) -> bool {
        let mut state = lock(&self.state);
        let Some(registration) = state.registrations.get_mut(&fd) else { return false };
        if !registration.is_oneshot() || registration.is_watched {
            return true;
        }
        registration.is_wanted = true;
        self.ever.store(true, Ordering::SeqCst);
        false
    }

    /// Has the kernel report room of `fd`, if it decides that: a session that is on its way home
    /// may be owed bytes for as long as the program does not read.
    pub(crate) fn ask_for_room(&self, source: &dyn ReadinessSource, fd: i32) {
        let mut state = lock(&self.state);
        let epfd = state.epfd;
        let Some(registration) = state.registrations.get_mut(&fd) else { return };
        let is_in = registration.member != 0 && !registration.is_absent;
        let form = registration.joined_form(fd, true);
        let is_more = is_in && form.events & !registration.asked != 0;
        // The change makes the kernel look at the descriptor: if there is room that is an edge.
        if is_more && source.kernel_decides_room(fd) && replace(epfd, fd, registration, form) {
            registration.asked = form.events;
        }
    }

    /// Notes that a sender found no room: if the program wants to hear of room, it will.
    pub(crate) fn full(&self, source: &dyn ReadinessSource, fd: i32) {
        let mut state = lock(&self.state);
        let Some(registration) = state.registrations.get(&fd).copied() else { return };
        let is_heard = !registration.is_spent && !registration.is_absent;
        let wants = registration.events & bit::OUTPUT != 0 && is_heard;
        let Some(member) = registration.member.checked_sub(1).filter(|_| wants) else { return };
        source.arm(fd, false, true);
        if source.ring(fd, bit::OUTPUT).output == Some(true) {
            state.ready.set_time(sojourn_shm::deadline::now_ns());
            state.ready.list(member);
            state.wake();
        }
    }

    /// Begins a wait that leaves all to the kernel. Returns false if the answers would have to be
    /// translated.
    #[inline]
    pub(crate) fn begin_plain(&self) -> bool {
        self.plain.fetch_add(1, Ordering::SeqCst);
        // SYNC: after `plain`; pairs with `join`.
        if !self.ever.load(Ordering::SeqCst) {
            return true;
        }
        self.end_plain();
        false
    }

    /// Ends such a wait. Returns true if its answers are the program's as they are.
    #[inline]
    pub(crate) fn end_plain(&self) -> bool {
        let before = self.plain.fetch_sub(1, Ordering::SeqCst);
        if !self.ever.load(Ordering::SeqCst) {
            return true;
        }
        if before == 1 {
            let mut state = lock(&self.state);
            if state.is_plain_announced && self.plain.load(Ordering::SeqCst) == 0 {
                state.is_plain_announced = false;
                state.each_inbox(Inbox::withdraw);
            }
        }
        false
    }
}
