//! The ready list of a set: the joined sessions that may have events, and when these are reported.
//!
//! No system call, no lock, no clock: ring and kernel are seen through [`ReadinessSource`]. So the
//! list is tested against a model of epoll(7) in `set_ready_model_tests`. Not here: waiting
//! (`set_wait`), registrations (`set_entry`).
//!
//! # Theory of operation
//! A member that is not on the list is *armed*: the next thing that happens to its session rings,
//! which puts the member on the list. A level-triggered member stays on the list while it is ready,
//! and is armed when it is found not to be. An edge-triggered or one-shot member is armed, then
//! looked at, then taken off the list. So nothing is missed, and the work grows with what has
//! happened, not with the number of members.
//!
//! The kernel's events of a member (bytes from before the move, the end, errors) are asked for only
//! after the kernel has reported something. The registration in the kernel is edge-triggered, so
//! `kernel_has` stays set until the kernel was found to have nothing. That is not enough to report
//! an edge-triggered member: `has_news` says that the kernel has reported something, or that the
//! registration has changed, since the last report. A bell that rang for another reason is no edge.
//!
//! The list is in the order of arrival, as the kernel's is: a member that was rung goes behind the
//! others, by the time of its bell, and a member that is still ready after its report goes behind
//! all. A round first *looks over* the list and marks the ready members, then asks the kernel, then
//! *reports* the marked ones, see `set_order`. Bytes that come while the kernel is asked are for
//! the next round.

use crate::host::epoll::{Interest, bit};
use crate::ready::set_member::Member;
use crate::ready::set_order::Round;
use crate::ready::set_readiness::ReadinessSource;
use sojourn_stream::SlotNumber;
use std::collections::VecDeque;

/// The members that have a slot in one inbox.
#[derive(Clone, Debug, Default)]
struct Slots {
    /// For each slot: the member's index + 1.
    members: Vec<u32>,
}

/// One member that [`ReadyList::report`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyMember {
    pub(crate) fd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
    /// This was the shot of a one-shot member.
    pub(crate) is_spent: bool,
    /// The time of its listing (nanoseconds).
    pub(crate) at_ns: u64,
}

/// The result of [`ReadyList::look_over`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadyCount {
    /// The number of ready members.
    pub(crate) count: usize,
    /// The number of them, from the front, that were listed before all of the kernel's events were
    /// reported.
    pub(crate) old: usize,
    /// The kernel must be asked before some of them are reported.
    pub(crate) is_new: bool,
}

/// A member whose bell was rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RungMember {
    /// The time, as the peer says: first, because the order is that of the times.
    at_ns: u64,
    index: u32,
}

/// The members of a set, and the list of those to look at.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    members: Vec<Member>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    /// Members rung since the bits were last taken, each once, until they are listed in the order
    /// of the times.
    rung: Vec<RungMember>,
    /// For each inbox: the members in it.
    inboxes: Vec<Slots>,
    len: usize,
    in_kernel: usize,
    round: u64,
    /// The time, as last set.
    now_ns: u64,
}

/// Where the peers of a set's member post to: the inbox, as the set counts its inboxes, and the
/// slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceInSet {
    pub(crate) inbox: usize,
    pub(crate) slot: SlotNumber,
}

impl ReadyList {
    /// Counts the members.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no member is listed.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if bytes of a member may still come through the kernel.
    pub(crate) fn uses_kernel(&self) -> bool {
        self.in_kernel > 0
    }

    /// Sets the time of listing for members listed from now on.
    pub(crate) fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Returns the time, as last set.
    pub(crate) fn time(&self) -> u64 {
        self.now_ns
    }

    /// Returns the place of the first member to look at.
    pub(crate) fn front(&self) -> Option<PlaceInSet> {
        let mut members = self.queue.iter().map(|index| &self.members[*index as usize]);
        let first = members.find(|member| !member.is_vacant)?;
        Some(PlaceInSet { inbox: first.inbox as usize, slot: first.slot })
    }

