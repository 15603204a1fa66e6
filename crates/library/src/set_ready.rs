//! The ready list of a set: which joined sessions may have something to say, and what is said of them when.
//!
//! No system call, no lock, no clock: what ring and kernel say comes in through [`Look`]. So it is tested against a model
//! of epoll(7) in `set_ready_tests`. Not here: waiting (`set_wait`), registrations (`set_entry`).
//!
//! # Theory of operation
//! A member that is not on the list is *armed*: the next thing that happens to its session rings, which puts it on the list.
//! A level-triggered member stays on the list while it is ready and is armed when it is found not to be. An
//! edge-triggered or one-shot member is taken off the list whenever it is looked at, having been armed before the look. So
//! nothing that happens is missed, and the work done is by what has happened, not by how many members there are.
//!
//! What the kernel knows of a member (bytes from before the move, the end, errors) is asked for only after the kernel said that
//! there is something: its registration is edge-triggered, so `kernel_has` stays set until it was found to have nothing.
//! For an edge-triggered member that is not enough to report it: `has_news` says that the kernel has said something, or the
//! registration has changed, since the last report. A bell that was rung for another reason is no edge.

use crate::set_entry::bit;
use std::collections::VecDeque;

/// What the ring says of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingSays {
    pub(crate) input: bool,
    /// `None`: the kernel decides.
    pub(crate) output: Option<bool>,
    /// A receive will say an error.
    pub(crate) error: bool,
    /// The kernel alone decides; nothing is said here.
    pub(crate) is_home: bool,
}

/// How sessions are looked at. By descriptor number, for a session may be gone by now.
pub(crate) trait Look {
    /// What the ring says.
    fn ring(&self, fd: i32) -> RingSays;
    /// From now on a ring posts to the inbox.
    fn arm(&self, fd: i32, input: bool, output: bool);
    /// What the kernel says at this moment, of `events`.
    fn kernel(&self, fd: i32, events: u32) -> u32;
    /// The kernel reported something that the session's own calls should look at.
    fn stirred(&self, fd: i32);
    /// Takes packets that have arrived: what they bring shows in the inboxes.
    fn turn(&self) {}
    /// A thread is about to sleep in a set that hears of packets; the answer is for [`Look::end_sleep`].
    fn begin_sleep(&self) -> bool {
        false
    }
    /// It is awake.
    fn end_sleep(&self, watches: bool) {
        let _ = watches;
    }
}

/// A joined session in a set.
#[derive(Clone, Debug, Default)]
struct Member {
    fd: i32,
    inbox: u32,
    slot: u32,
    events: u32,
    data: u64,
    is_listed: bool,
    is_spent: bool,
    is_vacant: bool,
    kernel_has: bool,
    /// What the kernel has was not reported yet.
    has_news: bool,
    /// When it was last reported, or joined: then the kernel may have reported it.
    round: u64,
}

/// Who leaves word in one inbox.
#[derive(Clone, Debug, Default)]
struct Slots {
    /// Per slot: index + 1.
    members: Vec<u32>,
}

/// What [`ReadyList::collect`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) fd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
    /// One-shot: this was the shot.
    pub(crate) is_spent: bool,
}

/// The members of a set and the list of those to look at.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    members: Vec<Member>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    /// Per inbox: who is in it.
    inboxes: Vec<Slots>,
    len: usize,
    round: u64,
    /// Data and last report of members that have left lately: the kernel may report them to the same wait.
    left: VecDeque<(u64, u64)>,
}

/// Rounds after which no wait that began before is still looking.
const ROUNDS_KEPT: u64 = 1024;
/// Of those that left at once, how many are remembered.
const LEFT_KEPT: usize = 1024;

impl ReadyList {
    /// Members.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to look at.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
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
        self.len += 1;
        // Room for each member, so that listing one never allocates.
        self.queue.reserve(self.members.len() - self.queue.len());
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
        if self.left.len() == LEFT_KEPT {
            self.left.pop_front();
        }
        self.left.push_back((member.data, member.round));
        self.len -= 1;
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

    /// Its bell was rung.
    pub(crate) fn rang(&mut self, inbox: usize, slot: u32) {
        let slots = self.inboxes.get(inbox);
        if let Some(index) = slots.and_then(|slots| slots.members.get(slot as usize))
            && *index > 0
        {
            self.list(*index - 1);
        }
    }

