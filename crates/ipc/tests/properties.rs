//! Random sequences of operations against a model of what must come of them, with the server in
//! this process and in another.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::service::{COUNT, COUNTED, ECHO, KEEP, RELEASE};
use common::{Echo, Home, ask, call, limit, soon, watchdog};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sojourn_ipc::{CallError, ConnectOptions, Connection, Deadline, Pending, ServerOptions, Wait};

#[test]
fn child_entry() {
    common::child::entry(&[]);
}

/// What a client does next.
#[derive(Clone, Debug)]
enum Step {
    /// A call, within one address space by reference if `lend`.
    Call { len: usize, items: Vec<usize>, lend: bool },
    /// A call that is waited for later.
    Submit { len: usize, items: Vec<usize> },
    /// Waits for one of those.
    Finish(usize),
    /// Gives one of those up.
    GiveUp(usize),
    /// A call that nobody answers in time.
    Lose,
    /// A one-way message.
    Send { padding: usize },
    /// Notification bits.
    Notify(u64),
    /// Everything that the server keeps is answered.
    Release,
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..200, 2 => 4000usize..9000, 1 => 60_000usize..200_000]
}

fn items() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![2 => Just(vec![]), 1 => proptest::collection::vec(len(), 0..5)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (len(), items(), any::<bool>())
            .prop_map(|(len, items, lend)| Step::Call { len, items, lend }),
        3 => (len(), items()).prop_map(|(len, items)| Step::Submit { len, items }),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::GiveUp),
        1 => Just(Step::Lose),
        2 => prop_oneof![3 => Just(0usize), 1 => len()].prop_map(|padding| Step::Send { padding }),
        1 => (0u32..60).prop_map(|bit| Step::Notify(1 << bit)),
        1 => Just(Step::Release),
    ]
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(31) ^ seed.wrapping_mul(97) ^ n >> 8) as u8).collect()
}

/// The client, and what the model says of it.
struct Model {
    connection: Connection,
    /// Calls not waited for: what their answers must be.
    pending: Vec<(Pending, u64, usize, Vec<usize>)>,
    /// Lines of calls that were given up or lost, as far as they may still be taken.
    lost: usize,
    max_inflight: usize,
    sent: u64,
    bits: u64,
    seen: u64,
    number: u64,
}

