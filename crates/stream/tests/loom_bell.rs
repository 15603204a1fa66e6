//! Models of publishing, sleeping and waking on a ring: no thread sleeps while there is something
//! that it waits for.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p sojourn-stream --release --tests`. A lost wake-up
//! shows as a deadlock, which loom reports. The ring's words, bells and fences are the code that
//! ships.
//!
//! Changes seen to fail here: no fence in `BellWord::has_sleepers`, none in `announce`; no count in
//! `BellWord::take`; `withdraw` that clears the flag while another thread sleeps; `want` that is
//! not the least of several; a wake-up for one sleeper only; `Sleepers::take` that goes by the
//! bell's flags.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loom_common;

use loom::sync::Arc;
use loom::thread;
use loom_common::{World, check};
use sojourn_stream::bell::FUTEX;
use sojourn_stream::ring::Stop;

#[test]
fn a_reader_is_woken_for_every_message_and_a_writer_for_room() {
    check(3, || {
        let world = Arc::new(World::new());
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for tail in 0..3 {
                    while world.write(tail, tail + 10, tail == 1) == Err(Stop::Full) {
                        world.await_room(tail, 1);
                    }
                }
            })
        };
        for head in 0..3 {
            world.await_bytes(head);
            assert_eq!(world.read(head), Ok(head + 10));
        }
        writer.join().unwrap();
    });
}

/// A thread in `poll` and one in `read` sleep on the same bell: one ring wakes both, and one that
/// withdraws does not take the other's flag away.
#[test]
fn two_readers_sleep_on_one_bell() {
    check(3, || {
        let world = Arc::new(World::new());
        let poller = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.await_bytes(0))
        };
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.write(0, 10, true).unwrap())
        };
        world.await_bytes(0);
        poller.join().unwrap();
        writer.join().unwrap();
    });
}

/// The peer publishes, takes the flags and dies before it wakes anybody. The process itself, told
/// by the kernel, wakes its sleeper.
#[test]
fn a_peer_that_dies_with_the_flags_leaves_nobody_asleep() {
    check(3, || {
        let world = Arc::new(World::new());
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.await_bytes(0))
        };
        world.ring.publish(0, 1).unwrap();
        if world.ring.reader.bell.has_sleepers() {
            world.ring.reader.bell.take();
        }
        let (sleepers, futex) = &world.reader;
        if sleepers.take(&world.ring.reader.bell) & FUTEX != 0 {
            futex.wake_all();
        }
        reader.join().unwrap();
    });
}

/// Two threads want different room: the one that wants less is woken as soon as it is there, the
/// other when there is more.
#[test]
fn two_writers_want_different_room() {
    check(3, || {
        let world = Arc::new(World::new());
        world.write(0, 10, false).unwrap();
        world.write(1, 11, false).unwrap();
        let poller = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.await_room(2, 1))
        };
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.await_room(2, 2))
        };
        assert_eq!(world.read(0), Ok(10));
        poller.join().unwrap();
        assert_eq!(world.read(1), Ok(11));
        writer.join().unwrap();
    });
}