    /// Adds a session that joins, and lists it. Returns its number, for [`ReadyList::change`] and
    /// the like.
    pub(crate) fn add(&mut self, fd: i32, place: PlaceInSet, interest: Interest) -> u32 {
        let (PlaceInSet { inbox, slot }, Interest { events, data }) = (place, interest);
        let index = self.free.pop().unwrap_or_else(|| {
            self.members.push(Member::default());
            (self.members.len() - 1) as u32
        });
        self.members[index as usize] = Member {
            fd,
            inbox: inbox as u32,
            slot,
            events,
            data,
            is_in_kernel: true,
            round: self.round,
            ..Member::default()
        };
        if self.inboxes.len() <= inbox {
            self.inboxes.resize(inbox + 1, Slots::default());
        }
        let slots = &mut self.inboxes[inbox];
        if slots.members.len() <= slot.index() {
            slots.members.resize(slot.index() + 1, 0);
        }
        slots.members[slot.index()] = index + 1;
        (self.len, self.in_kernel) = (self.len + 1, self.in_kernel + 1);
        // There is room for each member, so that listing one never allocates.
        self.queue.reserve(self.members.len() - self.queue.len());
        self.rung.reserve(self.members.len() - self.rung.len());
        self.list(index);
        index
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        let slots = &mut self.inboxes[member.inbox as usize];
        // The slot may be a newer member's by now.
        if let Some(at) = slots.members.get_mut(member.slot.index())
            && *at == index + 1
        {
            *at = 0;
        }
        self.len -= 1;
        self.in_kernel -= usize::from(member.is_in_kernel);
        member.is_vacant = true;
        // The index of a listed member must not mean another one; `look_over` frees it.
        if !member.is_listed {
            self.free.push(index);
        }
    }

    /// Changes a member's registration, and lists it: `EPOLL_CTL_MOD` looks at a descriptor again,
    /// too.
    pub(crate) fn change(&mut self, index: u32, events: u32, data: u64) {
        let member = &mut self.members[index as usize];
        member.events = events;
        member.data = data;
        member.is_spent = false;
        member.has_news = true;
        member.changed();
        self.list(index);
    }

    /// Silences a member until its registration changes: it has had its shot, or is out of the set.
    pub(crate) fn spend(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        member.is_spent = true;
        member.changed();
    }

    /// Notes that a member's bell was rung, at the time that the peer says.
    /// [`ReadyList::list_rung`] comes next.
    pub(crate) fn rang(&mut self, inbox: usize, slot: SlotNumber, at_ns: u64) {
        let slots = self.inboxes.get(inbox);
        let Some(index) = slots
            .and_then(|slots| slots.members.get(slot.index()))
            .and_then(|index| index.checked_sub(1))
        else {
            return;
        };
        // A member is noted once, so that the list never grows beyond the room that `add` has
        // reserved, and no peer that rings without end takes the room of another.
        if !core::mem::replace(&mut self.members[index as usize].is_noted, true) {
            self.rung.push(RungMember { at_ns, index });
        }
    }

    /// Returns true if a bell was rung after `ns`, by what peers say.
    pub(crate) fn rang_after(&self, ns: u64) -> bool {
        self.rung.iter().any(|rung| rung.at_ns > ns)
    }

    /// Lists the rung members in the order of their times, which are held between `since_ns` and
    /// `now_ns`, whatever peers say.
    pub(crate) fn list_rung(&mut self, since_ns: u64, now_ns: u64) {
        self.rung.sort_unstable();
        for nth in 0..self.rung.len() {
            let RungMember { at_ns, index } = self.rung[nth];
            let member = &mut self.members[index as usize];
            member.is_noted = false;
            // A member that is listed already keeps its place. The bell has used up its arming, and
            // a look before its report arms it again.
            if member.is_listed {
                member.changed();
                continue;
            }
            self.list(index);
            let member = &mut self.members[index as usize];
            (member.at_ns, member.is_rung) = (at_ns.min(now_ns).max(since_ns), true);
        }
        self.rung.clear();
    }

    /// Notes that the kernel reported `events` of a member; the kernel reports more than the
    /// program asks for. Returns true if the member was listed for that: then it is the last.
    pub(crate) fn kernel_said(&mut self, index: u32, events: u32) -> bool {
        let member = &mut self.members[index as usize];
        // The kernel reports an edge once. An event that the program does not ask for now is asked
        // for again when it does.
        member.kernel_has = true;
        member.changed();
        if events & (member.events | bit::ALWAYS) == 0 {
            return false;
        }
        member.has_news = true;
        let is_new = !member.is_listed;
        self.list(index);
        is_new
    }

    /// Notes an event of the kernel's that the program did not ask for: it is asked for later.
    pub(crate) fn kernel_event(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        member.kernel_has = true;
        member.changed();
    }

