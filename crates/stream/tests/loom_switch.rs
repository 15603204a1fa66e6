//! Model of the switch in two phases, consent and IN_USE, with the kernel's queue beside the ring:
//! the reader gets every byte once and in order, whenever the writer sees the consent.
//!
//! Seen to fail here: a reader that looks for IN_USE only when it has found the kernel empty. The
//! orderings of the two flags cannot be shown wrong here, for the modelled kernel's lock orders
//! everything by itself.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loom_common;

use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_common::{World, check};
use std::collections::VecDeque;

#[test]
fn the_switch_keeps_the_order() {
    check(4, || {
        let world = Arc::new(World::new());
        let kernel = Arc::new(Mutex::new(VecDeque::new()));
        let writer = {
            let (world, kernel) = (Arc::clone(&world), Arc::clone(&kernel));
            thread::spawn(move || {
                let (mut rings, mut tail) = (false, 0);
                for number in 0..2 {
                    if !rings && world.ring.has_consent() {
                        world.ring.start(loom_common::CELLS);
                        rings = true;
                    }
                    if rings {
                        world.write(tail, number, false).unwrap();
                        tail += 1;
                    } else {
                        kernel.lock().unwrap().push_back(number);
                    }
                }
            })
        };
        world.ring.consent();
        let (mut got, mut head, mut only_ring) = (vec![], 0, false);
        while got.len() < 2 {
            // IN_USE must have been seen before the kernel was found empty.
            let is_used = world.ring.is_used();
            if !only_ring {
                let number = kernel.lock().unwrap().pop_front();
                match number {
                    Some(number) => got.push(number),
                    None => only_ring = is_used,
                }
            } else if let Ok(number) = world.read(head) {
                got.push(number);
                head += 1;
            }
            loom::thread::yield_now();
        }
        assert_eq!(got, [0, 1]);
        writer.join().unwrap();
    });
}
