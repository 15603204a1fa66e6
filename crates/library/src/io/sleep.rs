//! Waiting for one session: spinning as the policy allows, then sleeping on the session's bell.
//!
//! The protocol thread rings the bell at an event of the kernel's descriptor, so the sleeper need
//! not sleep in the kernel as well. Not here: waiting for several descriptors (`ready::set_wait`,
//! `ready::poll`). Read `docs/understand/streams.md`, "Waiting".

use crate::host::epoll::bit;
use crate::host::lock::lock;
use crate::host::{Host, Interrupt};
use crate::io::placement::Room;
use crate::process::library::OwnSession;
use crate::session::directions::{RxPhase, TxPhase, switch};
use crate::session::transport::Transport;
use crate::session::worth_waking_for;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;
use sojourn_shm::Deadline;
use sojourn_shm::futex::Woken;
use sojourn_shm::wait::{Policy, Spun};
use sojourn_stream::{Bell, Stream};
use std::sync::MutexGuard;

/// The longest single sleep for bytes that a peer owes. Nobody watches the descriptor of a session
/// that is on its way home, so the sleeper itself looks whether the peer has died.
const OWED: Duration = Duration::from_millis(20);
/// The longest single sleep for bytes that the peer has put into the kernel: a TCP segment is under
/// way, and no bell rings when it arrives; and for memory that another thread of the program has
/// been lent.
const UNDER_WAY: Duration = Duration::from_millis(1);

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There may be something: the caller looks again.
    Look,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran that ends the call with `EINTR`.
    Interrupted,
    /// A signal handler ran with `SA_RESTART`: the call starts again, unless it has a result
    /// already.
    Restart,
}

/// What a thread that waits to receive goes on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// The peer uses the ring: a call that receives empties the kernel then, and reads the ring.
    Switch,
    /// There are bytes. A poll receives nothing, so the switch alone would wake it in vain, again
    /// and again.
    Bytes,
}

/// Returns true if a stream has what a receive waits for, or its phase is about to change.
fn is_readable(phase: RxPhase, transport: Transport<'_>, stream: &Stream, until: Until) -> bool {
    match (phase, transport) {
        (RxPhase::Home | RxPhase::Reset, _) => true,
        (RxPhase::Joined, Transport::Local(_)) if until == Until::Bytes => {
            stream.may_read() || stream.is_frozen()
        }
        (RxPhase::Joined, _) => stream.peer_uses_ring() || stream.is_frozen(),
        (RxPhase::Ring, Transport::Local(local)) => !local.has_lent(stream) && stream.may_read(),
        (RxPhase::Ring, _) => stream.may_read(),
        (RxPhase::Residue(residue), _) => stream.flush_news() != residue.seen_news,
    }
}

impl OwnSession<'_> {
    /// Sends home a session of one host that has no room, if the program has limited the time for
    /// which that may last (`TCP_USER_TIMEOUT`): the kernel ends the connection when it is over.
    /// Returns true if the session was away.
    #[cold]
    pub(in crate::io) fn leave_to_be_timed(self) -> bool {
        let is_timed = self.has_user_timeout.load(Ordering::Relaxed)
            && self.local().is_some()
            && self.tx_state.load(Ordering::SeqCst) == switch::RING
            && !self.is_leaving();
        if is_timed {
            self.library.go_home_with_control(self.number());
        }
        is_timed
    }

    /// Waits until a look at the receiving side may find something, or bytes are in `room`.
    pub(crate) fn wait_readable(self, deadline: Deadline, room: &Room<'_>) -> Waited {
        self.wait_until(Until::Switch, deadline, room)
    }

    /// Waits as [`OwnSession::wait_readable`] does, for a call that receives nothing.
    pub(crate) fn wait_for_bytes(self, deadline: Deadline) -> Waited {
        self.wait_until(Until::Bytes, deadline, &Room::none())
    }

    fn wait_until(self, until: Until, deadline: Deadline, room: &Room<'_>) -> Waited {
        let Some(stream) = self.stream() else { return Waited::Look };
        let (phase, datagrams) = {
            let rx = lock(&self.rx);
            (rx.phase, rx.datagrams.clone())
        };
        let transport = self.transport();
        let is_lent = self.local().is_some_and(|local| local.has_lent(&stream));
        let host = self.library.host();
        let wait = Wait {
            host,
            deadline,
            piece: match phase {
                RxPhase::Residue(_) if stream.peer_flushed().is_some() => Some(UNDER_WAY),
                RxPhase::Residue(_) => Some(OWED),
                _ if is_lent => Some(UNDER_WAY),
                _ => None,
            },
            peer_cpu: stream.peer_cpu_writing(),
            // Bytes show as an event if they come through the kernel, and as bytes if through the
            // ring.
            ready: &|| {
                self.turn_for(room) > 0
                    || self.rx_kernel_event.load(Ordering::Relaxed)
                    || match (phase, transport) {
                        (RxPhase::Joined | RxPhase::Ring, Transport::Udp(_)) => {
                            let queue = datagrams.as_ref();
                            stream.is_frozen()
                                || queue.is_some_and(|queue| lock(queue).is_readable())
                        }
                        _ => is_readable(phase, transport, &stream, until),
                    }
            },
            announce: &|| stream.announce_reader(Bell::OnFutex),
            sleep: &|said, limit| {
                stream.sleep_reader(said, limit, |word, said, limit| {
                    host.futex_wait(word, said, limit)
                })
            },
            packets: self
                .is_delegated()
                .then_some(AwaitedPackets { session: self, events: bit::IN }),
            withdraw: &|| stream.withdraw_reader(),
        };
        let waited = wait.run(|| self.rx_policy());
        stream.set_cpu(self.rx_policy().cpu());
        waited
    }

    /// Waits until there is room for `at_least` bytes, which must go in one piece, and for as many
    /// of `wanted` as [`worth_waking_for`] says.
    pub(crate) fn wait_writable(
        self,
        deadline: Deadline,
        at_least: usize,
        wanted: usize,
    ) -> Waited {
        let Some(stream) = self.stream() else { return Waited::Look };
        let room = wanted.min(worth_waking_for(&stream)).max(at_least).max(1);
        let phase = lock(&self.tx).phase;
        let is_reserved = || self.local().is_some_and(|local| local.has_reserved(&stream));
        let host = self.library.host();
        let wait = Wait {
            host,
            deadline,
            // While a flush goes on the sleep is short: a Unix peer that shuts down its reading
            // side makes no room in the kernel, and only a send finds that out.
            piece: match phase {
                TxPhase::Flushing => Some(OWED),
                _ if is_reserved() => Some(UNDER_WAY),
                _ => None,
            },
            peer_cpu: stream.peer_cpu_reading(),
            ready: &|| {
                self.turns_net();
                self.tx_kernel_event.load(Ordering::Relaxed)
                    || match phase {
                        TxPhase::Ring => !is_reserved() && stream.may_write(room),
                        TxPhase::Flushing => !self.is_flushing.load(Ordering::SeqCst),
                        TxPhase::Home | TxPhase::Joined => true,
                    }
            },
            announce: &|| stream.announce_writer(Bell::OnFutex, room),
            sleep: &|said, limit| {
                stream.sleep_writer(said, limit, |word, said, limit| {
                    host.futex_wait(word, said, limit)
                })
            },
            packets: self
                .is_delegated()
                .then_some(AwaitedPackets { session: self, events: bit::OUT }),
            withdraw: &|| stream.withdraw_writer(),
        };
        let waited = wait.run(|| self.tx_policy());
        stream.set_cpu(self.tx_policy().cpu());
        waited
    }
}

