//! The fuzz targets of this crate, run for a few seconds with bytes that are the same every time:
//! random ones, and mutations of programs that came far.
//!
//! `cargo fuzz run ipc_request` (and `ipc_reply`, `ipc_control`) goes on from there.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::watchdog;
use sojourn_ipc::fuzz;

/// A small generator, so that every run is the same (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Small bytes make steps that are almost right.
        (0..len).map(|_| (self.next() >> (self.next() & 7)) as u8).collect()
    }
}

fn run(seed: u64, rounds: u32, seeds: &[Vec<u8>], target: fn(&[u8])) {
    let _watchdog = watchdog(120);
    let mut random = Random(seed);
    let mut corpus = seeds.to_vec();
    for _ in 0..rounds {
        let len = 1 + random.below(300);
        let mut program = match random.below(3) {
            0 => random.bytes(len),
            _ if corpus.is_empty() => random.bytes(len),
            _ => corpus[random.below(corpus.len())].clone(),
        };
        for _ in 0..random.below(6) {
            let at = random.below(program.len());
            match random.below(4) {
                0 => program[at] = random.next() as u8,
                1 => program[at] ^= 1 << random.below(8),
                2 => program.truncate(at.max(1)),
                _ => program.extend(random.bytes(20)),
            }
        }
        target(&program);
        if corpus.len() < 64 {
            corpus.push(program);
        } else {
            let at = random.below(64);
            corpus[at] = program;
        }
    }
}

/// A slot's request, short, then a look: the beginning of many mutations.
fn good_requests() -> Vec<Vec<u8>> {
    let line = |what: u8, flags: u8, op: u8, meta: u64, sizes: [u8; 4]| {
        let mut bytes = vec![what, flags, op];
        bytes.extend(meta.to_le_bytes());
        bytes.extend(sizes);
        bytes.extend([0; 8]);
        bytes
    };
    let call = |slot: bool, flags, op, meta, sizes| {
        [vec![u8::from(!slot)], line(0, flags, op, meta, sizes), vec![7]].concat()
    };
    let short = 8 | 1 << 8;
    let table = [vec![3, 2, 2, 0, 3, 0], vec![0; 24]].concat();
    let pieces = [0, line(0, 1, 4, 1 << 8, [200, 1, 190, 0]).as_slice()[0]].to_vec();
    vec![
        call(true, 0, 4, short, [0; 4]),
        call(false, 0, 4, 8, [0; 4]),
        [table, call(true, 1, 5, 1 << 8, [0, 1, 0, 0])].concat(),
        [pieces, vec![0, 2, 0, 0], vec![7]].concat(),
        [vec![5, 0x30 | 5, 0, 0, 0, 0, 0], call(true, 0, 4, 1 << 16 | short, [0; 4])].concat(),
    ]
}

#[test]
fn requests() {
    run(1, 12_000, &good_requests(), fuzz::request);
}

#[test]
fn replies() {
    run(2, 12_000, &[], fuzz::reply);
}

#[test]
fn packets() {
    run(3, 20_000, &[], fuzz::control);
}
