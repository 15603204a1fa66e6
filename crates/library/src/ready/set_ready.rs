//! The ready list of a set: which joined sessions may have something to say, and what is said of
//! them when.
//!
//! No system call, no lock, no clock: what ring and kernel say comes in through [`Look`]. So it is
//! tested against a model of epoll(7) in `set_ready_tests`. Not here: waiting (`set_wait`),
//! registrations (`set_entry`).
//!
//! # Theory of operation
//! A member that is not on the list is *armed*: the next thing that happens to its session rings,
//! which puts it on the list. A level-triggered member stays on the list while it is ready and is
//! armed when it is found not to be. An edge-triggered or one-shot member is taken off the list
//! whenever it is looked at, having been armed before the look. So nothing that happens is missed,
//! and the work done is by what has happened, not by how many members there are.
//!
//! What the kernel knows of a member (bytes from before the move, the end, errors) is asked for
//! only after the kernel said that there is something: its registration is edge-triggered, so
//! `kernel_has` stays set until it was found to have nothing. For an edge-triggered member that is
//! not enough to report it: `has_news` says that the kernel has said something, or the registration
//! has changed, since the last report. A bell that was rung for another reason is no edge.
//!
//! The list is in the order of arrival, as the kernel's: who was rung is put behind the others by
//! when that was, and what is still ready after it was reported goes behind all. A round first
//! *looks over* the list and marks what is ready, then the kernel is asked, then what was marked is
//! *reported*, see `set_order`: bytes that come while the kernel is asked are for the next round.

use crate::host::epoll::bit;
use crate::ready::set_look::Look;
use crate::ready::set_member::Member;
use crate::ready::set_order::Round;
use std::collections::VecDeque;

/// Who leaves word in one inbox.
#[derive(Clone, Debug, Default)]
struct Slots {
    /// Per slot: index + 1.
    members: Vec<u32>,
}

/// What [`ReadyList::report`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) fd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
    /// One-shot: this was the shot.
    pub(crate) is_spent: bool,
    /// Since when it was listed (nanoseconds).
    pub(crate) at_ns: u64,
}

/// What [`ReadyList::look_over`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Members that are ready.
    pub(crate) count: usize,
    /// How many of them, the first ones, were listed when all was told that the kernel had.
    pub(crate) old: usize,
    /// For some of them the kernel must be asked first.
    pub(crate) is_new: bool,
}

/// The members of a set and the list of those to look at.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    members: Vec<Member>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    /// Rung since the bits were last taken, and when, until they are listed in that order.
    rung: Vec<(u64, u32)>,
    /// Per inbox: who is in it.
    inboxes: Vec<Slots>,
    len: usize,
    in_kernel: usize,
    round: u64,
    /// The time, as last told.
    now_ns: u64,
}

impl ReadyList {
    /// Members.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to look at.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether bytes of a member may still come through the kernel.
    pub(crate) fn uses_kernel(&self) -> bool {
        self.in_kernel > 0
    }

    /// What is listed from now on is listed at that time.
    pub(crate) fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The time, as last set.
    pub(crate) fn time(&self) -> u64 {
        self.now_ns
    }

    /// Where the next member to look at is posted to.
    pub(crate) fn front(&self) -> Option<(usize, u32)> {
        let mut members = self.queue.iter().map(|index| &self.members[*index as usize]);
        members.find(|member| !member.is_vacant).map(|member| (member.inbox as usize, member.slot))
    }

    /// A session joins. Its number, for [`ReadyList::change`] and the like. It is on the list.
    pub(crate) fn add(
        &mut self,
        fd: i32,
        (inbox, slot): (usize, u32),
        (events, data): (u32, u64),
    ) -> u32 {
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
        if slots.members.len() <= slot as usize {
            slots.members.resize(slot as usize + 1, 0);
        }
        slots.members[slot as usize] = index + 1;
        (self.len, self.in_kernel) = (self.len + 1, self.in_kernel + 1);
        // Room for each member, so that listing one never allocates.
        self.queue.reserve(self.members.len() - self.queue.len());
        self.rung.reserve(self.members.len() - self.rung.len());
        self.list(index);
        index
    }

    /// It leaves.
    pub(crate) fn remove(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        let slots = &mut self.inboxes[member.inbox as usize];
        if let Some(at) = slots.members.get_mut(member.slot as usize)
            && *at == index + 1
        {
            *at = 0;
        }
        self.len -= 1;
        self.in_kernel -= usize::from(member.is_in_kernel);
        member.is_vacant = true;
        // While it is listed its index must not mean another member.
        if !member.is_listed {
            self.free.push(index);
        }
    }

    /// Its registration changes: it is looked at again, as `EPOLL_CTL_MOD` does.
    pub(crate) fn change(&mut self, index: u32, events: u32, data: u64) {
        let member = &mut self.members[index as usize];
        member.events = events;
        member.data = data;
        member.is_spent = false;
        member.has_news = true;
        self.list(index);
    }

    /// It has had its shot, or is out of the set: nothing is said of it until it changes.
    pub(crate) fn spend(&mut self, index: u32) {
        self.members[index as usize].is_spent = true;
    }

