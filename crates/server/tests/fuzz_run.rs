//! The fuzz target of this crate, run for some seconds with bytes that are the same every time:
//! random ones, and mutations of programs that came far.
//!
//! `cargo fuzz run session_server` goes on from there.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_server::fuzz;
use std::time::{Duration, Instant};

/// A small generator, so that every run is the same (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Two processes say hello, offer the two ends of a connection, and collect.
fn pair_up(ends: [u8; 2]) -> Vec<u8> {
    // A step is the process and the operation (the first ones are hello, offer and next; small
    // numbers mean something else, so that all operations are added); then the descriptor, set,
    // local, the operation's special bytes, and the way in which it is changed: not at all.
    let step = |process: u8, operation| process << 6 | (fuzz::OPERATIONS + operation);
    let hello = |process: u8| vec![step(process, 0), 1, 0, 0, 3, 1];
    let offer = |process: u8, end| vec![step(process, 1), end, 0, 1, 1];
    let next = |process: u8| vec![step(process, 2), 0, 0, 0, 1];
    [hello(0), hello(1), offer(0, ends[0]), offer(1, ends[1]), next(0), next(1)].concat()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn messages() {
    sojourn_server::log::set(sojourn_server::log::Level::Error);
    let mut random = Random(77);
    let mut corpus = vec![pair_up([0, 1]), pair_up([4, 5]), pair_up([7, 8])];
    assert!(corpus.iter().all(|program| fuzz::messages(program) == 1), "not even these join");
    let before = descriptors();
    let begun = Instant::now();
    for _ in 0..4_000 {
        let len = 1 + random.below(200);
        let mut program = match random.below(4) {
            0 => random.bytes(len),
            _ => corpus[random.below(corpus.len())].clone(),
        };
        for _ in 0..random.below(5) {
            let at = random.below(program.len());
            match random.below(5) {
                0 => program[at] = random.next() as u8,
                1 => program[at] ^= 1 << random.below(8),
                2 => program.truncate(at.max(1)),
                3 => program.extend(pair_up([random.next() as u8, random.next() as u8])),
                _ => program.extend(random.bytes(20)),
            }
        }
        fuzz::messages(&program);
        if corpus.len() < 64 {
            corpus.push(program);
        } else {
            let at = 3 + random.below(61);
            corpus[at] = program;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "too slow");
    }
    // Threads of the last servers may be about to end.
    let begun = Instant::now();
    while descriptors() > before {
        assert!(begun.elapsed() < Duration::from_secs(20), "descriptors are left");
        std::thread::sleep(Duration::from_millis(5));
    }
}