/// The wait of a session for something that comes in packets.
struct AwaitedPackets<'a> {
    session: OwnSession<'a>,
    /// The direction, as the event that ends the wait.
    events: u32,
}

/// The parameters of one wait.
struct Wait<'a> {
    host: &'a dyn Host,
    deadline: Deadline,
    /// The longest single sleep; `None`: until the bell rings.
    piece: Option<Duration>,
    peer_cpu: u16,
    ready: &'a dyn Fn() -> bool,
    announce: &'a dyn Fn() -> u32,
    sleep: &'a dyn Fn(u32, Option<Duration>) -> Woken,
    packets: Option<AwaitedPackets<'a>>,
    withdraw: &'a dyn Fn(),
}

impl Wait<'_> {
    /// Sleeps once; returns true if the deadline has passed. Only a sleep that needs a limit has
    /// one: the kernel's timer costs a tenth of a sleep and its wake-up.
    fn sleep_once(&self, said: u32) -> bool {
        let left = self.deadline.left();
        let limit = left.into_iter().chain(self.piece).min();
        let sleep = || (self.sleep)(said, limit);
        let woken = match self.packets {
            Some(AwaitedPackets { session, events }) => {
                session.sleep_for_packets(events, limit, self.ready, &sleep)
            }
            None => sleep(),
        };
        woken == Woken::TimedOut && left.is_some() && left == limit
    }

    fn run<'p>(&self, policy: impl FnOnce() -> MutexGuard<'p, Policy>) -> Waited {
        let host = self.host;
        // Before the lock is taken: handlers that were put off run now.
        host.wait_begins();
        let mut policy = policy();
        // The result is kept: each further look would take in packets again, and would send
        // acknowledgements that could wait for the program's answer.
        let is_found = Cell::new(false);
        let look = || {
            is_found.set((self.ready)());
            is_found.get() || host.interrupt() != Interrupt::None
        };
        let spun = match self.packets {
            Some(AwaitedPackets { session, events }) => {
                let has_asked =
                    events == bit::IN && session.has_asked.swap(false, Ordering::Relaxed);
                policy.spin_far(has_asked, self.deadline, look)
            }
            None => policy.spin(self.peer_cpu, self.deadline, look),
        };
        let mut timed_out = self.deadline.is_over();
        if spun == Spun::GaveUp && !timed_out && host.interrupt() == Interrupt::None {
            policy.slept();
            drop(policy);
            // Announce, look, sleep, in this order: otherwise a ring between the look and the sleep
            // is lost.
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
            // signal(7): a socket call with a time limit is not restarted.
            Interrupt::Restart if self.deadline != Deadline::NEVER => Waited::Interrupted,
            Interrupt::Restart => Waited::Restart,
            _ if timed_out => Waited::TimedOut,
            _ => Waited::Look,
        }
    }
}
