//! Sets under load: nothing is lost between threads that publish and threads that wait; and what a
//! round costs.

use crate::host::epoll::bit;
use crate::host::epoll::op;
use crate::ready::set_fakes::{LONG, World};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use rustix::fd::AsRawFd;
use sojourn_shm::wait::Wait;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

/// Publishes `each` bytes to each session from two threads while three wait; all must be consumed,
/// and nobody may be left asleep.
fn nothing_is_lost(events: u32, wait: Wait) {
    const SESSIONS: usize = 5;
    let each = if wait == Wait::Park { 2_000 } else { 20_000 };
    let world = World::joined(SESSIONS as u32, wait, events);
    let (mut stop, stopped) = UnixStream::pair().unwrap();
    world.control_fd(op::ADD, stopped.as_raw_fd(), (bit::IN, 100)).unwrap();
    let total = AtomicU32::new(0);
    let busy: Vec<AtomicBool> = (0..SESSIONS).map(|_| AtomicBool::new(false)).collect();
    let waiter = |room: usize| loop {
        let found = world.wait(room, Some(LONG), None).unwrap();
        assert!(!found.is_empty(), "asleep with {} consumed", total.load(Ordering::SeqCst));
        for (_, data) in found {
            if data == 100 {
                return;
            }
            let at = data as usize;
            if events & bit::ONESHOT != 0 {
                assert!(!busy[at].swap(true, Ordering::SeqCst), "two threads at one one-shot");
            }
            total.fetch_add(world.consume(at), Ordering::SeqCst);
            if events & bit::ONESHOT != 0 {
                busy[at].store(false, Ordering::SeqCst);
                world.control(op::MOD, at, events).unwrap();
            }
        }
    };
    thread::scope(|scope| {
        [1, 2, 64].into_iter().for_each(|room| drop(scope.spawn(move || waiter(room))));
        let publishers: Vec<_> = (0..2)
            .map(|side| {
                let world = &world;
                scope.spawn(move || {
                    for round in 0..each {
                        (0..SESSIONS).for_each(|at| world.publish((at + side) % SESSIONS));
                        if round % 64 == 0 {
                            // So that the waiters fall asleep now and then.
                            thread::sleep(Duration::from_micros(200));
                        }
                    }
                })
            })
            .collect();
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
        let (start, all) = (Instant::now(), 2 * each * SESSIONS as u32);
        while total.load(Ordering::SeqCst) < all {
            assert!(start.elapsed() < LONG, "{} of {all}", total.load(Ordering::SeqCst));
            thread::yield_now();
        }
        stop.write_all(b"x").unwrap();
    });
}

#[test]
fn nothing_is_lost_level_triggered() {
    nothing_is_lost(bit::IN, Wait::Park);
    nothing_is_lost(bit::IN, Wait::Adaptive);
}

#[test]
fn nothing_is_lost_edge_triggered() {
    nothing_is_lost(bit::IN | bit::ET, Wait::Park);
    nothing_is_lost(bit::IN | bit::ET, Wait::Adaptive);
}

#[test]
fn nothing_is_lost_one_shot() {
    nothing_is_lost(bit::IN | bit::ONESHOT, Wait::Park);
    nothing_is_lost(bit::IN | bit::ET | bit::ONESHOT, Wait::Adaptive);
}

/// Returns the cost of a round: one session of `members` becomes ready, is waited for, and read.
fn round_ns(members: u32, events: u32) -> u64 {
    const ROUNDS: u32 = 200_000;
    let world = World::joined(members, Wait::Park, events);
    while !world.now().is_empty() {}
    let mut found = [crate::ready::set_state::event(0, 0); 64];
    let start = Instant::now();
    for round in 0..ROUNDS {
        let at = (round.wrapping_mul(7919) % members) as usize;
        world.publish(at);
        assert_eq!(world.wait_into(&mut found, Some(LONG), None), Ok(1));
        world.consume(at);
    }
    start.elapsed().as_nanos() as u64 / u64::from(ROUNDS)
}

/// Returns the cost of the plain call, by itself or through a set without sessions.
fn plain_ns(through_set: bool) -> u64 {
    const ROUNDS: u32 = 200_000;
    let world = World::new(1, Wait::Park);
    world.control(op::ADD, 0, bit::IN).unwrap();
    (&world.all[0].peer).write_all(b"x").unwrap();
    let mut found = [crate::ready::set_state::event(0, 0); 64];
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let count = if through_set {
            world.wait_into(&mut found, Some(LONG), None)
        } else {
            crate::host::epoll::wait(world.epoll.as_raw_fd(), &mut found, Some(LONG))
        };
        assert_eq!(count, Ok(1));
    }
    start.elapsed().as_nanos() as u64 / u64::from(ROUNDS)
}

#[test]
#[ignore = "a measurement; needs 20,000 descriptors and a quiet machine"]
fn the_cost_is_that_of_what_is_ready() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    for (name, events) in [("level", bit::IN), ("edge", bit::IN | bit::ET)] {
        let costs = [10, 1000, 9_900].map(|members| round_ns(members, events));
        println!("{name}-triggered, 10, 1,000 and 9,900 members: {costs:?} ns a round");
    }
    println!("no session: {} ns, the kernel alone: {} ns", plain_ns(true), plain_ns(false));
}
