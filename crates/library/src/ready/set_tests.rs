//! Sets as a program sees them, in one process, with the kernel's epoll and fake sessions.

use crate::host::epoll::bit;
use crate::host::epoll::op;
use crate::host::lock::lock;
use crate::ready::set::RemainingHolder;
use crate::ready::set_fakes::{LONG, World};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use sojourn_shm::wait::Wait;
use sojourn_stream::SlotNumber;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

const SHORT: Option<Duration> = Some(Duration::from_millis(30));

/// Waits until a thread sleeps in the kernel, by a look at its stack and not by the clock.
fn await_sleeper(tid: i32) {
    let (start, mut seen) = (Instant::now(), String::new());
    while start.elapsed() < LONG {
        let path = format!("/proc/self/task/{tid}/wchan");
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        let state = stat.rsplit(") ").next().unwrap().chars().next().unwrap();
        let place = std::fs::read_to_string(path).unwrap_or_default();
        if state == 'S' && (place.contains("poll") || place == "0" || place.is_empty()) {
            return;
        }
        seen = format!("{state} in {place}");
        thread::yield_now();
    }
    panic!("it does not sleep: {seen}");
}

/// Runs `sleeper` in a thread, and `then` when it sleeps; the sleeper's answer.
fn while_asleep<T: Send>(sleeper: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
    let tid = AtomicU32::new(0);
    thread::scope(|scope| {
        let asleep = scope.spawn(|| {
            tid.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::SeqCst);
            sleeper()
        });
        while tid.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        await_sleeper(tid.load(Ordering::SeqCst) as i32);
        then();
        asleep.join().unwrap()
    })
}

#[test]
fn sessions_and_kernel_descriptors_come_together() {
    let world = World::joined(2, Wait::Park, bit::IN);
    let (mut near, far) = UnixStream::pair().unwrap();
    world.control_fd(op::ADD, far.as_raw_fd(), (bit::IN, 100)).unwrap();
    assert_eq!(world.now(), []);
    world.publish(1);
    near.write_all(b"x").unwrap();
    let mut found = world.now();
    found.sort_unstable();
    assert_eq!(found, [(bit::IN, 1), (bit::IN, 100)]);
}

#[test]
fn timeouts_last_as_long_as_they_say() {
    for wait in [Wait::Park, Wait::Adaptive, Wait::Spin(None)] {
        let world = World::joined(1, wait, bit::IN);
        for mask in [None, Some(0)] {
            let start = Instant::now();
            assert_eq!(world.wait(4, SHORT, mask), Ok(vec![]));
            assert!(start.elapsed() >= Duration::from_millis(30), "{wait:?}");
        }
        assert_eq!(world.now(), []);
    }
}

#[test]
fn a_sleeper_is_woken_by_a_session() {
    for events in [bit::IN, bit::IN | bit::ET, bit::IN | bit::ONESHOT] {
        let world = World::joined(3, Wait::Park, events);
        let found = while_asleep(|| world.wait(4, Some(LONG), None), || world.publish(2));
        assert_eq!(found, Ok(vec![(bit::IN, 2)]));
    }
}

#[test]
fn a_sleeper_is_woken_by_a_kernel_descriptor() {
    let world = World::joined(3, Wait::Park, bit::IN);
    let (mut near, far) = UnixStream::pair().unwrap();
    world.control_fd(op::ADD, far.as_raw_fd(), (bit::IN, 100)).unwrap();
    let found = while_asleep(|| world.wait(4, Some(LONG), None), || near.write_all(b"x").unwrap());
    assert_eq!(found, Ok(vec![(bit::IN, 100)]));
}

#[test]
fn who_slept_before_the_first_session_joined_is_woken_by_it() {
    let world = World::new(1, Wait::Park);
    world.control(op::ADD, 0, bit::IN).unwrap();
    let found = while_asleep(
        || world.wait(4, Some(LONG), None),
        || {
            assert!(world.join(0));
            // The sleeper may still be where it was: then it is announced.
            world.publish(0);
        },
    );
    assert_eq!(found, Ok(vec![(bit::IN, 0)]));
}

