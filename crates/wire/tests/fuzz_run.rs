//! A short run of this crate's fuzz targets with the same bytes every time: captured frames with
//! small changes.
//!
//! `cargo xtask fuzz wire_frame` (and `wire_headers`, `wire_options`) runs them for longer.
#![cfg(debug_assertions)]

mod common;

use common::captures::*;
use sojourn_wire::fuzz;

/// A small deterministic generator (splitmix64).
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
}

/// Runs `target` on `seeds` with a few bytes changed, and on their ends.
fn run(seed: u64, seeds: &[&[u8]], target: fn(&[u8])) {
    let mut random = Random(seed);
    for _ in 0..60_000 {
        let mut bytes = seeds[random.below(seeds.len())].to_vec();
        for _ in 0..random.below(5) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes.truncate(at + 1),
                _ => bytes.insert(at, [0, 4, 8, 60, 255][random.below(5)]),
            }
        }
        target(&bytes);
    }
}

#[test]
fn frames() {
    let framed = |choice: u8, bytes: &[u8]| [&[choice], bytes].concat();
    let mut seeds = Vec::new();
    for bytes in
        [SYN, SYN_ACK, DATA, DATAGRAM, DATA_V6, DATAGRAM_V6, UNREACHABLE_V6, LISTENER_REPORT]
    {
        seeds.push(framed(0, bytes));
        seeds.push(framed(1, &bytes[14..]));
    }
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    run(1, &seeds, fuzz::frame);
}

#[test]
fn headers() {
    let seeds: &[&[u8]] = &[
        ARP_REQUEST,
        &ARP_REPLY[14..],
        &UNREACHABLE_V4[14..],
        &UNREACHABLE_V4[34..],
        &UNREACHABLE_V6[54..],
        &LISTENER_REPORT[14..],
        &DATA_V6[14..],
        &[1, 1, 66, 0, 160, 5, 34, 0, 16, 0],
    ];
    run(2, seeds, fuzz::headers);
}

#[test]
fn options() {
    let sack = [
        1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 1, 1, 0, 0,
        1, 9,
    ];
    run(3, &[&SYN[54..], &SYN_ACK[54..], &DATA[54..66], &sack], fuzz::options);
}
