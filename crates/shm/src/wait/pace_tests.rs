//! A simulation of two ends with their learnt state: the processor time that they spend, and the
//! check that both come to spin.

use super::*;

/// Processor time of a sleep and its wake-up.
const COST: u64 = 10;

/// One end.
#[derive(Default)]
struct End {
    pace: Pace,
    slept: Option<u64>,
}

impl End {
    /// Waits for an event that comes after `delay`; a wake-up takes `wake`. Returns the time at
    /// which the end goes on, the time spent, and true if it slept.
    fn wait(&mut self, delay: u64, wake: u64) -> (u64, u64, bool) {
        if let Some(slept) = self.slept.take() {
            self.pace.slept(slept, COST);
        }
        let budget = match self.pace.next() {
            Spin::No => 0,
            Spin::Short => SHORT * COST,
            Spin::Long => LONG * COST,
        };
        if delay <= budget {
            if delay <= SHORT * COST {
                self.pace.met()
            } else {
                self.pace.met_late()
            }
            return (delay, delay, false);
        }
        if budget > 0 {
            self.pace.failed();
        }
        self.slept = Some(delay + wake);
        (delay + wake, budget + COST, true)
    }
}

/// A client that asks, and a server that answers at once.
struct Talk {
    client: End,
    server: End,
    wake: u64,
    /// The time for which the server computes an answer.
    work: u64,
    /// The delay with which the client saw the last answer.
    late: u64,
    spent: u64,
    sleeps: u64,
}

impl Talk {
    fn new(wake: u64) -> Self {
        let (client, server) = (End::default(), End::default());
        Self { client, server, wake, work: 1, late: 0, spent: 0, sleeps: 0 }
    }

    /// Asks one question `think` after the last answer, and returns the time until the answer.
    fn ask(&mut self, think: u64) -> u64 {
        let gap = self.late + think;
        let (seen, spent, is_asleep) = self.server.wait(gap, self.wake);
        let delay = seen - gap + self.work;
        let (answered, spent_too, is_asleep_too) = self.client.wait(delay, self.wake);
        self.late = answered - delay;
        self.spent += spent + spent_too;
        self.sleeps += u64::from(is_asleep) + u64::from(is_asleep_too);
        answered
    }

    fn ask_often(&mut self, count: u64, think: u64) -> u64 {
        (self.spent, self.sleeps) = (0, 0);
        (0..count).map(|_| self.ask(think)).sum()
    }
}

#[test]
fn two_ends_meet_whatever_a_wake_up_takes_within_reason() {
    for wake in [5, 10, 20, 30] {
        let mut talk = Talk::new(wake);
        talk.ask_often(20, 1);
        assert_eq!(talk.ask_often(100, 1), 100, "a wake-up of {wake}: from the beginning");
        // Both have slept for long.
        talk.ask_often(1000, 1000);
        talk.ask_often(600, 1);
        assert_eq!(talk.ask_often(100, 1), 100, "a wake-up of {wake}: after a pause");
    }
}

#[test]
fn an_answer_that_takes_longer_than_a_sleep_costs_is_spun_for_where_both_ends_save_one() {
    for (work, think) in [(15, 3), (12, 6), (19, 1), (3, 15)] {
        let mut talk = Talk { work, ..Talk::new(20) };
        talk.ask_often(600, think);
        assert_eq!(talk.ask_often(100, think), 100 * work, "{work}, {think}");
        assert!(talk.spent <= 100 * 2 * COST * 5 / 4, "{work}, {think}: {}", talk.spent);
    }
}

#[test]
fn one_late_question_among_quick_ones_costs_one_sleep_or_two() {
    let mut talk = Talk::new(20);
    talk.ask_often(600, 1);
    for _ in 0..20 {
        talk.ask(5000);
        let slow = (0..30).filter(|_| talk.ask(1) > COST).count();
        assert!(slow <= 2, "{slow}");
    }
}

#[test]
fn at_any_pace_little_more_is_spent_than_sleeping_costs() {
    for wake in [5, 10, 20, 30] {
        for think in [1, 3, 9, 11, 15, 25, 35, 45, 60, 100, 1000, 100_000] {
            let mut talk = Talk::new(wake);
            talk.ask_often(1000, think);
            talk.ask_often(1000, think);
            // If both sleep, each end spends one cost for each question.
            let ratio = talk.spent as f64 / (2 * COST * 1000) as f64;
            assert!(ratio <= 1.3, "wake {wake}, think {think}: {ratio}");
        }
    }
}

#[test]
fn who_is_quick_every_other_time_spends_no_more_than_who_sleeps() {
    let mut talk = Talk::new(20);
    for _ in 0..1000 {
        talk.ask(1);
        talk.ask(1000);
    }
    assert!(talk.spent <= 2000 * 2 * COST * 5 / 4, "{}", talk.spent);
}

#[test]
fn failures_skip_more_and_more_waits_and_one_success_ends_that() {
    let mut pace = Pace::default();
    let mut skipped = 0;
    for _ in 0..1000 {
        match pace.next() {
            Spin::No => skipped += 1,
            _ => pace.failed(),
        }
    }
    assert!(skipped >= 980, "{skipped}");
    pace.met();
    assert!(!pace.skips());
    assert_eq!(pace.next(), Spin::Short);
}