impl Model {
    fn new(connection: Connection, max_inflight: usize) -> Self {
        Self {
            connection,
            pending: vec![],
            lost: 0,
            max_inflight,
            sent: 0,
            bits: 0,
            seen: 0,
            number: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        self.number += 1;
        match step {
            Step::Call { len, items, lend } => {
                if self.is_certain_of_room() {
                    self.call(*len, items, *lend);
                }
            }
            Step::Submit { len, items } => self.submit(*len, items),
            Step::Finish(which) => {
                if !self.pending.is_empty() {
                    let at = which % self.pending.len();
                    let (pending, seed, len, items) = self.pending.swap_remove(at);
                    let reply = self.connection.finish(pending, limit()).unwrap();
                    assert!(reply.body() == bytes(seed, len), "the body of call {seed}");
                    for (index, len) in items.iter().enumerate() {
                        let item = reply.item(index).unwrap();
                        assert!(item == bytes(seed + index as u64, *len), "item {index} of {seed}");
                    }
                    assert!(reply.item(items.len()).is_none());
                }
            }
            Step::GiveUp(which) => {
                if !self.pending.is_empty() {
                    let at = which % self.pending.len();
                    let (pending, ..) = self.pending.swap_remove(at);
                    self.connection.give_up(&pending);
                    self.lost += 1;
                }
            }
            Step::Lose => {
                if self.is_certain_of_room() {
                    let error = self.connection.start(KEEP, 0).call(soon(1)).unwrap_err();
                    assert_eq!(error, CallError::Timeout);
                    self.lost += 1;
                }
            }
            Step::Send { padding } => self.send(*padding),
            Step::Notify(bits) => {
                self.connection.notify(*bits).unwrap();
                self.bits |= bits << 1;
            }
            Step::Release => self.release(),
        }
    }

    /// Whether the model knows that a call can be made now.
    fn is_certain_of_room(&self) -> bool {
        self.pending.len() + self.lost < self.max_inflight
    }

    fn call(&mut self, len: usize, items: &[usize], lend: bool) {
        let seed = self.number;
        let data: Vec<_> = items.iter().zip(seed..).map(|(len, seed)| bytes(seed, *len)).collect();
        let mut draft = self.connection.start(ECHO, len);
        draft.encoder().put_bytes(&bytes(seed, len)).unwrap();
        data.iter().for_each(|item| draft.encoder().put_item(item).unwrap());
        let reply = draft.call(if lend { Deadline::NEVER } else { limit() }).unwrap();
        assert!(reply.body() == bytes(seed, len), "the body of call {seed}");
        let back: Vec<_> = (0..).map_while(|index| reply.item(index)).collect();
        assert!(back == data, "the items of call {seed}");
    }

    fn submit(&mut self, len: usize, items: &[usize]) {
        let (seed, is_certain) = (self.number, self.is_certain_of_room());
        let data: Vec<_> = items.iter().zip(seed..).map(|(len, seed)| bytes(seed, *len)).collect();
        let mut draft = self.connection.start(ECHO, len);
        draft.encoder().put_bytes(&bytes(seed, len)).unwrap();
        data.iter().for_each(|item| draft.encoder().put_item(item).unwrap());
        match draft.submit(limit()) {
            Ok(pending) => self.pending.push((pending, seed, len, items.to_vec())),
            Err(CallError::Busy) => assert!(!is_certain, "busy with {} calls", self.pending.len()),
            Err(other) => panic!("{other}"),
        }
        assert!(self.pending.len() <= self.max_inflight);
    }

    fn send(&mut self, padding: usize) {
        // Counted messages carry their number; padded ones come between, and say nothing.
        if padding > 0 {
            let mut draft = self.connection.start(99, padding);
            draft.encoder().put_bytes(&bytes(1, padding)).unwrap();
            draft.send(limit()).unwrap();
        }
        let mut draft = self.connection.start(COUNT, 4);
        draft.encoder().put_bytes(&(self.sent as u32).to_ne_bytes()).unwrap();
        draft.send(limit()).unwrap();
        self.sent += 1;
    }

    /// After this nothing is lost: what was given up has been answered.
    fn release(&mut self) {
        if !self.is_certain_of_room() {
            // One-way, since no call can be made.
            return;
        }
        call(&mut self.connection, RELEASE, &[]).unwrap();
        self.lost = 0;
    }

    /// What must hold in the end.
    fn end(mut self) {
        while !self.pending.is_empty() {
            self.take(&Step::Finish(0));
        }
        if !self.is_certain_of_room() {
            return;
        }
        call(&mut self.connection, RELEASE, &[]).unwrap();
        let counted = ask(&mut self.connection, COUNTED, &[]).unwrap();
        assert_eq!(counted, [self.sent, 1], "one-way messages, and their order");
        while self.seen != self.bits {
            let bits = self.connection.wait_notify(limit()).unwrap();
            assert_eq!(bits & !self.bits, 0, "bits that nobody set");
            self.seen |= bits;
        }
    }
}

fn run(home: Home, cases: u32) {
    let _watchdog = watchdog(120);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let wait = prop_oneof![Just(Wait::Adaptive), Just(Wait::Park)];
    let shape = (wait, 0u32..4, prop_oneof![Just(4096u64), Just(65536)]);
    let steps = proptest::collection::vec(step(), 1..60);
    runner
        .run(&(shape, steps), |((wait, inflight, area), steps)| {
            let max_inflight = 1 << inflight;
            let options = ServerOptions { wait, area, max_inflight, ..Default::default() };
            let echo = Echo::start_with(home, 1, options);
            let options = ConnectOptions { wait, ..Default::default() };
            let mut model = Model::new(echo.connect_with(options), max_inflight as usize);
            steps.iter().for_each(|step| model.take(step));
            model.end();
            Ok(())
        })
        .unwrap();
}

#[test]
fn whatever_is_done_within_one_process_comes_out_right() {
    run(Home::Within, 150);
}

#[test]
fn whatever_is_done_across_processes_comes_out_right() {
    run(Home::Across, 100);
}
