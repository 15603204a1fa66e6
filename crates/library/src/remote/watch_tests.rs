//! The watchers for packets, and the time at which the thread watches again.

use super::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

const DATA: u64 = 7;
const TICK: u64 = 8;
const STEP: u64 = PERIOD.as_micros() as u64 / 2;

struct World {
    watch: Watch,
    /// Stands for a packet socket; there is a packet.
    _socket: OwnedFd,
}

impl World {
    fn new() -> Self {
        let engine = Engine::new(|_| {});
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let watch = Watch::new(&engine, set.into(), DATA, TICK).unwrap();
        let socket = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        watch.add(socket.as_fd()).unwrap();
        Self { watch, _socket: socket }
    }

    /// Returns true if the thread hears of the packet.
    fn thread_hears(&self) -> bool {
        let mut events = Vec::with_capacity(4);
        let spare = rustix::buffer::spare_capacity(&mut events);
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(self.watch.set(), spare, Some(&none)).unwrap();
        events.iter().any(|event| event.data.u64() == DATA)
    }

    /// Returns true if a packet wakes a thread that sleeps on the set of packet sockets.
    fn packets_wake(&self) -> bool {
        let mut events = Vec::with_capacity(4);
        let spare = rustix::buffer::spare_capacity(&mut events);
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.watch.packets, spare, Some(&none)).unwrap() > 0
    }

    /// Calls have looked for so long that the packet sockets are in no set. When that was.
    fn take_out(&self) -> u64 {
        let now = self.spin();
        assert!(!self.watch.tick(now));
        assert!(!self.packets_wake());
        now
    }

    /// Calls look again and again.
    fn spin(&self) -> u64 {
        (1..5).map(|step| step * STEP).inspect(|now| self.watch.looked(*now)).last().unwrap()
    }
}

#[test]
fn the_thread_watches_at_first_and_a_single_look_changes_nothing() {
    let world = World::new();
    assert!(world.thread_hears());
    world.watch.looked(1_000_000);
    assert!(world.thread_hears());
}

#[test]
fn while_calls_look_the_thread_does_not_hear() {
    let world = World::new();
    let now = world.spin();
    assert!(!world.thread_hears());
    assert!(world.watch.will_look_again());
    assert!(!world.watch.tick(now + STEP));
    assert!(!world.thread_hears(), "one has looked just now");
    assert!(world.watch.tick(now + 2 * STEP), "it must look itself");
    assert!(world.thread_hears());
    assert!(!world.watch.will_look_again());
}

#[test]
fn one_that_sleeps_watches_as_long_as_it_sleeps() {
    let world = World::new();
    let watches = world.watch.begin_sleep(true);
    assert!(watches);
    assert!(!world.thread_hears());
    assert!(world.watch.tick(1_000_000), "what was left for later, the thread does");
    assert!(!world.thread_hears());
    assert!(!world.watch.will_look_again());
    world.watch.end_sleep(watches);
    world.watch.tick(2_000_000);
    assert!(world.thread_hears(), "it has gone and nobody looks");
}

#[test]
fn a_second_one_relies_on_the_first_and_then_on_the_thread() {
    let world = World::new();
    let first = world.watch.begin_sleep(true);
    let second = world.watch.begin_sleep(true);
    assert!(first && !second);
    assert!(!world.thread_hears());
    world.watch.end_sleep(first);
    assert!(world.thread_hears(), "at once");
    let now = world.spin();
    assert!(world.thread_hears(), "calls that look cannot be relied on by one that sleeps");
    world.watch.end_sleep(second);
    world.watch.looked(now + 1);
    assert!(!world.thread_hears());
}

#[test]
fn one_that_cannot_watch_leaves_it_to_the_thread() {
    let world = World::new();
    world.spin();
    assert!(!world.thread_hears());
    let watches = world.watch.begin_sleep(false);
    assert!(!watches);
    assert!(world.thread_hears());
    world.watch.end_sleep(watches);
}

#[test]
fn while_calls_look_and_none_sleeps_the_packet_sockets_are_in_no_set() {
    let world = World::new();
    assert!(world.packets_wake());
    let now = world.take_out();
    let watches = world.watch.begin_sleep(true);
    assert!(watches && world.packets_wake(), "the one that sleeps hears of what has come already");
    world.watch.end_sleep(watches);
    world.watch.looked(now + STEP);
    assert!(!world.watch.tick(now + STEP));
    assert!(world.packets_wake(), "one has slept");
    world.watch.looked(now + 2 * STEP);
    assert!(!world.watch.tick(now + 2 * STEP));
    assert!(!world.packets_wake(), "none has any more");
}

#[test]
fn the_packet_sockets_are_back_before_the_thread_watches() {
    let world = World::new();
    let now = world.take_out();
    assert!(world.watch.tick(now + 2 * STEP));
    assert!(world.thread_hears());
    world.take_out();
    let watches = world.watch.begin_sleep(false);
    assert!(world.thread_hears(), "for one that cannot watch");
    world.watch.end_sleep(watches);
}

#[test]
fn while_one_sleeps_the_packet_sockets_stay() {
    let world = World::new();
    let first = world.watch.begin_sleep(true);
    let now = world.spin();
    world.watch.take_out();
    assert!(world.packets_wake());
    let second = world.watch.begin_sleep(true);
    world.watch.end_sleep(first);
    world.watch.looked(now + 1);
    world.watch.take_out();
    assert!(world.packets_wake(), "one relies on the thread");
    world.watch.end_sleep(second);
}

#[test]
fn a_socket_comes_and_goes_while_the_others_are_in_no_set() {
    let world = World::new();
    let now = world.take_out();
    let more = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    world.watch.add(more.as_fd()).unwrap();
    world.watch.remove(more.as_fd());
    world.watch.remove(world._socket.as_fd());
    assert!(world.watch.tick(now + 2 * STEP));
    assert!(!world.packets_wake(), "there is none left");
}

#[test]
fn who_is_about_to_sleep_hears_whoever_takes_the_sockets_out_meanwhile() {
    let world = World::new();
    world.spin();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.watch.looked(4 * STEP);
                world.watch.take_out();
            }
        });
        for round in 0..20_000 {
            let watches = world.watch.begin_sleep(round % 2 == 0);
            assert!(if watches { world.packets_wake() } else { world.thread_hears() }, "{round}");
            world.watch.end_sleep(watches);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
