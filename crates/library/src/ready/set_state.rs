//! The state that the lock of an epoll set guards, and the operations under it: registrations, the
//! ready list, sleepers.
//!
//! Its only system calls are `epoll_ctl` and those on the event descriptors of inboxes. Not here:
//! the set's operations as a whole (`set`, which is to be read first).

use crate::host::epoll::{EpollEvent, Interest, bit, control, op};
use crate::ready::set_entry::{Registration, Registrations, Tag, reported};
use crate::ready::set_order::{ReportedEvents, Round};
use crate::ready::set_readiness::ReadinessSource;
use crate::ready::set_ready::{PlaceInSet, ReadyList};
use crate::ready::siblings::Siblings;
use rustix::event::epoll::{EventData, EventFlags};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use sojourn_shm::deadline::now_ns;
use sojourn_shm::wait::Policy;
use sojourn_stream::Inbox;
use std::sync::Arc;

/// Inboxes of one set, that is users of peers, at most.
const INBOXES_MAX: usize = 16;

/// The state of one set.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The set's own descriptor number.
    pub(crate) epfd: i32,
    pub(crate) is_open: bool,
    /// Counts openings and closings: a sleeper from before a change does not touch the counts.
    pub(crate) version: u32,
    /// No session can be in the set any more.
    pub(crate) is_unfit: bool,
    pub(crate) registrations: Registrations,
    pub(crate) ready: ReadyList,
    /// The inboxes, in a list that waiters can share. An inbox that no session uses is let go of.
    pub(crate) inboxes: Arc<Vec<Option<Arc<Inbox>>>>,
    /// The epoll descriptor of the packet sockets, registered in the kernel's set since this
    /// process ran the engine of a session in it; else 0.
    pub(crate) packets: i32,
    /// Sleeping threads, each announced on each inbox.
    pub(crate) sleepers: u32,
    /// Spinning threads.
    pub(crate) spinners: u32,
    /// The threads of `plain` are announced, as one, on each inbox.
    pub(crate) is_plain_announced: bool,
    /// An inbox's event descriptor may be readable.
    pub(crate) is_raised: bool,
    /// The time at which the kernel was last asked while sessions were busy.
    pub(crate) asked_ns: u64,
    /// The time at which the inboxes were last found with something in them.
    pub(crate) drained_ns: u64,
    /// How far the kernel's events have been reported to the program.
    pub(crate) told: ReportedEvents,
    /// The spinning policy; the waiter that spins for the set has it meanwhile.
    pub(crate) policy: Option<Box<Policy>>,
    /// What is known of the process's other threads, for whether to spin.
    pub(crate) siblings: Siblings,
}

impl State {
    pub(crate) fn modify(
        &mut self,
        source: &dyn ReadinessSource,
        epfd: i32,
        fd: i32,
        interest: Interest,
    ) -> Result<(), Errno> {
        let mut new = self.registrations.get(&fd).copied().unwrap_or_default();
        if new.is_absent {
            return Err(Errno::NOENT);
        }
        if let Some(member) = new.member.checked_sub(1) {
            return self.modify_joined(source, epfd, fd, member, interest);
        }
        new.change(interest.events, interest.data);
        let is_oneshot = new.is_oneshot();
        let is_known = new.is_watched || new.is_wanted;
        new.is_watched = is_oneshot && !self.is_unfit && is_known && Tag::fits(fd);
        control(epfd, op::MOD, fd, new.kernel_form(fd))?;
        self.registrations.insert(fd, new);
        Ok(())
    }

    /// Changes the registration of a joined session. The kernel hears of it only if it has to
    /// report more than before.
    fn modify_joined(
        &mut self,
        source: &dyn ReadinessSource,
        epfd: i32,
        fd: i32,
        member: u32,
        interest: Interest,
    ) -> Result<(), Errno> {
        let Some(mut new) = self.registrations.get(&fd).copied() else { return Err(Errno::NOENT) };
        // The kernel refuses to change exclusive registrations (EINVAL, epoll_ctl(2)). It does not
        // see this change, so the library refuses it.
        if (new.events | interest.events) & bit::EXCLUSIVE != 0 {
            return Err(Errno::INVAL);
        }
        new.change(interest.events, interest.data);
        new.is_watched = new.is_oneshot() && !self.is_unfit && Tag::fits(fd);
        let sends_to_kernel = source.kernel_decides_room(fd);
        let form = new.joined_form(fd, sends_to_kernel);
        if sends_to_kernel {
            // The kernel may have reported room while the registration did not ask for it.
            self.ready.kernel_event(member);
        }
        if form.events & !new.asked != 0 {
            control(epfd, op::MOD, fd, form)?;
            new.asked = form.events;
        }
        new.is_absent = false;
        self.registrations.insert(fd, new);
        self.ready.set_time(now_ns());
        self.ready.change(member, interest.events, interest.data);
        // A one-shot registration changes with each event; sleepers are not woken for nothing each
        // time. Without a waiter the next wait looks at what is listed.
        if self.has_waiters() && self.ready.may_say(member, source) {
            self.wake();
        }
        Ok(())
    }