#[test]
fn a_change_by_another_thread_is_an_edge_for_a_sleeper() {
    let world = World::joined(1, Wait::Park, bit::IN | bit::ET);
    world.publish(0);
    assert_eq!(world.now(), [(bit::IN, 0)]);
    let found = while_asleep(
        || world.wait(4, Some(LONG), None),
        || world.control(op::MOD, 0, bit::IN | bit::ET).unwrap(),
    );
    assert_eq!(found, Ok(vec![(bit::IN, 0)]));
}

#[test]
fn room_is_told_to_a_sleeper_after_a_send_found_none() {
    let world = World::joined(1, Wait::Park, bit::IN | bit::OUT | bit::ET);
    assert_eq!(world.now(), [(bit::OUT, 0)]);
    assert_eq!(world.now(), []);
    world.all[0].is_full.store(true, Ordering::SeqCst);
    world.set.full(&world, world.all[0].fd());
    let found = while_asleep(|| world.wait(4, Some(LONG), None), || world.make_room(0));
    assert_eq!(found, Ok(vec![(bit::OUT, 0)]));
}

#[test]
fn the_end_of_the_peer_comes_through_the_kernel() {
    let world = World::joined(1, Wait::Park, bit::IN | bit::RDHUP);
    assert_eq!(world.now(), []);
    world.all[0].peer.shutdown(std::net::Shutdown::Write).unwrap();
    let found = world.wait(4, Some(LONG), None).unwrap();
    assert_eq!(found, [(bit::IN | bit::RDHUP, 0)]);
    assert!(world.all[0].kernel_events.load(Ordering::SeqCst) > 0);
    assert_eq!(world.now(), found, "level-triggered: again");
}

#[test]
fn bytes_that_still_come_through_the_kernel_are_seen() {
    let world = World::joined(1, Wait::Park, bit::IN | bit::OUT | bit::ET);
    world.all[0].in_kernel.store(true, Ordering::SeqCst);
    assert_eq!(world.now(), [(bit::OUT, 0)]);
    assert_eq!(world.now(), []);
    (&world.all[0].peer).write_all(b"x").unwrap();
    assert_eq!(world.now(), [(bit::IN | bit::OUT, 0)]);
    assert_eq!(world.now(), []);
}

#[test]
fn room_in_the_kernel_is_told_where_only_the_sending_direction_is_home() {
    let world = World::joined(1, Wait::Park, bit::IN);
    let fake = &world.all[0];
    fake.is_full.store(true, Ordering::SeqCst);
    world.control_fd(op::MOD, fake.fd(), (bit::OUT, 0)).unwrap();
    assert_eq!(world.now(), []);
    fake.end.set_nonblocking(true).unwrap();
    while (&fake.end).write(&[0; 4096]).is_ok() {}
    fake.in_kernel.store(true, Ordering::SeqCst);
    world.set.ask_for_room(&world, fake.fd());
    assert_eq!(world.now(), []);
    fake.peer.set_nonblocking(true).unwrap();
    let drain = || while (&fake.peer).read(&mut [0; 4096]).is_ok() {};
    let found = while_asleep(|| world.wait(4, Some(LONG), None), drain);
    assert_eq!(found, Ok(vec![(bit::OUT, 0)]));
}

#[test]
fn going_home_gives_an_edge_for_what_the_kernel_has() {
    for events in [bit::IN, bit::IN | bit::ET] {
        let world = World::joined(1, Wait::Park, events);
        (&world.all[0].peer).write_all(b"x").unwrap();
        world.set.leave(world.all[0].fd());
        assert_eq!(world.now(), [(bit::IN, 0)]);
        let again = if events & bit::ET == 0 { vec![(bit::IN, 0)] } else { vec![] };
        assert_eq!(world.now(), again);
        // And out again.
        let mut byte = [0];
        (&world.all[0].end).read_exact(&mut byte).unwrap();
        assert!(world.join(0));
        assert_eq!(world.now(), []);
        world.publish(0);
        assert_eq!(world.now(), [(bit::IN, 0)]);
    }
}

