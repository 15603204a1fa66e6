//! The fuzz targets of this crate, run for some seconds with bytes that are the same every time:
//! random ones, and mutations of programs that came before.
//!
//! `cargo fuzz run stream_region` (and `stream_home`, `stream_inbox`) goes on from there.
#![cfg(all(debug_assertions, not(loom)))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Random, watchdog};
use sojourn_stream::fuzz;

fn run(what: &'static str, seed: u64, rounds: u32, target: fn(&[u8])) {
    let _guard = watchdog(what, 120);
    let mut random = Random(seed);
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    for _ in 0..rounds {
        let bytes = |random: &mut Random, len| -> Vec<u8> {
            (0..len).map(|_| random.next() as u8).collect()
        };
        let len = 1 + random.below(400);
        let mut program = match random.below(3) {
            1.. if !corpus.is_empty() => corpus[random.below(corpus.len() as u64) as usize].clone(),
            _ => bytes(&mut random, len),
        };
        for _ in 0..random.below(6) {
            let at = random.below(program.len() as u64) as usize;
            match random.below(4) {
                0 => program[at] = random.next() as u8,
                1 => program[at] ^= 1 << random.below(8),
                2 => program.truncate(at.max(1)),
                _ => program.extend(bytes(&mut random, 30)),
            }
        }
        target(&program);
        if corpus.len() < 64 {
            corpus.push(program);
        } else {
            corpus[random.below(64) as usize] = program;
        }
    }
}

#[test]
fn regions() {
    run("regions", 11, 15_000, fuzz::stream);
}

#[test]
fn ways_home() {
    run("ways home", 13, 6_000, fuzz::way_home);
}

#[test]
fn inboxes() {
    run("inboxes", 12, 6_000, fuzz::inbox);
}
