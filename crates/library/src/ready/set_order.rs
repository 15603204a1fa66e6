//! The order in which a set reports events: the kernel's among those of sessions.
//!
//! No system call, no lock, no clock. Not here: the rounds that use this (`set_round`). Read
//! `set_ready` first.
//!
//! # Theory of operation
//! The kernel lists its events in the order in which they came and gives no times; bells give the
//! time of their ring. One thing is known of the kernel's events: when a look at them *began*, and
//! left nothing behind, all older events have been reported ([`ReportedEvents::until_ns`]). So each
//! event of the next look came after that time, and a session that was rung before it stands before
//! them all. A session that was rung later may stand behind any of them, so the kernel is asked
//! first, and its events stand before. One thing more is known where a waiter slept: a peer that
//! posts writes the event of the inbox, which the kernel lists among its own events; the events
//! behind it came after that post ([`Round::mark`]).
//!
//! A look leaves something behind where there was not room for all events. The kernel puts the
//! events that it has reported, and that still hold, behind the others: when it reports the first
//! one again it has reported all that there was when the first look began. The first one may not
//! come again, because the program has read its bytes or its session has moved. So as many events
//! as there are registrations do as well: no more can have been there.
//!
//! The times are the peers' word. They are held between the last take of their bits and now. So a
//! peer that lies changes only the place of its own sessions, which it could hold back anyway, and
//! no session waits for it.

/// Inboxes that are told apart in one round.
const MARKS_MAX: usize = 16;

/// How far the kernel's events of a set have been reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReportedEvents {
    /// Every event that the kernel had before this time has been reported.
    pub(crate) until_ns: u64,
    turn: Option<Turn>,
}

/// The looks since one that left something behind.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The time at which the first of these looks began.
    began_ns: u64,
    /// The data of its first event.
    first: u64,
    /// The number of events reported since.
    reported: usize,
}

impl ReportedEvents {
    /// Notes the answer to a look that began at `began_ns`: events with these data, and perhaps
    /// more if it `is_full`. The kernel can have as many events as there are `registrations`.
    pub(crate) fn answered(
        &mut self,
        began_ns: u64,
        data: impl IntoIterator<Item = u64>,
        is_full: bool,
        registrations: usize,
    ) {
        if !is_full {
            self.until(began_ns);
            self.turn = None;
            return;
        }
        for data in data {
            let turn = self.turn.get_or_insert(Turn { began_ns, first: data, reported: 0 });
            // Events of one look differ, except for registrations with the same data, which the
            // program cannot tell apart either.
            let is_again = turn.first == data && turn.began_ns != began_ns;
            if is_again || turn.reported >= registrations {
                let until_ns = turn.began_ns;
                *turn = Turn { began_ns, first: data, reported: 0 };
                self.until(until_ns);
            }
            if let Some(turn) = &mut self.turn {
                turn.reported += 1;
            }
        }
    }

    pub(crate) fn until(&mut self, ns: u64) {
        self.until_ns = self.until_ns.max(ns);
    }
}

/// Where the event of an inbox stands among the kernel's.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// How many kept events stand before it.
    kept: usize,
    /// The time of the post that it was written for.
    rung_ns: u64,
}

/// One look of one waiter at a set, which reports the kernel's events first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Members reported since this round, to this wait or another, are not reported again.
    pub(crate) since: u64,
    /// The round's own number.
    pub(crate) number: u64,
    /// [`ReportedEvents::until_ns`] before this round.
    pub(crate) before_ns: u64,
    /// The number of the kernel's events that the program gets.
    pub(crate) kept: usize,
    /// One for each inbox's event.
    marks: [Mark; MARKS_MAX],
    marked: usize,
}

impl Round {
    pub(crate) fn new(since: u64, number: u64, told: &ReportedEvents) -> Self {
        Self {
            since,
            number,
            before_ns: told.until_ns,
            kept: 0,
            marks: [Mark::default(); MARKS_MAX],
            marked: 0,
        }
    }