    /// The kernel said `events` of it. It is asked for more than the program asks for.
    pub(crate) fn kernel_said(&mut self, index: u32, events: u32) {
        let member = &mut self.members[index as usize];
        // It says so once: what nobody wants to know now is asked for again when somebody does.
        member.kernel_has = true;
        if events & (member.events | bit::ALWAYS) != 0 {
            member.has_news = true;
            self.list(index);
        }
    }

    /// The kernel said something of it while the program did not want to know: it is asked again later.
    pub(crate) fn kernel_stirred(&mut self, index: u32) {
        self.members[index as usize].kernel_has = true;
    }

    /// It may have something to say.
    pub(crate) fn list(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        if !member.is_listed {
            member.is_listed = true;
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

    /// A wait begins to look: its number, for [`ReadyList::collect`].
    pub(crate) fn begin_round(&mut self) -> u64 {
        self.round += 1;
        while self.left.front().is_some_and(|(_, round)| round + ROUNDS_KEPT < self.round) {
            self.left.pop_front();
        }
        self.round
    }

    /// Whether a member with that data was reported since the round `since` began, and has left.
    pub(crate) fn has_left_since(&self, since: u64, data: u64) -> bool {
        self.left.iter().any(|(left, round)| *left == data && *round >= since)
    }

    /// Looks at what is on the list, each at most once, and reports at most `room`. How many. What has been
    /// reported since the round `since` began, to this wait or another, stays for a later one.
    pub(crate) fn collect(
        &mut self,
        since: u64,
        room: usize,
        look: &dyn Look,
        report: &mut dyn FnMut(Found),
    ) -> usize {
        let mut found = 0;
        let mut looks = self.queue.len();
        while found < room && looks > 0 {
            looks -= 1;
            let Some(index) = self.queue.pop_front() else { break };
            let member = &mut self.members[index as usize];
            member.is_listed = false;
            if member.is_vacant {
                self.free.push(index);
                continue;
            }
            if member.round >= since {
                self.list(index);
                continue;
            }
            let events = member.look(look);
            if events == 0 {
                continue;
            }
            found += 1;
            member.round = self.round;
            member.is_spent = member.events & bit::ONESHOT != 0;
            let Member { fd, data, is_spent, .. } = *member;
            let is_level = member.events & (bit::ET | bit::ONESHOT) == 0;
            if is_level {
                self.list(index);
            }
            report(Found { fd, events, data, is_spent });
        }
        found
    }
}

impl Member {
    /// What is to be said of it; armed if that is nothing, or if it is said once only.
    fn look(&mut self, look: &dyn Look) -> u32 {
        if self.is_spent {
            return 0;
        }
        if self.events & bit::ET == 0 {
            let (events, _) = self.now(look);
            if events != 0 {
                return events;
            }
            look.arm(self.fd, self.wants(bit::INPUT), self.wants(bit::OUTPUT));
            return self.now(look).0;
        }
        look.arm(self.fd, self.wants(bit::INPUT), false);
        let (mut events, ring) = self.now(look);
        // A bell for room rings at each read of the peer; so it is armed only where there is none.
        if ring.output == Some(false) && self.wants(bit::OUTPUT) {
            look.arm(self.fd, false, true);
            events = self.now(look).0;
        }
        if events != 0 {
            self.has_news = false;
        }
        events
    }

    fn wants(&self, bits: u32) -> bool {
        self.events & bits != 0
    }

    fn now(&mut self, look: &dyn Look) -> (u32, RingSays) {
        let ring = look.ring(self.fd);
        if ring.is_home {
            return (0, ring);
        }
        let mut found = 0;
        if ring.input {
            found |= bit::INPUT;
        }
        if ring.output == Some(true) {
            found |= bit::OUTPUT & !bit::WRBAND;
        }
        if ring.error {
            found |= bit::ERR;
        }
        if self.kernel_has {
            // Of room the kernel's own buffer says nothing once bytes go to the ring.
            let not_asked = if ring.output.is_some() { bit::OUTPUT } else { 0 };
            let asked = (self.events & !not_asked) | bit::IN | bit::RDHUP;
            let said = look.kernel(self.fd, asked & 0xffff) & !not_asked;
            self.kernel_has = said != 0;
            let is_edge = self.events & bit::ET == 0 || self.has_news;
            // Beside what the ring says it is told again, as the kernel tells all there is at each edge.
            if is_edge || found & (self.events | bit::ALWAYS) != 0 {
                found |= said;
            }
        }
        (found & (self.events | bit::ALWAYS), ring)
    }
}