    /// Its bell was rung, at that time by what the peer says. [`ReadyList::list_rung`] comes next.
    pub(crate) fn rang(&mut self, inbox: usize, slot: u32, at_ns: u64) {
        let slots = self.inboxes.get(inbox);
        if let Some(index) = slots.and_then(|slots| slots.members.get(slot as usize))
            && *index > 0
            && self.rung.len() < self.members.len()
        {
            self.rung.push((at_ns, *index - 1));
        }
    }

    /// Whether a bell was rung after `ns`, as peers say it.
    pub(crate) fn rang_after(&self, ns: u64) -> bool {
        self.rung.iter().any(|(at_ns, _)| *at_ns > ns)
    }

    /// Lists who was rung, in that order; not before `since_ns` and not after `now_ns`, whatever
    /// peers say.
    pub(crate) fn list_rung(&mut self, since_ns: u64, now_ns: u64) {
        self.rung.sort_unstable();
        for nth in 0..self.rung.len() {
            let (at_ns, index) = self.rung[nth];
            if !self.members[index as usize].is_listed {
                self.list(index);
                let member = &mut self.members[index as usize];
                (member.at_ns, member.is_rung) = (at_ns.min(now_ns).max(since_ns), true);
            }
        }
        self.rung.clear();
    }

    /// The kernel said `events` of it. It is asked for more than the program asks for. Whether that
    /// is the reason for which it is listed: then it is the last.
    pub(crate) fn kernel_said(&mut self, index: u32, events: u32) -> bool {
        let member = &mut self.members[index as usize];
        // It says so once: what nobody wants to know now is asked for again when somebody does.
        member.kernel_has = true;
        if events & (member.events | bit::ALWAYS) == 0 {
            return false;
        }
        member.has_news = true;
        let is_new = !member.is_listed;
        self.list(index);
        is_new
    }

    /// The kernel said something of it while the program did not want to know: it is asked again
    /// later.
    pub(crate) fn kernel_event(&mut self, index: u32) {
        self.members[index as usize].kernel_has = true;
    }

    /// It may have something to say.
    pub(crate) fn list(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        if !member.is_listed {
            (member.is_listed, member.is_rung, member.at_ns) = (true, false, self.now_ns);
            self.queue.push_back(index);
        }
    }

    /// Whether a member that has just been listed may be ready. If not, it is armed.
    pub(crate) fn may_say(&self, index: u32, look: &dyn Look) -> bool {
        let member = &self.members[index as usize];
        let (input, output) = (member.wants(bit::INPUT), member.wants(bit::OUTPUT));
        let is_ready = || {
            let ring = look.ring(member.fd);
            ring.error || (input && ring.input) || (output && ring.output == Some(true))
        };
        if member.kernel_has || is_ready() {
            return true;
        }
        look.arm(member.fd, input, output);
        is_ready()
    }

    /// A wait begins to look: its number.
    pub(crate) fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// Looks at what is on the list, in its order, until `room` are found ready. Those stay, to be
    /// reported; what is not ready is armed and taken off. What has been reported since
    /// `round.since` stays, not looked at. All that the kernel had before `until_ns` is told.
    pub(crate) fn look_over(
        &mut self,
        round: &Round,
        until_ns: u64,
        room: usize,
        look: &dyn Look,
    ) -> Seen {
        let (mut seen, mut from, mut to) = (Seen::default(), 0, 0);
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
                let is_ready = member.look(look, false, &mut self.in_kernel) != 0;
                member.is_listed = is_ready;
                if !is_ready {
                    continue;
                }
                member.seen = round.number;
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

    /// Reports what the round has found ready, if it still is and was listed by `until_ns`: at most
    /// `room`. How many.
    pub(crate) fn report(
        &mut self,
        round: &Round,
        until_ns: u64,
        room: usize,
        look: &dyn Look,
        report: &mut dyn FnMut(Found),
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
            if let Some(one) = self.report_one(index, look) {
                report(one);
                found += 1;
            }
        }
        found
    }

    /// What the kernel has said of a member, and the ring has, in the place of the kernel's own
    /// event: of the last on the list.
    pub(crate) fn report_last(&mut self, round: &Round, look: &dyn Look) -> Option<Found> {
        let index = *self.queue.back()?;
        if self.members[index as usize].round >= round.since {
            return None;
        }
        self.queue.pop_back();
        self.report_one(index, look)
    }

    /// Reports one that was just taken off the list. It goes behind all others if it is
    /// level-triggered.
    fn report_one(&mut self, index: u32, look: &dyn Look) -> Option<Found> {
        let member = &mut self.members[index as usize];
        member.is_listed = false;
        let events = member.look(look, true, &mut self.in_kernel);
        if events == 0 {
            return None;
        }
        member.round = self.round;
        member.is_spent = member.events & bit::ONESHOT != 0;
        let Member { fd, data, is_spent, at_ns, .. } = *member;
        if member.events & (bit::ET | bit::ONESHOT) == 0 {
            self.list(index);
        }
        Some(Found { fd, events, data, is_spent, at_ns })
    }
}
