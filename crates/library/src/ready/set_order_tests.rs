//! The order in which a set reports events, in one process, with the kernel's epoll and fake
//! sessions.

use crate::host::epoll::bit;
use crate::host::epoll::op;
use crate::host::lock::lock;
use crate::ready::set_fakes::{LONG, World};
use core::sync::atomic::Ordering;
use rustix::fd::AsRawFd;
use sojourn_shm::wait::Wait;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Makes a kernel descriptor beside the sessions, with 100 as data: bytes that are written to the
/// first socket are for the second.
fn beside(world: &World, events: u32) -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    world.control_fd(op::ADD, far.as_raw_fd(), (events, 100)).unwrap();
    (near, far)
}

fn data(found: &[(u32, u64)]) -> Vec<u64> {
    found.iter().map(|(_, data)| *data).collect()
}

#[test]
fn sessions_are_told_in_the_order_in_which_they_were_rung() {
    for events in [bit::IN, bit::IN | bit::ET, bit::IN | bit::ONESHOT] {
        let world = World::joined(6, Wait::Park, events);
        assert_eq!(world.now(), []);
        let order = [4, 0, 5, 2, 1, 3];
        order.iter().for_each(|at| world.publish(*at));
        let found: Vec<u64> = [1, 2, 3]
            .into_iter()
            .flat_map(|room| data(&world.wait(room, Some(LONG), None).unwrap()))
            .collect();
        assert_eq!(found, order.map(|at| at as u64), "{events:x}");
    }
}

#[test]
fn sessions_of_several_inboxes_are_told_in_one_order() {
    let world = World::new(4, Wait::Park);
    let other = crate::ready::set_fakes::inbox();
    for (at, fake) in world.all.iter().enumerate() {
        world.control(op::ADD, at, bit::IN).unwrap();
        let inbox = if at % 2 == 0 { &world.inbox } else { &other };
        assert!(world.set.join(fake.fd(), inbox, fake.slot));
    }
    assert_eq!(world.now(), []);
    for at in [3, 2, 1, 0] {
        world.all[at].bytes.store(1, Ordering::SeqCst);
        let inbox = if at % 2 == 0 { &world.inbox } else { &other };
        inbox.post_ready(world.all[at].slot);
    }
    assert_eq!(data(&world.now()), [3, 2, 1, 0]);
}

#[test]
fn what_the_kernel_had_before_is_told_before() {
    for wait in [Wait::Park, Wait::Adaptive, Wait::Spin(None)] {
        for room in [1, 2, 3, 64] {
            let world = World::joined(2, wait, bit::IN | bit::ET);
            let (mut near, _far) = beside(&world, bit::IN | bit::ET);
            assert_eq!(world.now(), []);
            near.write_all(b"x").unwrap();
            world.publish(1);
            world.publish(0);
            let mut found = vec![];
            while found.len() < 3 {
                found.extend(data(&world.wait(room, Some(LONG), None).unwrap()));
            }
            assert_eq!(found, [100, 1, 0], "{wait:?}, {room}");
        }
    }
}

/// However short the time since the kernel was last asked: its event is in the round that has the
/// later one of a session.
#[test]
fn what_the_kernel_had_before_is_never_missing() {
    let world = World::joined(1, Wait::Park, bit::IN);
    let (mut near, mut far) = beside(&world, bit::IN);
    for _ in 0..2_000 {
        world.now();
        near.write_all(b"x").unwrap();
        world.publish(0);
        assert_eq!(data(&world.wait(8, Some(LONG), None).unwrap()), [100, 0]);
        world.consume(0);
        far.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn what_wakes_a_sleeper_first_is_told_first() {
    for session_first in [true, false] {
        let world = World::joined(1, Wait::Park, bit::IN | bit::ET);
        let (mut near, _far) = beside(&world, bit::IN | bit::ET);
        assert_eq!(world.now(), []);
        // As a sleeper that is announced, and does not run before both are there.
        world.inbox.announce();
        if session_first {
            world.publish(0);
            near.write_all(b"x").unwrap();
        } else {
            near.write_all(b"x").unwrap();
            world.publish(0);
        }
        let began_ns = 1;
        let mut events = [crate::ready::set_state::event(0, 0); 8];
        let epfd = world.epoll.as_raw_fd();
        let said = crate::host::epoll::wait(epfd, &mut events, Some(LONG)).unwrap();
        assert_eq!(said, 2);
        world.inbox.withdraw();
        let answer = crate::ready::set_round::Answer { began_ns, said, room: 8 };
        let since = lock(&world.set.state).ready.begin_round();
        let found = world.after_pause(&mut events, since, answer);
        assert_eq!(found, if session_first { [0, 100] } else { [100, 0] });
    }
}

#[test]
fn what_is_still_ready_goes_behind_what_came_since() {
    let world = World::joined(3, Wait::Park, bit::IN);
    let (mut near, _far) = beside(&world, bit::IN);
    world.publish(2);
    assert_eq!(data(&world.now()), [2]);
    near.write_all(b"x").unwrap();
    // Like in the kernel, the session went behind all others when it was reported, and before those
    // that came afterwards.
    assert_eq!(data(&world.now()), [2, 100]);
    world.publish(0);
    assert_eq!(data(&world.now()), [2, 100, 0]);
    world.publish(1);
    let turns: Vec<u64> =
        (0..8).flat_map(|_| data(&world.wait(1, Some(LONG), None).unwrap())).collect();
    for data in [2, 100, 0, 1] {
        assert!(turns.contains(&data), "{turns:?}");
    }
}