    /// Puts `fd` into the set for the program. Returns true if that was a joined session that had
    /// been out of the set for a while.
    pub(crate) fn put_back(
        &mut self,
        source: &dyn ReadinessSource,
        epfd: i32,
        fd: i32,
        interest: Interest,
    ) -> Result<bool, Errno> {
        let Some(found) = self.registrations.get(&fd).copied().filter(|found| found.is_absent)
        else {
            return Ok(false);
        };
        if interest.events & bit::EXCLUSIVE != 0 {
            // An exclusive registration cannot be had by a change, so it is made anew in the
            // kernel.
            control(epfd, op::DEL, fd, Interest::default())?;
            return Ok(false);
        }
        self.modify_joined(source, epfd, fd, found.member - 1, interest)?;
        Ok(true)
    }

    /// Takes `fd` out of the set for the program. Returns true for a joined session: the kernel
    /// keeps its registration, and nothing is reported of it until the program puts it back.
    pub(crate) fn take_out(&mut self, fd: i32) -> Result<bool, Errno> {
        let Some(registration) = self.registrations.get_mut(&fd) else { return Ok(false) };
        let Some(member) = registration.member.checked_sub(1) else { return Ok(false) };
        if registration.is_absent {
            return Err(Errno::NOENT);
        }
        if registration.events & bit::EXCLUSIVE != 0 || self.is_unfit {
            return Ok(false);
        }
        registration.is_absent = true;
        self.ready.spend(member);
        Ok(true)
    }

    pub(crate) fn forget(&mut self, fd: i32) {
        if let Some(registration) = self.registrations.remove(&fd)
            && let Some(member) = registration.member.checked_sub(1)
        {
            self.ready.remove(member);
        }
    }

    /// Returns the index of an inbox, after registering its event descriptor if need be.
    pub(crate) fn inbox(&mut self, inbox: &Arc<Inbox>) -> Option<usize> {
        let known = self.index_of(inbox);
        if known.is_some() {
            return known;
        }
        // First the inboxes go that no session of the process uses. A session that has left the set
        // for a moment keeps its own.
        self.let_inboxes_go(|inbox| Arc::strong_count(inbox) == 1);
        let vacant = self.inboxes.iter().position(Option::is_none);
        let index = vacant.unwrap_or(self.inboxes.len());
        if index == INBOXES_MAX {
            return None;
        }
        let form = Interest { events: bit::IN, data: Tag::Inbox(index).to_data() };
        control(self.epfd, op::ADD, inbox.ready_fd().as_raw_fd(), form).ok()?;
        let inboxes = Arc::make_mut(&mut self.inboxes);
        inboxes.resize(inboxes.len().max(index + 1), None);
        inboxes[index] = Some(Arc::clone(inbox));
        // A thread that sleeps already sleeps on this inbox as well.
        (0..self.announced()).for_each(|_| inbox.announce());
        Some(index)
    }

    /// Has waiters of the set hear of packets.
    pub(crate) fn notify_on_packets(&mut self, packets: i32) {
        if self.is_open && !self.is_unfit && self.packets == 0 {
            let form = Interest { events: bit::IN, data: Tag::Packets.to_data() };
            if control(self.epfd, op::ADD, packets, form).is_ok() {
                self.packets = packets;
            }
        }
    }

    pub(crate) fn index_of(&self, inbox: &Arc<Inbox>) -> Option<usize> {
        let is_it = |known: &Option<Arc<Inbox>>| {
            known.as_ref().is_some_and(|known| Arc::ptr_eq(known, inbox))
        };
        self.inboxes.iter().position(is_it)
    }

    /// Counts how often each inbox is announced.
    fn announced(&self) -> u32 {
        self.sleepers + u32::from(self.is_plain_announced)
    }

    pub(crate) fn each_inbox(&self, f: impl Fn(&Inbox)) {
        self.inboxes.iter().flatten().for_each(|inbox| f(inbox));
    }

    pub(crate) fn has_ready(&self) -> bool {
        has_ready(&self.inboxes)
    }

    /// Lets go of the inboxes for which `is_over` says so.
    pub(crate) fn let_inboxes_go(&mut self, is_over: impl Fn(&Arc<Inbox>) -> bool) {
        let announced = self.announced();
        for place in Arc::make_mut(&mut self.inboxes) {
            if let Some(inbox) = place.take_if(|inbox| is_over(inbox)) {
                (0..announced).for_each(|_| inbox.withdraw());
                let _ =
                    control(self.epfd, op::DEL, inbox.ready_fd().as_raw_fd(), Interest::default());
            }
        }
    }

