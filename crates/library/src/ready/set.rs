//! One epoll set of the program: the kernel's, and what the library answers beside it.
//!
//! Every registration is made in the kernel first; errors are the kernel's. Waiting is `set_wait`;
//! what the rest of the library asks of sets is `sets`. Read `docs/understand/streams.md`, "epoll",
//! then `set_entry` and `set_ready`.
//!
//! # Theory of operation
//! A set in which no session has ever joined is left to the kernel but for notes of what is
//! registered. The first join sets `ever`; from then on each waiter translates what the kernel says
//! ([`State::sort`]). A thread that fell asleep before that has counted itself in `plain` first and
//! looks at `ever` afterwards, while a joiner sets `ever` first and looks at `plain` afterwards: so
//! the joiner either finds it and announces it on the inboxes, or it translates.
//!
//! # Locks
//! `state` comes before the locks of a session; nothing here sends a session home.

use crate::host::epoll::bit;
use crate::host::epoll::control;
use crate::host::epoll::op;
use crate::host::lock::lock;
use crate::ready::set_entry::{Registration, Tag};
use crate::ready::set_look::Look;
use crate::ready::set_state::State;
use crate::ready::set_state::replace;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::io::Errno;
use sojourn_stream::Inbox;
use std::sync::{Arc, Mutex};

/// A set. Used again for another when it is closed.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// A session has joined, or a tag was registered for another reason: answers must be
    /// translated.
    pub(crate) ever: AtomicBool,
    /// Threads in the kernel that found `ever` not set.
    pub(crate) plain: AtomicU32,
    pub(crate) state: Mutex<State>,
}

/// Who holds a description whose number is closed. The kernel forgets its registration with the
/// last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Nobody, as far as is known.
    Not,
    /// Another number of the program's: the registration stays.
    Kept,
    /// Perhaps the server or the protocol thread, for a moment that the program must not see.
    ByUs,
}

/// What becomes of a change by the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// Nothing more to do.
    Done,
    /// The program uses our prefix: the set cannot carry sessions.
    Collides,
}

impl Set {
    /// The set at `epfd`, just made.
    pub(crate) fn open(&self, epfd: i32) {
        let mut state = lock(&self.state);
        let (policy, version) = (state.policy.take(), state.version + 1);
        *state = State { epfd, is_open: true, policy, version, ..State::default() };
        self.ever.store(false, Ordering::SeqCst);
    }

    /// Its own number, while it is open.
    pub(crate) fn number(&self) -> Option<i32> {
        let state = lock(&self.state);
        state.is_open.then_some(state.epfd)
    }

    /// The set is going to be closed. Numbers that were registered in it.
    pub(crate) fn close(&self) -> Vec<i32> {
        let mut state = lock(&self.state);
        let numbers = state.registrations.keys().copied().collect();
        let (policy, version) = (state.policy.take(), state.version + 1);
        // Who still sleeps is woken by the kernel or not at all, as ever.
        *state = State { policy, version, ..State::default() };
        numbers
    }

    /// `EPOLL_CTL_ADD`, `MOD`, `DEL` as the program asks for it.
    pub(crate) fn change(
        &self,
        look: &dyn Look,
        epfd: i32,
        op: i32,
        fd: i32,
        (events, data): (u32, u64),
    ) -> Result<Changed, Errno> {
        let mut state = lock(&self.state);
        match op {
            op::ADD if state.put_back(look, epfd, fd, (events, data))? => {}
            op::ADD => {
                control(epfd, op, fd, (events, data))?;
                // What is known of the number, if it was closed by a way that we did not see.
                state.forget(fd);
                state.registrations.insert(fd, Registration::new(events, data));
            }
            op::DEL if state.take_out(fd)? => {}
            op::DEL => {
                control(epfd, op, fd, (0, 0))?;
                state.forget(fd);
            }
            _ => state.modify(look, epfd, fd, (events, data))?,
        }
        let collides = op != op::DEL && Tag::of_data(data).is_some();
        Ok(if collides { Changed::Collides } else { Changed::Done })
    }

    /// The session of `fd` answers from now on, with word left in `slot` of `inbox`. Whether that
    /// could be.
    pub(crate) fn join(&self, fd: i32, inbox: &Arc<Inbox>, slot: u32) -> bool {
        let mut state = lock(&self.state);
        let Some(found) = state.registrations.get(&fd).copied() else {
            // Not registered any more: nothing to answer.
            return true;
        };
        if found.member != 0 {
            return true;
        }
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
        state.take_over(fd, (index, slot))
    }

    /// The kernel answers for `fd` again.
    pub(crate) fn leave(&self, fd: i32) {
        let mut state = lock(&self.state);
        let epfd = state.epfd;
        let Some(registration) = state.registrations.get_mut(&fd) else { return };
        let Some(member) = registration.member.checked_sub(1) else { return };
        if registration.is_absent {
            let _ = control(epfd, op::DEL, fd, (0, 0));
            state.forget(fd);
            return;
        }
        registration.member = 0;
        registration.next_count();
        let registration = *registration;
        // A change of a registration makes the kernel look at it: if the descriptor is ready, that
        // is an edge.
        replace(epfd, fd, &registration, registration.kernel_form(fd));
        state.ready.remove(member);
    }

    /// The number `fd` is going to be closed, or has been.
    pub(crate) fn closed(&self, fd: i32, held: Held) {
        if held == Held::Kept {
            self.leave(fd);
        }
        let mut state = lock(&self.state);
        if held == Held::ByUs && state.registrations.contains_key(&fd) {
            let _ = control(state.epfd, op::DEL, fd, (0, 0));
        }
        state.forget(fd);
    }

    /// Sessions cannot be in it any more. Those that are.
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
                let form = (events, registration.data);
                let _ = control(epfd, op::MOD, *fd, form);
            }
        }
        members
    }

    /// No session is in it any more: the kernel's set has nothing of ours.
    pub(crate) fn let_inboxes_go(&self) {
        let mut state = lock(&self.state);
        state.let_inboxes_go(|_| true);
        if state.packets != 0 {
            let _ = control(state.epfd, op::DEL, state.packets, (0, 0));
            state.packets = 0;
        }
    }

    /// A session in it is carried by this process from now on: who waits in it hears of packets.
    pub(crate) fn hear_packets(&self, packets: i32) {
        lock(&self.state).hear_packets(packets);
    }

    /// A one-shot registration of a hot descriptor is known from its next change on. Whether it is
    /// already.
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

    /// A sender found no room: it is to be told when there is some, if it wants to know.
    pub(crate) fn full(&self, look: &dyn Look, fd: i32) {
        let mut state = lock(&self.state);
        let Some(registration) = state.registrations.get(&fd).copied() else { return };
        let is_heard = !registration.is_spent && !registration.is_absent;
        let wants = registration.events & bit::OUTPUT != 0 && is_heard;
        let Some(member) = registration.member.checked_sub(1).filter(|_| wants) else { return };
        look.arm(fd, false, true);
        if look.ring(fd).output == Some(true) {
            state.ready.set_time(sojourn_shm::deadline::now_ns());
            state.ready.list(member);
            state.wake();
        }
    }

    /// A waiter that leaves all to the kernel begins. Whether it may.
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

    /// It ends. Whether what it got is the program's as it is.
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