#[test]
fn a_one_shot_is_one_shot_across_moves() {
    let events = bit::IN | bit::ONESHOT;
    let world = World::joined(1, Wait::Park, events);
    let fd = world.all[0].fd();
    world.publish(0);
    (&world.all[0].peer).write_all(b"x").unwrap();
    assert_eq!(world.now(), [(bit::IN, 0)]);
    world.set.leave(fd);
    assert_eq!(world.now(), [], "spent in the library, spent in the kernel");
    world.all[0].peer.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(world.now(), [], "not even a hang-up");
    world.control(op::MOD, 0, events).unwrap();
    let found = world.now();
    assert_eq!(found.len(), 1);
    assert_eq!(world.now(), []);
    assert!(world.join(0));
    assert_eq!(world.now(), [], "spent in the kernel, spent in the library");
}

#[test]
fn a_one_shot_that_is_not_known_yet_does_not_join() {
    let world = World::new(1, Wait::Park);
    let events = bit::IN | bit::ONESHOT;
    world.control(op::ADD, 0, events).unwrap();
    assert!(!world.join(0));
    assert!(!world.set.watch(world.all[0].fd()));
    assert!(!world.join(0));
    (&world.all[0].peer).write_all(b"x").unwrap();
    assert_eq!(world.now(), [(bit::IN, 0)]);
    world.control(op::MOD, 0, events).unwrap();
    assert_eq!(world.now(), [(bit::IN, 0)], "tagged now, translated back");
    assert_eq!(world.now(), []);
    assert!(world.set.watch(world.all[0].fd()));
    assert!(world.join(0));
}

#[test]
fn exclusive_registrations_can_move_and_cannot_be_changed() {
    let world = World::joined(1, Wait::Park, bit::IN | bit::EXCLUSIVE);
    world.publish(0);
    assert_eq!(world.now(), [(bit::IN, 0)]);
    assert_eq!(world.control(op::MOD, 0, bit::IN), Err(Errno::INVAL));
    (&world.all[0].peer).write_all(b"x").unwrap();
    world.set.leave(world.all[0].fd());
    assert_eq!(world.now(), [(bit::IN, 0)]);
    assert_eq!(world.control(op::MOD, 0, bit::IN), Err(Errno::INVAL));
}

#[test]
fn errors_are_the_kernels() {
    let world = World::joined(1, Wait::Park, bit::IN);
    assert_eq!(world.control(op::ADD, 0, bit::IN), Err(Errno::EXIST));
    assert_eq!(world.control_fd(op::ADD, 9999, (bit::IN, 0)), Err(Errno::BADF));
    assert_eq!(world.wait(0, None, None), Err(Errno::INVAL));
    world.control(op::DEL, 0, 0).unwrap();
    assert_eq!(world.control(op::DEL, 0, 0), Err(Errno::NOENT));
    assert_eq!(world.control(op::MOD, 0, bit::IN), Err(Errno::NOENT));
    world.publish(0);
    assert_eq!(world.now(), [], "not registered any more");
    world.control(op::ADD, 0, bit::IN).unwrap();
    assert!(world.join(0));
    assert_eq!(world.now(), [(bit::IN, 0)]);
}

#[test]
fn busy_sessions_and_busy_descriptors_leave_each_other_room() {
    let world = World::joined(3, Wait::Park, bit::IN);
    let (mut near, far) = UnixStream::pair().unwrap();
    world.control_fd(op::ADD, far.as_raw_fd(), (bit::IN, 100)).unwrap();
    near.write_all(b"x").unwrap();
    (0..3).for_each(|at| world.publish(at));
    for room in [1, 2] {
        let mut seen = [0; 4];
        let start = Instant::now();
        while seen.contains(&0) {
            assert!(start.elapsed() < LONG, "{seen:?}");
            for (_, data) in world.wait(room, Some(LONG), None).unwrap() {
                seen[if data == 100 { 3 } else { data as usize }] += 1;
            }
        }
    }
}

