//! One look of a waiter at a set: what is ready, in the order in which it came.
//!
//! Not here: waiting (`set_wait`). Read `set_wait` and `set_order` first.
//!
//! # Theory of operation
//! A round takes the posts of the inboxes onto the ready list, looks the list over, asks the kernel
//! if something found could be younger than an event that only the kernel knows, and reports both
//! in one order. Where all members of the set are sessions whose bytes go through rings, the kernel
//! has only ends and errors: then it is asked now and then.
//!
//! The first of the kernel's events that the program gets ends a round's asking: the kernel would
//! repeat them.

use crate::host::epoll::EpollEvent;
use crate::host::lock::lock;
use crate::ready::set::Set;
use crate::ready::set_call::{ASK_INTERVAL_NS, Call};
use crate::ready::set_entry::reported;
use crate::ready::set_order::{Merge, Round};
use crate::ready::set_readiness::ReadinessSource;
use crate::ready::set_ready::ReadyCount;
use crate::ready::set_state::{State, event, has_ready};
use core::time::Duration;
use rustix::io::Errno;
use sojourn_shm::deadline::now_ns;

/// Questions to the kernel, as long as its answers are not for the program, where sessions can be
/// reported instead.
const ASKS_MAX: usize = 3;
/// Further takes of the bits because some were posted meanwhile.
const TAKES_MAX: u32 = 3;

/// The kernel's answer: events that lie behind those which the round keeps already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The time at which the kernel was asked; 0 if the answer proves nothing about other events.
    pub(crate) began_ns: u64,
    pub(crate) said: usize,
    /// The number of events that there was room for.
    pub(crate) room: usize,
}

impl Set {
    /// Gathers what is ready now; returns the number of events.
    pub(crate) fn gather(&self, call: &mut Call<'_>) -> Result<usize, Errno> {
        call.source.turn();
        let round = self.begin(None);
        self.tell(call, round)
    }

    /// Gathers after a pause that ended with an answer of the kernel's. Nothing is reported that
    /// was reported since `since`.
    pub(crate) fn after_pause(
        &self,
        call: &mut Call<'_>,
        since: u64,
        answer: Answer,
    ) -> Result<usize, Errno> {
        let mut round = self.begin(Some(since));
        self.answered(call, &mut round, answer);
        self.tell(call, round)
    }

    /// Counts those of the kernel's events that are the program's, and puts them in front. Nothing
    /// is reported of sessions.
    pub(crate) fn sort(&self, call: &mut Call<'_>, said: usize) -> usize {
        let mut round = self.begin(Some(0));
        self.answered(call, &mut round, Answer { began_ns: 0, said, room: call.events.len() });
        round.kept
    }

    fn begin(&self, since: Option<u64>) -> Round {
        let mut state = lock(&self.state);
        let number = state.ready.begin_round();
        Round::new(since.unwrap_or(number), number, &state.told)
    }

    fn tell(&self, call: &mut Call<'_>, mut round: Round) -> Result<usize, Errno> {
        let seen = {
            let mut state = lock(&self.state);
            state.drain();
            let room = call.events.len() - round.kept;
            let until_ns = state.told.until_ns;
            let seen = state.ready.look_over(&round, until_ns, room, call.source);
            let is_last = call.deadline.is_over();
            if round.kept > 0 || !state.must_ask(seen, room, is_last) {
                let until_ns = if round.kept > 0 { until_ns } else { u64::MAX };
                let found = state.collect(&round, until_ns, call.source, call.events);
                state.settle();
                return Ok(round.kept + found);
            }
            seen
        };
        let is_answered = self.ask_for_rest(call, &mut round, seen)?;
        let mut state = lock(&self.state);
        let until_ns = if is_answered { state.told.until_ns } else { u64::MAX };
        let found = state.collect(&round, until_ns, call.source, call.events);
        state.settle();
        Ok(round.kept + found)
    }