    /// Notes that the event of an inbox stands here, written for a post of that time.
    pub(crate) fn mark(&mut self, rung_ns: u64) {
        if let Some(mark) = self.marks.get_mut(self.marked) {
            *mark = Mark { kept: self.kept, rung_ns };
            self.marked += 1;
        }
    }

    /// Counts the kernel's events that stand before a session that was rung at `at_ns`.
    pub(crate) fn place(&self, at_ns: u64) -> usize {
        if at_ns <= self.before_ns {
            return 0;
        }
        let marks = &self.marks[..self.marked];
        marks.iter().find(|mark| at_ns <= mark.rung_ns).map_or(self.kept, |mark| mark.kept)
    }
}

/// Moves events that were appended to the kernel's into their places, run by run.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    /// The current run: its place among the kernel's events, where it begins, and its length.
    place: usize,
    begin: usize,
    len: usize,
    /// The number of events moved before the run.
    before: usize,
}

impl Merge {
    /// Notes the next appended event, at `at`; `place` of the kernel's events stand before it.
    /// Events appended earlier stand before it, too.
    pub(crate) fn append<T>(&mut self, events: &mut [T], at: usize, place: usize) {
        if self.len > 0 && place > self.place {
            self.finish(events);
        }
        if self.len == 0 {
            self.place = self.place.max(place);
            self.begin = at;
        }
        self.len += 1;
    }

    /// Moves the current run to its place.
    pub(crate) fn finish<T>(&mut self, events: &mut [T]) {
        if self.len > 0 {
            events[self.place + self.before..self.begin + self.len].rotate_right(self.len);
            (self.before, self.len) = (self.before + self.len, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(told: &ReportedEvents) -> Round {
        Round::new(1, 1, told)
    }

    #[test]
    fn what_was_rung_before_the_last_look_stands_before_the_kernels() {
        let mut told = ReportedEvents::default();
        told.answered(100, [7, 8], false, 9);
        let mut now = round(&told);
        now.kept = 3;
        assert_eq!([50, 100, 101].map(|at| now.place(at)), [0, 0, 3]);
    }

    #[test]
    fn what_the_kernel_lists_behind_an_inbox_came_after_its_post() {
        let mut now = round(&ReportedEvents::default());
        now.kept = 2;
        now.mark(200);
        now.kept = 4;
        now.mark(300);
        now.kept = 5;
        assert_eq!([150, 200, 250, 300, 301].map(|at| now.place(at)), [2, 2, 4, 4, 5]);
    }

    #[test]
    fn a_look_that_leaves_something_is_over_when_the_first_is_told_again() {
        let mut told = ReportedEvents::default();
        told.answered(100, [1], true, 9);
        told.answered(110, [2], true, 9);
        assert_eq!(told.until_ns, 0);
        told.answered(120, [1], true, 9);
        assert_eq!(told.until_ns, 100);
        told.answered(130, [2], true, 9);
        told.answered(140, [1], true, 9);
        assert_eq!(told.until_ns, 120, "and so on");
        told.answered(150, [], false, 9);
        assert_eq!(told.until_ns, 150);
    }

    #[test]
    fn a_first_event_that_never_comes_again_holds_nobody_up() {
        let mut told = ReportedEvents::default();
        // The first one's session moves; three others are always ready.
        told.answered(100, [1, 2], true, 4);
        told.answered(110, [3, 4], true, 4);
        assert_eq!(told.until_ns, 0);
        told.answered(120, [2, 3], true, 4);
        assert_eq!(told.until_ns, 100);
        told.answered(130, [4, 2], true, 4);
        told.answered(140, [3, 4], true, 4);
        assert!(told.until_ns >= 120, "and so on: {}", told.until_ns);
    }

    #[test]
    fn runs_come_to_their_places() {
        let mut events = vec![10, 11, 12, 13, 0, 1, 2, 3, 4];
        let mut merge = Merge::default();
        // The third was rung before the second by what its peer says, and listed after it.
        for (nth, place) in [0, 2, 1, 4, 4].into_iter().enumerate() {
            merge.append(&mut events, 4 + nth, place);
        }
        merge.finish(&mut events);
        assert_eq!(events, [0, 10, 11, 1, 2, 12, 13, 3, 4]);
    }
}
