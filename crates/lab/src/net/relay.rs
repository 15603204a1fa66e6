//! The thread between the two ends of a link: takes frames at one end and sends them at the other
//! when `conditions` says so.
//!
//! The thread ends when its owner drops the relay or dies, as it is a thread of the owner's
//! process.

use super::conditions::{Channel, Conditions, Counts};
use super::packet::PacketSocket;
use anyhow::Result;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Largest number of frames taken from one end before the other end gets its turn.
const BATCH: usize = 64;
const FRAME_BYTES_MAX: usize = 1 << 17;

/// The state that the owner and the thread share: conditions and counters of both directions.
#[derive(Debug)]
struct Shared {
    conditions: Mutex<[Conditions; 2]>,
    counts: Mutex<[Counts; 2]>,
}

/// A running relay.
#[derive(Debug)]
pub(super) struct Relay {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay between two sockets: direction 0 is from `ends[0]` to `ends[1]`.
    pub(super) fn start(
        ends: [PacketSocket; 2],
        seed: u64,
        conditions: Conditions,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            conditions: Mutex::new([conditions; 2]),
            counts: Mutex::new([Counts::default(); 2]),
        });
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let worker = Worker {
            ends,
            channels: [Channel::new(seed), Channel::new(seed ^ 0x5eed_0f0f_7d1e_c710)],
            shared: Arc::clone(&shared),
            stop: Arc::clone(&stop),
            buffer: vec![0; FRAME_BYTES_MAX],
        };
        let thread = std::thread::Builder::new().name("lab-link".into()).spawn(|| worker.run())?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    pub(super) fn set_conditions(&self, direction: usize, conditions: Conditions) {
        let mut both = self.shared.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        both[direction] = conditions;
    }

    pub(super) fn counts(&self, direction: usize) -> Counts {
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner)[direction]
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    ends: [PacketSocket; 2],
    channels: [Channel; 2],
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Worker {
    fn run(mut self) {
        // Waits end when they are due instead of up to 50 µs later, the default slack (prctl(2),
        // `PR_SET_TIMERSLACK`).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        while !self.wait() {
            self.take();
            self.deliver();
        }
    }

    /// Waits until a frame arrives or is due. Returns true if the thread has to stop.
    fn wait(&self) -> bool {
        let due = self.channels.iter().filter_map(Channel::next_due).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut watched = [
            PollFd::new(&*self.stop, PollFlags::IN),
            PollFd::new(&self.ends[0], PollFlags::IN),
            PollFd::new(&self.ends[1], PollFlags::IN),
        ];
        // An interrupted wait is a short wait.
        let _ = poll(&mut watched, timeout.as_ref());
        watched[0].revents().contains(PollFlags::IN)
    }

    fn take(&mut self) {
        let conditions = *self.shared.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        for (direction, channel) in self.channels.iter_mut().enumerate() {
            for _ in 0..BATCH {
                let Some(len) = self.ends[direction].receive(&mut self.buffer) else { break };
                channel.offer(Instant::now(), &self.buffer[..len], &conditions[direction]);
            }
        }
    }

    fn deliver(&mut self) {
        for (direction, channel) in self.channels.iter_mut().enumerate() {
            let far = &self.ends[1 - direction];
            while let Some(frame) = channel.arrived(Instant::now()) {
                match far.send(&frame) {
                    true => channel.counts.delivered += 1,
                    false => channel.counts.refused += 1,
                }
            }
        }
        let mut counts = self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts = [self.channels[0].counts, self.channels[1].counts];
    }
}
