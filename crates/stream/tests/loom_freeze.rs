//! Model of a freeze against a write and a read under way: every byte that was written comes out
//! once, from the ring or in the leftover, in order; and the leftover is fixed at once.
//!
//! Changes seen to fail here: positions stored and not exchanged; only the tail frozen; `publish`
//! or `freeze` relaxed; of a short message: the mark not unset first, or without the fence, or not
//! looked at again.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loom_common;

use loom::sync::Arc;
use loom::thread;
use loom_common::{CELLS, World, check, read_three};
use sojourn_stream::ring::{Positions, Stop};

/// Returns the leftover as seen by a thread that has just frozen the ring while the others still
/// run.
fn leftover(world: &World) -> Vec<u64> {
    world.ring.freeze();
    let Positions { tail, head } = world.ring.positions().unwrap();
    assert!((head..=head + u64::from(CELLS)).contains(&tail));
    (head..tail).map(|position| world.at(position)).collect()
}

fn freeze_in_the_middle(short: bool) {
    let world = Arc::new(World::new());
    let writer = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let mut written = 0;
            while written < 3 {
                match world.write(written, written + 10, short) {
                    Ok(()) => written += 1,
                    Err(Stop::Full | Stop::Frozen) => break,
                    Err(stop) => panic!("{stop}"),
                }
            }
            written
        })
    };
    let reader = {
        let world = Arc::clone(&world);
        thread::spawn(move || read_three(|at| world.read(at)))
    };
    let leftover = leftover(&world);
    let (written, mut all) = (writer.join().unwrap(), reader.join().unwrap());
    all.extend(leftover);
    assert_eq!(all, (10..10 + written).collect::<Vec<u64>>());
}

#[test]
fn every_byte_is_read_or_left_over_once() {
    check(3, || freeze_in_the_middle(false));
}

#[test]
fn so_are_short_messages() {
    check(3, || freeze_in_the_middle(true));
}

/// Both sides freeze at once and see the same leftover.
#[test]
fn who_freezes_second_sees_the_same() {
    check(3, || {
        let world = Arc::new(World::new());
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let read = world.read(0);
                (read, leftover(&world))
            })
        };
        let written = world.write(0, 10, false);
        let ours = leftover(&world);
        let (read, theirs) = other.join().unwrap();
        assert_eq!(ours, theirs);
        assert_eq!(ours.len() + usize::from(read.is_ok()), usize::from(written.is_ok()));
    });
}

/// A short message beside the tail is never taken for another's, nor a mixture of two.
#[test]
fn short_messages_are_whole() {
    check(3, || {
        let world = Arc::new(World::new());
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for tail in 0..2 {
                    let number = tail + 10;
                    world.ring.put_short(tail, 1, &[number, number]);
                    world.ring.publish(tail, tail + 1).unwrap();
                }
            })
        };
        let tail = world.ring.tail().unwrap();
        for head in 0..2 {
            if tail > head
                && let Some(bytes) = world.ring.copy_short(head, 1)
            {
                let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
                assert_eq!((word(0), word(8)), (head + 10, head + 10));
            }
        }
        writer.join().unwrap();
    });
}
