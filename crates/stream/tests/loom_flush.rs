//! Model of the owner of a frozen ring's leftover: the reader takes bytes from the ring until the
//! writer begins to put them into the kernel. Every byte comes once and in order, whenever the
//! writer begins.
//!
//! Seen to fail here: a reader that looks if the writer has begun and then stores its own position;
//! a writer that loads the reader's position and then stores that it has begun.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loom_common;

use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_common::{World, check};
use std::collections::VecDeque;

const BYTES: u64 = 2;

#[test]
fn every_byte_comes_from_the_ring_or_through_the_kernel() {
    check(4, || {
        let world = Arc::new(World::new());
        for number in 0..BYTES {
            world.write(number, number + 10, false).unwrap();
        }
        world.ring.freeze();
        let kernel = Arc::new(Mutex::new(VecDeque::new()));
        let writer = {
            let (world, kernel) = (Arc::clone(&world), Arc::clone(&kernel));
            thread::spawn(move || {
                for at in world.ring.begin_flush()..BYTES {
                    kernel.lock().unwrap().push_back(world.at(at));
                }
            })
        };
        let mut got = vec![];
        while (got.len() as u64) < BYTES {
            let (at, byte) = (got.len() as u64, world.at(got.len() as u64));
            if !world.ring.take_left(at, at + 1) {
                break;
            }
            got.push(byte);
        }
        writer.join().unwrap();
        got.extend(kernel.lock().unwrap().drain(..));
        assert_eq!(got, (10..10 + BYTES).collect::<Vec<_>>());
    });
}