#[test]
fn a_handler_ends_the_wait_unless_something_is_ready() {
    for wait in [Wait::Park, Wait::Spin(None)] {
        let world = World::joined(1, wait, bit::IN);
        assert_eq!(world.now(), []);
        world.host.interrupt.store(true, Ordering::SeqCst);
        assert_eq!(world.wait(4, Some(LONG), None), Err(Errno::INTR));
        world.publish(0);
        assert_eq!(world.wait(4, Some(LONG), None), Ok(vec![(bit::IN, 0)]));
    }
}

#[test]
fn a_mask_is_set_by_the_kernel_for_the_whole_wait() {
    let world = World::joined(1, Wait::Spin(None), bit::IN);
    // A handler that ran before the mask held is none of this call's business.
    world.host.interrupt.store(true, Ordering::SeqCst);
    assert_eq!(world.wait(4, SHORT, Some(1)), Ok(vec![]));
    assert!(world.host.masked.load(Ordering::SeqCst) > 0);
    world.host.cuts_masked.store(true, Ordering::SeqCst);
    assert_eq!(world.wait(4, SHORT, Some(1)), Err(Errno::INTR));
    assert_eq!(world.wait(4, Some(Duration::ZERO), Some(1)), Err(Errno::INTR));
    world.publish(0);
    assert_eq!(world.wait(4, SHORT, Some(1)), Ok(vec![(bit::IN, 0)]));
}

#[test]
fn the_kernel_is_not_asked_each_time_while_sessions_are_busy() {
    let world = World::joined(1, Wait::Park, bit::IN);
    world.publish(0);
    world.wait(4, Some(LONG), None).unwrap();
    let (before, start) = (world.host.asks.load(Ordering::SeqCst), Instant::now());
    for _ in 0..1000 {
        world.wait(4, Some(LONG), None).unwrap();
    }
    let asks = world.host.asks.load(Ordering::SeqCst) - before;
    let most = start.elapsed().as_micros() as u32 / 32 + 2;
    assert!(asks <= most * 3 && asks > 0, "{asks} of at most {most} rounds");
}

#[test]
fn a_set_that_became_unfit_is_the_kernels_alone() {
    let world = World::joined(2, Wait::Park, bit::IN | bit::ONESHOT);
    world.set.leave(world.all[1].fd());
    assert_eq!(world.set.make_unfit(), [world.all[0].fd()]);
    world.set.leave(world.all[0].fd());
    assert!(!world.join(0));
    for at in 0..2 {
        (&world.all[at].peer).write_all(b"x").unwrap();
    }
    let mut found = world.now();
    found.sort_unstable();
    assert_eq!(found, [(bit::IN, 0), (bit::IN, 1)]);
}

#[test]
fn a_closed_number_is_forgotten() {
    let world = World::joined(2, Wait::Park, bit::IN);
    world.publish(0);
    world.publish(1);
    world.set.closed(world.all[0].fd(), RemainingHolder::None);
    assert_eq!(world.now(), [(bit::IN, 1)]);
    let mut numbers = world.set.close();
    numbers.sort_unstable();
    assert_eq!(numbers, [world.all[1].fd()]);
}

#[test]
fn a_closed_number_that_we_may_still_hold_leaves_nothing_in_the_kernels_set() {
    let world = World::new(2, Wait::Park);
    for at in 0..2 {
        world.control(op::ADD, at, bit::IN).unwrap();
        (&world.all[at].peer).write_all(b"x").unwrap();
    }
    // The description lives on, as in an offer that is on its way.
    world.set.closed(world.all[0].fd(), RemainingHolder::Sojourn);
    assert_eq!(world.now(), [(bit::IN, 1)]);
}

