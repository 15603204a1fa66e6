//! Threads that write, read, sleep and freeze at random: every byte of both directions arrives once
//! and in order, through the ring first and then through a kernel path, and nobody sleeps for ever.
//! Races of a few instructions are for the models (`loom_freeze`): chance seldom meets them here.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Random, inbox, pair_with, watchdog};
use rustix::event::{PollFd, PollFlags, poll};
use sojourn_stream::{Bell, Inbox, SlotNumber, Stop, Stream};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Condvar, Mutex};

fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The kernel's queue of one direction.
#[derive(Default)]
struct Kernel {
    bytes: Mutex<VecDeque<u8>>,
    changed: Condvar,
}

impl Kernel {
    fn write(&self, bytes: &[u8]) {
        self.bytes.lock().unwrap().extend(bytes);
        self.changed.notify_all();
    }

    /// Waits for some, at most `len`.
    fn read(&self, len: usize) -> Vec<u8> {
        let mut bytes = self.bytes.lock().unwrap();
        while bytes.is_empty() {
            bytes = self.changed.wait(bytes).unwrap();
        }
        let len = len.min(bytes.len());
        bytes.drain(..len).collect()
    }
}

/// One side: its stream, and the inbox it owns.
struct Side {
    stream: Stream,
    inbox: Arc<Inbox>,
}

const SLOT: SlotNumber = SlotNumber(4097);

impl Side {
    /// Freezes, and wakes everybody on both sides.
    fn freeze(&self) {
        self.stream.freeze();
        self.stream.notify_peer();
        if self.stream.wake_reader() | self.stream.wake_writer() {
            self.inbox.post_own(SLOT);
        }
    }

    fn sleep_on_inbox(&self, ready: impl Fn() -> bool) {
        self.inbox.take_ready(&mut |slot, _| assert_eq!(slot, SLOT));
        self.inbox.clear_event();
        self.inbox.announce();
        if !self.inbox.has_ready() && !ready() {
            let mut fds = [PollFd::from_borrowed_fd(self.inbox.ready_fd(), PollFlags::IN)];
            poll(&mut fds, None).unwrap();
        }
        self.inbox.withdraw();
    }

    fn await_bytes(&self, random: &mut Random) {
        let ready = || self.stream.available() != Ok(0);
        if random.below(2) == 0 {
            self.stream.announce_reader(Bell::OnInbox);
            return self.sleep_on_inbox(ready);
        }
        let expected = self.stream.announce_reader(Bell::OnFutex);
        if !ready() {
            self.stream.sleep_reader(expected, None, sojourn_shm::futex::wait);
        }
        self.stream.withdraw_reader();
    }

    fn await_room(&self, room: usize) {
        let expected = self.stream.announce_writer(Bell::OnFutex, room);
        if self.stream.room().is_ok_and(|now| now < room) {
            self.stream.sleep_writer(expected, None, sojourn_shm::futex::wait);
        }
        self.stream.withdraw_writer();
    }

    /// Writes bytes `0..total`: to the ring until it is frozen, then the leftover and the rest to
    /// the kernel.
    fn write_all(&self, total: u64, kernel: &Kernel, freeze_at: u64, seed: u64) {
        let mut random = Random(seed);
        let mut position = 0;
        while position < total {
            if position >= freeze_at {
                self.freeze();
            }
            let longest = [3, 60, 3000, 20_000][random.below(4) as usize];
            let len = (1 + random.below(longest)).min(total - position);
            let bytes: Vec<u8> = (position..position + len).map(byte).collect();
            let (one, two) = bytes.split_at(random.below(len + 1) as usize);
            let at_least = (random.below(2) * len.min(4096)) as usize;
            match self.stream.write(&[IoSlice::new(one), IoSlice::new(two)], at_least) {
                Ok(written) => {
                    assert!(written >= at_least);
                    position += written as u64;
                }
                Err(Stop::Full) => self.await_room(at_least.max(1)),
                Err(Stop::Frozen) => break,
                Err(stop) => panic!("{stop}"),
            }
        }
        self.freeze();
        let (mut flushed, leftover) = (0, self.stream.own_leftover().unwrap());
        while flushed < leftover {
            let mut buf = vec![0; 1 + random.below(700) as usize];
            let len = self.stream.copy_own_leftover(flushed, &mut buf);
            kernel.write(&buf[..len]);
            flushed += len;
            self.stream.set_flushed(flushed);
        }
        kernel.write(&(position..total).map(byte).collect::<Vec<u8>>());
    }

