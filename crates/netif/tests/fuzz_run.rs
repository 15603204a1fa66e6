//! Deterministic runs of the fuzz targets with random bytes, and with random changes of plausible
//! bytes.
#![cfg(debug_assertions)]

use sojourn_netif::fuzz::{self, SLOT_BYTES, SLOTS};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

const TURNS: usize = 2_000;

#[test]
fn random_bytes() {
    let mut random = Random(1);
    for turn in 0..TURNS {
        let bytes = random.bytes(turn % 1100);
        fuzz::slots(&bytes);
        fuzz::control(&bytes[..bytes.len().min(128)]);
        fuzz::descriptors(&bytes);
    }
}

/// A ring of full slots, with a few bytes changed.
#[test]
fn rings_that_are_almost_right() {
    let mut random = Random(2);
    let mut ring = vec![0; 1 + SLOT_BYTES * SLOTS];
    for slot in ring[1..].chunks_mut(SLOT_BYTES) {
        for (at, word) in [(0, 1u32), (4, 160), (8, 160)] {
            slot[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        slot[12..14].copy_from_slice(&96u16.to_ne_bytes());
    }
    for _ in 0..TURNS {
        let mut changed = ring.clone();
        changed[0] = random.next() as u8;
        for _ in 0..random.next() % 4 {
            let slot = random.next() as usize % SLOTS;
            let at = 1 + slot * SLOT_BYTES + random.next() as usize % 16;
            changed[at] = random.next() as u8;
        }
        fuzz::slots(&changed);
    }
}
