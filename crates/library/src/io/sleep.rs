//! Waiting for one session: spinning as the policy allows, then sleeping on its bell.
//!
//! The protocol thread rings at an event of the kernel's descriptor, so the bell is enough. Waiting
//! for many is `set_wait`'s and `poll`'s. Read `docs/understand/streams.md`, "Waiting".

use crate::host::Interrupt;
use crate::host::epoll::bit;
use crate::host::lock::lock;
use crate::io::placement::Room;
use crate::process::library::library;
use crate::session::directions::{RxPhase, TxPhase};
use crate::session::{Session, worth_waking_for};
use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;
use sojourn_shm::Deadline;
use sojourn_shm::futex::Woken;
use sojourn_shm::wait::{Policy, Spun};
use sojourn_stream::Bell;
use std::sync::MutexGuard;

/// Sleeps without a deadline are cut into pieces of this length.
const LONG: Duration = Duration::from_secs(3600);
/// The same, for bytes that a peer owes. Nobody watches the descriptor of a session that is on its
/// way home, so the sleeper looks itself whether the peer has died.
const OWED: Duration = Duration::from_millis(20);
/// The same, for bytes that the peer says are in the kernel: a segment that is under way.
const UNDER_WAY: Duration = Duration::from_millis(1);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There may be something: look.
    Look,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran that ends the call.
    Interrupted,
    /// A signal handler ran after which the call is restarted, if it has nothing to show yet.
    Restart,
}

impl Session {
    /// Waits until a look at the receiving side is worth while, or bytes are in `room`.
    pub(crate) fn wait_readable(&self, deadline: Deadline, room: &Room<'_>) -> Waited {
        let Some(stream) = self.stream() else { return Waited::Look };
        let (phase, seen, datagrams) = {
            let rx = lock(&self.rx);
            (rx.phase, rx.seen_news, rx.datagrams.clone())
        };
        let is_datagram = self.is_datagram();
        let wait = Wait {
            deadline,
            piece: match phase {
                RxPhase::Residue if stream.peer_flushed().is_some() => UNDER_WAY,
                RxPhase::Residue => OWED,
                _ => LONG,
            },
            peer_cpu: stream.peer_cpu_writing(),
            // Coming from the kernel, bytes show as an event; from the ring, as bytes.
            ready: &|| {
                self.turn_for(room) > 0
                    || self.rx_kernel_event.load(Ordering::Relaxed)
                    || match phase {
                        RxPhase::Home | RxPhase::Reset => true,
                        RxPhase::Joined | RxPhase::Ring if is_datagram => {
                            let queue = datagrams.as_ref();
                            stream.is_frozen()
                                || queue.is_some_and(|queue| lock(queue).is_readable())
                        }
                        RxPhase::Joined => stream.peer_uses_ring() || stream.is_frozen(),
                        RxPhase::Ring => stream.may_read(),
                        RxPhase::Residue => stream.flush_news() != seen,
                    }
            },
            announce: &|| stream.announce_reader(Bell::OnFutex),
            sleep: &|said, limit| stream.sleep_reader(said, limit),
            packets: self.is_delegated().then_some((self, bit::IN)),
            withdraw: &|| stream.withdraw_reader(),
        };
        let waited = wait.run(self.rx_policy());
        stream.set_cpu(self.rx_policy().cpu());
        waited
    }

    /// Waits until there is room for `at_least` bytes, which must go in one piece, and for as many
    /// of `wanted` as is worth waking for.
    pub(crate) fn wait_writable(
        &self,
        deadline: Deadline,
        at_least: usize,
        wanted: usize,
    ) -> Waited {
        let Some(stream) = self.stream() else { return Waited::Look };
        let room = wanted.min(worth_waking_for(&stream)).max(at_least).max(1);
        let phase = lock(&self.tx).phase;
        let wait = Wait {
            deadline,
            // A Unix peer that shuts its reading side down makes no room: only a send hears of it.
            piece: if phase == TxPhase::Flushing { OWED } else { LONG },
            peer_cpu: stream.peer_cpu_reading(),
            ready: &|| {
                self.turns_net();
                self.tx_kernel_event.load(Ordering::Relaxed)
                    || match phase {
                        TxPhase::Ring => stream.may_write(room),
                        TxPhase::Flushing => !self.is_flushing.load(Ordering::SeqCst),
                        TxPhase::Home | TxPhase::Joined => true,
                    }
            },
            announce: &|| stream.announce_writer(Bell::OnFutex, room),
            sleep: &|said, limit| stream.sleep_writer(said, limit),
            packets: self.is_delegated().then_some((self, bit::OUT)),
            withdraw: &|| stream.withdraw_writer(),
        };
        let waited = wait.run(self.tx_policy());
        stream.set_cpu(self.tx_policy().cpu());
        waited
    }
}

/// One wait.
struct Wait<'a> {
    deadline: Deadline,
    /// Sleeps at once for so long, at most.
    piece: Duration,
    peer_cpu: u16,
    ready: &'a dyn Fn() -> bool,
    announce: &'a dyn Fn() -> u32,
    sleep: &'a dyn Fn(u32, Option<Duration>) -> Woken,
    /// It is packets that bring what is waited for: of that session, in that direction.
    packets: Option<(&'a Session, u32)>,
    withdraw: &'a dyn Fn(),
}

impl Wait<'_> {
    /// Whether the time is up. A futex without a time limit is restarted by the kernel after a
    /// handler that wants that; one with a limit never is.
    fn sleep_once(&self, said: u32) -> bool {
        let left = self.deadline.left();
        let limit = left.map_or(self.piece, |left| left.min(self.piece));
        let sleep = || (self.sleep)(said, Some(limit));
        let woken = match self.packets {
            Some((session, asked)) => session.sleep_for_packets(asked, limit, self.ready, &sleep),
            None => sleep(),
        };
        woken == Woken::TimedOut && left == Some(limit)
    }

    fn run(&self, mut policy: MutexGuard<'_, Policy>) -> Waited {
        let host = library().host();
        host.wait_begins();
        // A further look takes packets again, and sends what could wait for the program's answer.
        let is_found = Cell::new(false);
        let look = || {
            is_found.set((self.ready)());
            is_found.get() || host.interrupt() != Interrupt::None
        };
        let spun = match self.packets {
            Some((session, asked)) => {
                let has_asked =
                    asked == bit::IN && session.has_asked.swap(false, Ordering::Relaxed);
                policy.spin_far(has_asked, self.deadline, look)
            }
            None => policy.spin(self.peer_cpu, self.deadline, look),
        };
        let mut timed_out = self.deadline.is_over();
        if spun == Spun::GaveUp && !timed_out && host.interrupt() == Interrupt::None {
            policy.slept();
            drop(policy);
            let said = (self.announce)();
            if !(self.ready)() && host.interrupt() == Interrupt::None {
                timed_out = self.sleep_once(said);
            }
            (self.withdraw)();
        }
        let interrupt = host.interrupt();
        host.wait_ends();
        if is_found.get() || (self.ready)() {
            return Waited::Look;
        }
        match interrupt {
            Interrupt::Break => Waited::Interrupted,
            // As in the kernel: a call with a time limit is not restarted (signal(7)).
            Interrupt::Restart if self.deadline != Deadline::NEVER => Waited::Interrupted,
            Interrupt::Restart => Waited::Restart,
            _ if timed_out => Waited::TimedOut,
            _ => Waited::Look,
        }
    }
}
