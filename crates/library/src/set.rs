//! One epoll set of the program: the kernel's, and what the library answers beside it.
//!
//! Every registration is made in the kernel first; errors are the kernel's. Waiting is `set_wait`; what the rest of the
//! library asks of sets is `sets`. Read `docs/streams.md`, "epoll", then `set_entry` and `set_ready`.
//!
//! # Theory of operation
//! A set in which no session has ever joined is left to the kernel but for notes of what is registered. The first
//! join sets `ever`; from then on each waiter translates what the kernel says ([`State::sort`]). A thread that fell asleep before
//! that has counted itself in `plain` first and looks at `ever` afterwards, while a joiner sets `ever` first and looks
//! at `plain` afterwards: so the joiner either finds it and announces it on the inboxes, or it translates.
//!
//! # Locks
//! `state` comes before the locks of a session; nothing here sends a session home.

use crate::kernel;
use crate::session::lock;
use crate::set_entry::{Registration, Registrations, Tag, bit};
use crate::set_ready::{Found, Look, ReadyList};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use sojourn_shm::wait::Policy;
use sojourn_stream::Inbox;
use std::sync::{Arc, Mutex};

/// An event as `epoll_wait(2)` gives it.
pub type EpollEvent = epoll::Event;

/// Inboxes of one set, that is users of peers, at most.
const INBOXES_MAX: usize = 16;

/// Values of `op` of `epoll_ctl(2)`.
pub(crate) mod op {
    pub(crate) const ADD: i32 = 1;
    pub(crate) const DEL: i32 = 2;
    pub(crate) const MOD: i32 = 3;
}

/// A set. Used again for another when it is closed.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// A session has joined, or a tag was registered for another reason: answers must be translated.
    pub(crate) ever: AtomicBool,
    /// Threads in the kernel that found `ever` not set.
    pub(crate) plain: AtomicU32,
    pub(crate) state: Mutex<State>,
}