    /// Makes a member of `fd`, in the kernel's set and on the ready list.
    pub(crate) fn take_over(&mut self, fd: i32, place: PlaceInSet) -> bool {
        let epfd = self.epfd;
        let Some(registration) = self.registrations.get_mut(&fd) else { return false };
        registration.next_count();
        let form = registration.joined_form(fd, true);
        registration.asked = form.events;
        if !replace(epfd, fd, registration, form) {
            return false;
        }
        if let Some(Some(inbox)) = self.inboxes.get(place.inbox) {
            inbox.forget(place.slot);
        }
        self.ready.set_time(now_ns());
        let member = self.ready.add(fd, place, registration.interest());
        registration.member = member + 1;
        if registration.is_spent {
            self.ready.spend(member);
        }
        // The new member is on the list: the next look arms or reports it.
        self.wake();
        true
    }

    /// Wakes a thread that sleeps or spins, because the list has something new.
    pub(crate) fn wake(&mut self) {
        let Some(PlaceInSet { inbox, slot }) = self.ready.front() else { return };
        let Some(Some(inbox)) = self.inboxes.get(inbox) else { return };
        if self.has_sleepers() {
            inbox.post_own(slot);
            self.is_raised = true;
        } else if self.spinners > 0 {
            inbox.post_ready(slot);
        }
    }

    /// Returns true if a thread sleeps in the set.
    fn has_sleepers(&self) -> bool {
        self.sleepers > 0 || self.is_plain_announced
    }

    /// Returns true if a thread spins for the set or sleeps in it.
    fn has_waiters(&self) -> bool {
        self.has_sleepers() || self.spinners > 0
    }

    /// Sorts the `said` events of the kernel behind those that the round keeps: the program's own
    /// are kept, an event of a session is replaced by the session's, and the rest is noted.
    pub(crate) fn sort(
        &mut self,
        round: &mut Round,
        source: &dyn ReadinessSource,
        events: &mut [EpollEvent],
        said: usize,
    ) {
        for at in round.kept..round.kept + said {
            if let Some(event) = self.translate(round, source, events[at]) {
                events[round.kept] = event;
                round.kept += 1;
            }
        }
    }

    fn translate(
        &mut self,
        round: &mut Round,
        source: &dyn ReadinessSource,
        said: EpollEvent,
    ) -> Option<EpollEvent> {
        let (flags, data) = ({ said.flags }.bits(), { said.data }.u64());
        let (fd, count) = match Tag::of_data(data) {
            None => return Some(said),
            // The waiter takes packets in on its next look.
            Some(Tag::Packets) => return None,
            Some(Tag::Inbox(index)) => {
                self.is_raised = true;
                if let Some(Some(inbox)) = self.inboxes.get(index) {
                    let rung_ns = inbox.rung_ns().min(now_ns());
                    round.mark(rung_ns);
                    // All events of the kernel older than this post stood in front of the inbox's.
                    self.told.until(rung_ns);
                }
                return None;
            }
            Some(Tag::Descriptor(fd, count)) => (fd, count),
        };
        let registration = self.registrations.get_mut(&fd)?;
        if registration.is_absent {
            let member = registration.member - 1;
            self.ready.kernel_event(member);
            source.note_kernel_event(fd);
            return None;
        }
        if let Some(member) = registration.member.checked_sub(1) {
            // Room in the kernel's buffer means nothing where bytes go to the ring.
            let is_news = if source.kernel_decides_room(fd) { !0 } else { !bit::OUTPUT };
            let is_last = self.ready.kernel_said(member, flags & is_news);
            if flags & !bit::OUTPUT != 0 {
                source.note_kernel_event(fd);
            }
            let found = if is_last { self.ready.report_last(round, source) } else { None }?;
            reported(&mut self.registrations, found.fd, found.is_spent);
            return Some(event(found.events, found.data));
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

    /// Leaves the inboxes' events right for the other threads, before a thread leaves the set:
    /// readable if another thread should come, and not readable if there is nothing.
    pub(crate) fn settle(&mut self) {
        if self.ready.is_idle() || !self.has_sleepers() {
            if self.is_raised {
                self.each_inbox(Inbox::clear_event);
                self.is_raised = self.has_ready();
            }
        } else if !self.is_raised {
            self.wake();
        }
    }
}

/// Returns true if a peer has posted to one of the inboxes.
#[inline]
pub(crate) fn has_ready(inboxes: &[Option<Arc<Inbox>>]) -> bool {
    inboxes.iter().flatten().any(|inbox| inbox.has_ready())
}

/// Makes an event for the program.
pub(crate) fn event(events: u32, data: u64) -> EpollEvent {
    EpollEvent { flags: EventFlags::from_bits_retain(events), data: EventData::new_u64(data) }
}

/// Gives a registration another form in the kernel. An exclusive one cannot be changed
/// (epoll_ctl(2)), so it is removed and made anew.
pub(crate) fn replace(epfd: i32, fd: i32, registration: &Registration, form: Interest) -> bool {
    if registration.events & bit::EXCLUSIVE == 0 {
        return control(epfd, op::MOD, fd, form).is_ok();
    }
    control(epfd, op::DEL, fd, Interest::default()).is_ok()
        && control(epfd, op::ADD, fd, form).is_ok()
}