#[test]
fn a_descriptor_that_comes_with_word_for_us_is_reported_once() {
    let world = World::joined(1, Wait::Park, bit::IN);
    let (mut near, far) = UnixStream::pair().unwrap();
    world.control_fd(op::ADD, far.as_raw_fd(), (bit::IN, 100)).unwrap();
    world.now();
    near.write_all(b"x").unwrap();
    (&world.all[0].peer).write_all(b"x").unwrap();
    let mut found = world.now();
    found.sort_unstable();
    assert_eq!(found, [(bit::IN, 0), (bit::IN, 100)]);
}

/// Tests room for a single event, which events that are not the program's take whenever the kernel
/// is asked.
#[test]
fn a_session_is_not_hidden_by_what_takes_all_the_room() {
    let mut world = World::joined(1, Wait::Park, bit::IN);
    assert_eq!(world.now(), []);
    // The kernel has two such events, in this order: the session's own and the inbox's.
    world.all[0].peer.write_all(b"x").unwrap();
    world.inbox.announce();
    world.publish(0);
    world.inbox.withdraw();
    let asked_ns = |world: &World, ns| lock(&world.set.state).asked_ns = ns;
    // First the kernel is not asked, then it is.
    for ns in [u64::MAX, 0] {
        asked_ns(&world, ns);
        assert_eq!(world.wait(1, Some(Duration::ZERO), None), Ok(vec![(bit::IN, 0)]), "{ns}");
    }
}

/// Tests the same room with a descriptor of the program's own behind such events.
#[test]
fn a_descriptor_is_not_hidden_by_what_takes_all_the_room() {
    let mut world = World::joined(8, Wait::Park, bit::RDHUP);
    let (mut near, far) = UnixStream::pair().unwrap();
    world.control_fd(op::ADD, far.as_raw_fd(), (bit::IN, 100)).unwrap();
    assert_eq!(world.now(), []);
    for fake in &mut world.all {
        fake.peer.write_all(b"x").unwrap();
    }
    near.write_all(b"x").unwrap();
    assert_eq!(world.wait(1, Some(Duration::ZERO), None), Ok(vec![(bit::IN, 100)]));
}

#[test]
fn one_wait_reports_nothing_twice_while_it_moves() {
    let world = World::joined(1, Wait::Park, bit::IN);
    let mut bytes = world.all[0].peer.try_clone().unwrap();
    bytes.write_all(b"x").unwrap();
    // Ready in ring and kernel both, and moving all the time.
    world.publish(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                world.set.leave(world.all[0].fd());
                assert!(world.join(0));
            }
        });
        let most =
            (0..20_000).map(|_| world.wait(8, Some(Duration::ZERO), None).unwrap().len()).max();
        done.store(true, Ordering::SeqCst);
        assert_eq!(most, Some(1));
    });
}

#[test]
fn an_inbox_is_kept_as_long_as_a_session_has_it() {
    let world = World::joined(2, Wait::Park, bit::IN);
    let others = std::sync::Arc::strong_count(&world.inbox);
    // Taken out of the set, perhaps only for a moment.
    world.control(op::DEL, 1, 0).unwrap();
    assert_eq!(std::sync::Arc::strong_count(&world.inbox), others);
    world.control(op::ADD, 1, bit::IN).unwrap();
    assert!(world.set.join(world.all[1].fd(), &world.inbox, SlotNumber(1)));
    assert_eq!(std::sync::Arc::strong_count(&world.inbox), others);
    world.set.leave(world.all[0].fd());
    // More of them one after the other than a set can have at once.
    for _ in 0..40 {
        let inbox = crate::ready::set_fakes::inbox();
        assert!(world.set.join(world.all[0].fd(), &inbox, SlotNumber(5)));
        world.set.leave(world.all[0].fd());
    }
}