    /// Lists a member that may have events.
    pub(crate) fn list(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        if !member.is_listed {
            (member.is_listed, member.is_rung, member.at_ns) = (true, false, self.now_ns);
            self.queue.push_back(index);
        }
    }

    /// Returns true if a member that has just been listed may be ready. If not, it is armed.
    pub(crate) fn may_say(&self, index: u32, source: &dyn ReadinessSource) -> bool {
        let member = &self.members[index as usize];
        let (input, output) = (member.wants(bit::INPUT), member.wants(bit::OUTPUT));
        let is_ready = || {
            let ring = source.ring(member.fd, member.events);
            ring.error || (input && ring.input) || (output && ring.output == Some(true))
        };
        if member.kernel_has || is_ready() {
            return true;
        }
        // Armed before the second look: an event after that look rings.
        source.arm(member.fd, input, output);
        is_ready()
    }

    /// Begins a round; returns its number.
    pub(crate) fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// Looks at the listed members, in order, until `room` are found ready. Those stay, to be
    /// reported; the others are armed and taken off. A member reported since `round.since` stays
    /// without a look. All of the kernel's events from before `until_ns` have been reported.
    pub(crate) fn look_over(
        &mut self,
        round: &Round,
        until_ns: u64,
        room: usize,
        source: &dyn ReadinessSource,
    ) -> ReadyCount {
        let (mut seen, mut from, mut to) = (ReadyCount::default(), 0, 0);
        while from < self.queue.len() && seen.count < room {
            let index = self.queue[from];
            from += 1;
            let member = &mut self.members[index as usize];
            if member.is_vacant {
                member.is_listed = false;
                self.free.push(index);
                continue;
            }
            if member.round < round.since {
                let found = member.look(source, &mut self.in_kernel);
                member.is_listed = found != 0;
                if !member.is_listed {
                    continue;
                }
                (member.seen, member.found) = (round.number, found);
                let is_old = member.at_ns <= round.before_ns;
                seen.old += usize::from(is_old && seen.old == seen.count);
                seen.is_new |= member.at_ns > until_ns || !member.is_rung;
                seen.count += 1;
            }
            self.queue[to] = index;
            to += 1;
        }
        self.queue.drain(to..from);
        seen
    }

    /// Reports members that the round has found ready, if they were listed by `until_ns`, `room` at
    /// most. Those that have changed since are looked at again. Returns their number.
    pub(crate) fn report(
        &mut self,
        round: &Round,
        until_ns: u64,
        room: usize,
        source: &dyn ReadinessSource,
        report: &mut dyn FnMut(ReadyMember),
    ) -> usize {
        let (mut found, mut at, mut left) = (0, 0, self.queue.len());
        while found < room && left > 0 {
            left -= 1;
            let index = self.queue[at];
            let member = &self.members[index as usize];
            if member.is_vacant || member.seen != round.number || member.round >= round.since {
                at += 1;
                continue;
            }
            if member.at_ns > until_ns {
                break;
            }
            self.queue.remove(at);
            if let Some(one) = self.report_one(index, source) {
                report(one);
                found += 1;
            }
        }
        found
    }

    /// Reports the last member on the list, ring and kernel together, in the place of the kernel's
    /// own event.
    pub(crate) fn report_last(
        &mut self,
        round: &Round,
        source: &dyn ReadinessSource,
    ) -> Option<ReadyMember> {
        let index = *self.queue.back()?;
        if self.members[index as usize].round >= round.since {
            return None;
        }
        self.queue.pop_back();
        self.report_one(index, source)
    }

    /// Reports a member that was just taken off the list. A level-triggered one goes behind all
    /// others.
    fn report_one(&mut self, index: u32, source: &dyn ReadinessSource) -> Option<ReadyMember> {
        let member = &mut self.members[index as usize];
        member.is_listed = false;
        let events = match core::mem::take(&mut member.found) {
            0 => member.look(source, &mut self.in_kernel),
            found => found,
        };
        if events == 0 {
            return None;
        }
        // The next report of an edge-triggered member takes another event.
        member.has_news &= member.events & bit::ET == 0;
        member.round = self.round;
        member.is_spent = member.events & bit::ONESHOT != 0;
        let Member { fd, data, is_spent, at_ns, .. } = *member;
        // The kernel puts a level-triggered descriptor behind all others, too (`ep_send_events`).
        if member.events & (bit::ET | bit::ONESHOT) == 0 {
            self.list(index);
        }
        Some(ReadyMember { fd, events, data, is_spent, at_ns })
    }
}