/// What its lock guards.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The set's own number.
    pub(crate) epfd: i32,
    pub(crate) is_open: bool,
    /// Counts openings and closings: a sleeper from before has no part in what is now.
    pub(crate) version: u32,
    /// Sessions cannot be in it any more.
    pub(crate) is_unfit: bool,
    pub(crate) registrations: Registrations,
    pub(crate) ready: ReadyList,
    /// A list that waiters can take along. Those that no session of the set is in any more are let go.
    pub(crate) inboxes: Arc<Vec<Option<Arc<Inbox>>>>,
    /// Threads that sleep, each announced on each inbox.
    pub(crate) sleepers: u32,
    /// Threads that spin.
    pub(crate) spinners: u32,
    /// The threads of `plain` are announced, as one, on each inbox.
    pub(crate) is_plain_announced: bool,
    /// An inbox's event descriptor may be readable.
    pub(crate) is_raised: bool,
    /// When the kernel was last asked while sessions were busy.
    pub(crate) asked_ns: u64,
    /// Whose turn it is where there is room for one event only.
    pub(crate) is_kernels_turn: bool,
    /// With the waiter that spins for the set, if there is one.
    pub(crate) policy: Option<Box<Policy>>,
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
            op::ADD => {
                control(epfd, op, fd, (events, data))?;
                // What is known of the number, if it was closed by a way that we did not see.
                state.forget(fd);
                state.registrations.insert(fd, Registration::new(events, data));
            }
            op::DEL => {
                control(epfd, op, fd, (0, 0))?;
                state.forget(fd);
            }
            _ => state.modify(look, epfd, fd, (events, data))?,
        }
        let collides = op != op::DEL && Tag::of_data(data).is_some();
        Ok(if collides { Changed::Collides } else { Changed::Done })
    }

    /// The session of `fd` answers from now on, with word left in `slot` of `inbox`. Whether that could be.
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

    /// Whether `inbox` is one of the set's.
    pub(crate) fn has(&self, inbox: &Arc<Inbox>) -> bool {
        lock(&self.state).index_of(inbox).is_some()
    }

    /// The kernel answers for `fd` again.
    pub(crate) fn leave(&self, fd: i32) {
        let mut state = lock(&self.state);
        let epfd = state.epfd;
        let Some(registration) = state.registrations.get_mut(&fd) else { return };
        let Some(member) = registration.member.checked_sub(1) else { return };
        registration.member = 0;
        registration.next_count();
        let registration = *registration;
        // A change of a registration makes the kernel look at it: if the descriptor is ready, that is an edge.
        replace(epfd, fd, &registration, registration.kernel_form(fd));
        state.remove(member);
    }

    /// The number `fd` is going to be closed. The kernel forgets it by itself, unless another number keeps
    /// the description open (`is_kept`).
    pub(crate) fn closed(&self, fd: i32, is_kept: bool) {
        if is_kept {
            self.leave(fd);
        }
        lock(&self.state).forget(fd);
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

    /// A one-shot registration of a hot descriptor is known from its next change on. Whether it is already.
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
        let wants = registration.events & bit::OUTPUT != 0 && !registration.is_spent;
        let Some(member) = registration.member.checked_sub(1).filter(|_| wants) else { return };
        look.arm(fd, false, true);
        if look.ring(fd).output == Some(true) {
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

impl State {
    fn modify(
        &mut self,
        look: &dyn Look,
        epfd: i32,
        fd: i32,
        (events, data): (u32, u64),
    ) -> Result<(), Errno> {
        let mut new = self.registrations.get(&fd).copied().unwrap_or_default();
        let member = new.member.checked_sub(1);
        // The kernel would refuse this; the registration it has while a session is joined would not show it.
        if member.is_some() && (new.events | events) & bit::EXCLUSIVE != 0 {
            return Err(Errno::INVAL);
        }
        new.change(events, data);
        let is_oneshot = new.is_oneshot();
        new.is_watched = is_oneshot
            && !self.is_unfit
            && (new.is_watched || new.is_wanted || member.is_some())
            && Tag::fits(fd);
        let form = if member.is_some() { new.joined_form(fd) } else { new.kernel_form(fd) };
        control(epfd, op::MOD, fd, form)?;
        self.registrations.insert(fd, new);
        if let Some(member) = member {
            self.ready.change(member, events, data);
            // A one-shot registration changes with each event: nobody is woken for nothing.
            if self.ready.may_say(member, look) {
                self.wake();
            }
        }
        Ok(())
    }

    fn forget(&mut self, fd: i32) {
        if let Some(registration) = self.registrations.remove(&fd)
            && let Some(member) = registration.member.checked_sub(1)
        {
            self.remove(member);
        }
    }

    /// The index of an inbox, whose event descriptor is registered in the kernel's set once.
    fn inbox(&mut self, inbox: &Arc<Inbox>) -> Option<usize> {
        let known = self.index_of(inbox);
        if known.is_some() {
            return known;
        }
        let vacant = self.inboxes.iter().position(Option::is_none);
        let index = vacant.unwrap_or(self.inboxes.len());
        if index == INBOXES_MAX {
            return None;
        }
        let form = (bit::IN, Tag::Inbox(index).to_data());
        control(self.epfd, op::ADD, inbox.ready_fd().as_raw_fd(), form).ok()?;
        let inboxes = Arc::make_mut(&mut self.inboxes);
        inboxes.resize(inboxes.len().max(index + 1), None);
        inboxes[index] = Some(Arc::clone(inbox));
        // Who sleeps already sleeps on this one as well.
        (0..self.announced()).for_each(|_| inbox.announce());
        Some(index)
    }

    fn index_of(&self, inbox: &Arc<Inbox>) -> Option<usize> {
        let is_it = |known: &Option<Arc<Inbox>>| {
            known.as_ref().is_some_and(|known| Arc::ptr_eq(known, inbox))
        };
        self.inboxes.iter().position(is_it)
    }

    /// How often each inbox is announced.
    fn announced(&self) -> u32 {
        self.sleepers + u32::from(self.is_plain_announced)
    }

    pub(crate) fn each_inbox(&self, f: impl Fn(&Inbox)) {
        self.inboxes.iter().flatten().for_each(|inbox| f(inbox));
    }

    pub(crate) fn has_ready(&self) -> bool {
        has_ready(&self.inboxes)
    }

    /// A session is no member any more.
    fn remove(&mut self, member: u32) {
        let Some(index) = self.ready.remove(member) else { return };
        let Some(inbox) = Arc::make_mut(&mut self.inboxes)[index].take() else { return };
        (0..self.announced()).for_each(|_| inbox.withdraw());
        let _ = control(self.epfd, op::DEL, inbox.ready_fd().as_raw_fd(), (0, 0));
    }

    /// Makes a member of `fd`, in the kernel and here.
    fn take_over(&mut self, fd: i32, place: (usize, u32)) -> bool {
        let epfd = self.epfd;
        let Some(registration) = self.registrations.get_mut(&fd) else { return false };
        registration.next_count();
        let form = registration.joined_form(fd);
        if !replace(epfd, fd, registration, form) {
            return false;
        }
        let member = self.ready.add(fd, place, (registration.events, registration.data));
        registration.member = member + 1;
        if registration.is_spent {
            self.ready.spend(member);
        }
        // On the list, to be armed or reported by the next look.
        self.wake();
        true
    }

    /// The list has something new: tells those who sleep or spin.
    pub(crate) fn wake(&mut self) {
        let Some((inbox, slot)) = self.ready.front() else { return };
        let Some(Some(inbox)) = self.inboxes.get(inbox) else { return };
        if self.sleepers > 0 || self.is_plain_announced {
            inbox.post_own(slot);
            self.is_raised = true;
        } else if self.spinners > 0 {
            inbox.post_ready(slot);
        }
    }

    /// Takes what the inboxes have onto the list.
    pub(crate) fn drain(&mut self) {
        let Self { inboxes, ready, .. } = self;
        for (index, inbox) in inboxes.iter().enumerate() {
            if let Some(inbox) = inbox
                && inbox.has_ready()
            {
                inbox.take_ready(&mut |slot| ready.rang(index, slot));
            }
        }
    }

    /// Reports from the list into `events`. How many.
    pub(crate) fn collect(
        &mut self,
        since: u64,
        look: &dyn Look,
        events: &mut [EpollEvent],
    ) -> usize {
        let mut at = 0;
        let registrations = &mut self.registrations;
        self.ready.collect(since, events.len(), look, &mut |found: Found| {
            events[at] = event(found.events, found.data);
            at += 1;
            if found.is_spent
                && let Some(registration) = registrations.get_mut(&found.fd)
            {
                registration.is_spent = true;
            }
        })
    }

    /// Sorts what the kernel said: the program's own stays, in front; what it says to us is taken note of.
    /// How many stay, and how many were ours.
    pub(crate) fn sort(&mut self, look: &dyn Look, events: &mut [EpollEvent]) -> (usize, usize) {
        let mut kept = 0;
        for at in 0..events.len() {
            if let Some(event) = self.translate(look, events[at]) {
                events[kept] = event;
                kept += 1;
            }
        }
        (kept, events.len() - kept)
    }

    fn translate(&mut self, look: &dyn Look, said: EpollEvent) -> Option<EpollEvent> {
        let (flags, data) = ({ said.flags }.bits(), { said.data }.u64());
        let (fd, count) = match Tag::of_data(data) {
            None => return Some(said),
            Some(Tag::Inbox(_)) => {
                self.is_raised = true;
                return None;
            }
            Some(Tag::Descriptor(fd, count)) => (fd, count),
        };
        let registration = self.registrations.get_mut(&fd)?;
        if let Some(member) = registration.member.checked_sub(1) {
            // Room in the kernel's buffer is no news where bytes go to the ring.
            let is_news = if look.ring(fd).output.is_some() { !bit::OUTPUT } else { !0 };
            self.ready.kernel_said(member, flags & is_news);
            if flags & !bit::OUTPUT != 0 {
                look.stirred(fd);
            }
            return None;
        }
        if !registration.is_watched {
            return None;
        }
        if registration.count == count {
            if registration.is_spent {
                return None;
            }
            registration.is_spent = true;
        }
        Some(event(flags, registration.data))
    }

    /// Before a thread leaves the set alone: the event descriptors are readable if there is something that another
    /// thread should come for, and are not if there is nothing.
    pub(crate) fn settle(&mut self) {
        let others = self.sleepers > 0 || self.is_plain_announced;
        if self.ready.is_idle() || !others {
            if self.is_raised {
                self.each_inbox(Inbox::clear_event);
                self.is_raised = self.has_ready();
            }
        } else if !self.is_raised {
            self.wake();
        }
    }
}

/// Whether any of them has word of a session.
#[inline]
pub(crate) fn has_ready(inboxes: &[Option<Arc<Inbox>>]) -> bool {
    inboxes.iter().flatten().any(|inbox| inbox.has_ready())
}

/// An event of ours.
pub(crate) fn event(events: u32, data: u64) -> EpollEvent {
    EpollEvent { flags: EventFlags::from_bits_retain(events), data: EventData::new_u64(data) }
}

/// `epoll_ctl(2)`.
pub(crate) fn control(epfd: i32, op: i32, fd: i32, form: (u32, u64)) -> Result<(), Errno> {
    let (set, fd) = (kernel::at(epfd)?, kernel::at(fd)?);
    let (flags, data) = (EventFlags::from_bits_retain(form.0), EventData::new_u64(form.1));
    match op {
        op::ADD => epoll::add(set, fd, data, flags),
        op::DEL => epoll::delete(set, fd),
        _ => epoll::modify(set, fd, data, flags),
    }
}

/// Gives a registration another form in the kernel. An exclusive one cannot be changed there, only made anew.
fn replace(epfd: i32, fd: i32, registration: &Registration, form: (u32, u64)) -> bool {
    if registration.events & bit::EXCLUSIVE == 0 {
        return control(epfd, op::MOD, fd, form).is_ok();
    }
    control(epfd, op::DEL, fd, (0, 0)).is_ok() && control(epfd, op::ADD, fd, form).is_ok()
}