    /// Reads and checks bytes `0..total`: from the ring until it is frozen, then from the kernel.
    fn read_all(&self, total: u64, kernel: &Kernel, freeze_at: u64, seed: u64) {
        let mut random = Random(seed);
        let mut position = 0;
        let mut memory = vec![0; 20_000];
        while position < total {
            if position >= freeze_at {
                self.freeze();
            }
            let longest = [3, 60, 3000, 20_000][random.below(4) as usize];
            let len = 1 + random.below(longest) as usize;
            let (one, two) = memory[..len].split_at_mut(random.below(len as u64 + 1) as usize);
            let mut bufs = [IoSliceMut::new(one), IoSliceMut::new(two)];
            let peek = random.below(8) == 0;
            match self.stream.read(&mut bufs, peek) {
                Ok(read) => {
                    let wrong = (0..read).find(|at| memory[*at] != byte(position + *at as u64));
                    assert_eq!(wrong, None, "at {position}");
                    position += if peek { 0 } else { read as u64 };
                }
                Err(Stop::Empty) => self.await_bytes(&mut random),
                Err(Stop::Frozen) => break,
                Err(stop) => panic!("{stop}"),
            }
        }
        while position < total {
            for found in kernel.read(1000) {
                assert_eq!(found, byte(position), "at {position}, from the kernel");
                position += 1;
            }
        }
        assert!(kernel.bytes.lock().unwrap().is_empty(), "more bytes than were written");
    }
}

fn both_ways(ring_bytes: [u32; 2], seed: u64) {
    let mut random = Random(seed);
    let inboxes = [inbox(), inbox()];
    let peers = [(Arc::clone(&inboxes[1][1]), SLOT), (Arc::clone(&inboxes[0][1]), SLOT)];
    let [a, b] = pair_with(ring_bytes, peers);
    let side = |stream: Stream, inbox: &[Arc<Inbox>; 2]| {
        stream.consent();
        Side { stream, inbox: Arc::clone(&inbox[0]) }
    };
    let sides = [side(a, &inboxes[0]), side(b, &inboxes[1])];
    sides.iter().for_each(|side| side.stream.use_ring());
    let (sides, kernels) = (Arc::new(sides), Arc::new([Kernel::default(), Kernel::default()]));
    let total = 1 + random.below(200_000);
    // Mostly somebody freezes in the middle; else the first writer that is done does.
    let mut at = || random.below(4 * total);
    let freezes = [at(), at(), at(), at()];
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (sides, kernels) = (Arc::clone(&sides), Arc::clone(&kernels));
            let (way, freeze_at) = (n / 2, freezes[n]);
            std::thread::spawn(move || match n % 2 {
                0 => sides[way].write_all(total, &kernels[way], freeze_at, seed + 1),
                _ => sides[1 - way].read_all(total, &kernels[way], freeze_at, seed + 2),
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn bytes_arrive_once_and_in_order_whoever_freezes_when() {
    let _guard = watchdog("stress", 120);
    for seed in 1..300 {
        both_ways([4096 << (seed % 4), 4096 << (seed % 5)], seed * 77_777);
    }
}

/// Slots of many peers through one inbox, taken by two threads that sleep.
#[test]
fn every_post_of_many_peers_is_seen() {
    let _guard = watchdog("inbox", 60);
    const PEERS: u32 = 3;
    const ROUNDS: u32 = 3000;
    let [owner, peer] = inbox();
    // A peer posts its slot again once it has been seen.
    let seen: Arc<(Mutex<Vec<u32>>, Condvar)> =
        Arc::new((Mutex::new(vec![0; PEERS as usize]), Condvar::new()));
    let posters: Vec<_> = (0..PEERS)
        .map(|n| {
            let (peer, seen) = (Arc::clone(&peer), Arc::clone(&seen));
            std::thread::spawn(move || {
                for round in 1..=ROUNDS {
                    peer.post_ready(SlotNumber(n * 21_845));
                    let mut counts = seen.0.lock().unwrap();
                    while counts[n as usize] < round {
                        counts = seen.1.wait(counts).unwrap();
                    }
                }
            })
        })
        .collect();
    let owners: Vec<_> = (0..2)
        .map(|_| {
            let (owner, seen) = (Arc::clone(&owner), Arc::clone(&seen));
            std::thread::spawn(move || {
                loop {
                    let mut counts = seen.0.lock().unwrap();
                    let mut some = false;
                    owner.take_ready(&mut |slot, _| {
                        counts[slot.index() / 21_845] += 1;
                        some = true;
                    });
                    if counts.iter().all(|count| *count >= ROUNDS) {
                        // The other sleeps on the event: raise it for good.
                        owner.post_own(SlotNumber(0));
                        seen.1.notify_all();
                        return;
                    }
                    if some {
                        seen.1.notify_all();
                        continue;
                    }
                    owner.clear_event();
                    drop(counts);
                    owner.announce();
                    if !owner.has_ready() {
                        let fd = owner.ready_fd();
                        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).unwrap();
                    }
                    owner.withdraw();
                }
            })
        })
        .collect();
    posters.into_iter().chain(owners).for_each(|thread| thread.join().unwrap());
}