    /// Asks the kernel for the events that stand beside the sessions that were seen. Returns false
    /// if it may have older ones that it was not asked for: it refuses, or answers only with what
    /// is not the program's.
    fn ask_for_rest(
        &self,
        call: &mut Call<'_>,
        round: &mut Round,
        seen: ReadyCount,
    ) -> Result<bool, Errno> {
        let room = call.events.len() - seen.old;
        // An event that is not the program's is a member's, reported once, or an inbox's, which the
        // kernel puts behind all others.
        let asks_max = match seen.count {
            0 => lock(&self.state).asks_that_reach_all(),
            _ => ASKS_MAX,
        };
        for _ in 0..asks_max {
            let began_ns = now_ns();
            let said = match call.ask(0..room, Some(Duration::ZERO), None) {
                Ok(said) => said,
                // The program gets what was seen; the error shows in its next call.
                Err(_) if seen.count > 0 => return Ok(false),
                Err(error) => return Err(error),
            };
            self.answered(call, round, Answer { began_ns, said, room });
            if round.kept > 0 || said < room {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes an answer. The program's events stay, in front. An event of a session is replaced by
    /// the session's own.
    fn answered(&self, call: &mut Call<'_>, round: &mut Round, answer: Answer) {
        let mut state = lock(&self.state);
        let events = &mut call.events[round.kept..round.kept + answer.said];
        let is_full = answer.said >= answer.room;
        let data = events.iter().map(|event| { event.data }.u64());
        let registrations = state.registrations_of_kernel();
        state.told.answered(answer.began_ns, data, is_full, registrations);
        if events.iter().any(State::is_ours) {
            state.sort(round, call.source, call.events, answer.said);
        } else {
            round.kept += answer.said;
        }
    }
}

impl State {
    pub(crate) fn is_ours(event: &EpollEvent) -> bool {
        crate::ready::set_entry::Tag::of_data({ event.data }.u64()).is_some()
    }

    /// Returns the number of registrations that the kernel's set has: the program's, and those of
    /// inboxes and packet sockets.
    fn registrations_of_kernel(&self) -> usize {
        self.registrations.len() + self.inboxes.len() + usize::from(self.packets != 0)
    }

    /// Returns the number of questions, each with room for one event, after which the kernel has
    /// come to an event of the program's, if there is one.
    fn asks_that_reach_all(&self) -> usize {
        self.ready.len() + self.inboxes.len() + usize::from(self.packets != 0) + 1
    }

    /// Returns true if the kernel has to be asked before the seen sessions are reported.
    fn must_ask(&mut self, seen: ReadyCount, room: usize, is_last: bool) -> bool {
        if seen.count == 0 {
            // The sleep that follows asks anyway.
            return is_last;
        }
        // Sessions that are older than all of the kernel's events need no question, nor do old ones
        // that fill the room.
        if !seen.is_new || seen.old == room {
            return false;
        }
        let now = self.ready.time();
        let knows_more = self.registrations.len() > self.ready.len() || self.ready.uses_kernel();
        let asks = knows_more || now.saturating_sub(self.asked_ns) >= ASK_INTERVAL_NS;
        if asks {
            self.asked_ns = now;
        }
        asks
    }

    /// Takes the posts of the inboxes onto the list, ordered by their times.
    pub(crate) fn drain(&mut self) {
        let Self { inboxes, ready, drained_ns, .. } = self;
        let has_word = has_ready(inboxes);
        if !has_word && ready.is_idle() {
            return;
        }
        let mut now = now_ns();
        if has_word {
            let since = core::mem::replace(drained_ns, now);
            for _ in 0..TAKES_MAX {
                for (index, inbox) in inboxes.iter().enumerate() {
                    if let Some(inbox) = inbox {
                        inbox.take_ready(&mut |slot, at_ns| ready.rang(index, slot, at_ns));
                    }
                }
                // A post from before `now` is visible by now, even if its bit was not yet when the
                // inbox was looked at.
                let came_meanwhile = ready.rang_after(now);
                now = now_ns();
                if !came_meanwhile {
                    break;
                }
            }
            ready.list_rung(since, now);
        }
        ready.set_time(now);
    }

    /// Reports, among the kernel's events that the round keeps, the members that the round has
    /// found ready and that were listed by `until_ns`. Returns their number.
    fn collect(
        &mut self,
        round: &Round,
        until_ns: u64,
        source: &dyn ReadinessSource,
        events: &mut [EpollEvent],
    ) -> usize {
        let (mut merge, mut at, room) = (Merge::default(), round.kept, events.len() - round.kept);
        let Self { ready, registrations, .. } = self;
        let found = ready.report(round, until_ns, room, source, &mut |found| {
            reported(registrations, found.fd, found.is_spent);
            events[at] = event(found.events, found.data);
            merge.append(events, at, round.place(found.at_ns));
            at += 1;
        });
        merge.finish(events);
        found
    }
}
