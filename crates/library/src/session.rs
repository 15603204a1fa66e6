//! A session that is, or was a moment ago, away from the kernel: its stream and where each
//! direction stands.
//!
//! Sessions live in a pool and are never freed, only used again; so a number read from the table is
//! always good to look at. Not here: the data calls (`receive`, `send`), moving out (`hot`,
//! `join`), going home (`home`). Read `docs/understand/streams.md` first.
//!
//! # Locks
//! `tx` before `rx` before nothing. Both are held for a few hundred nanoseconds by data calls and
//! for as long as it takes by a return; never while sleeping for the peer's data.

pub(crate) mod directions;
pub(crate) mod owed;
pub(crate) mod peeked;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod received;

use crate::host::kernel::PIPE_BUF;
use crate::host::lock::lock;
use crate::session::directions::{Receiver, RxPhase, Sender, TxPhase, switch};
use crate::session::owed::{rest_in_ring, rest_is_here};
use crate::session::progress::Away;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use sojourn_session::KindT;
use sojourn_shm::wait::{Policy, Wait};
use sojourn_stream::{Inbox, Stop, Stream};
use std::sync::{Arc, Mutex, MutexGuard};

/// Facts that do not change while a session is joined.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The library's own name for it, as the server knows it.
    pub(crate) local: u64,
    pub(crate) place: Option<(Arc<Inbox>, u32)>,
    /// The set whose inbox that is; 0: of those in none.
    pub(crate) set: u32,
    pub(crate) peer_pid: u32,
    /// The server's number of the stream.
    pub(crate) stream: u64,
    /// Every descriptor number of it in this process.
    pub(crate) numbers: Vec<i32>,
}

/// What the ring knows of readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// There is something to receive; if not, the kernel may still know of something.
    pub(crate) input: bool,
    /// There is room; `None`: the kernel decides.
    pub(crate) output: Option<bool>,
    /// An error that a receive will say.
    pub(crate) error: bool,
    /// Nothing here any more: the kernel alone decides.
    pub(crate) is_home: bool,
    /// Bytes may still come through the kernel.
    pub(crate) is_in_kernel: bool,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    slot: u32,
    /// A descriptor of it, for kernel calls.
    pub(crate) fd: AtomicI32,
    pub(crate) kind: AtomicU32,
    pub(crate) is_nonblocking: AtomicBool,
    /// Nanoseconds; 0: none.
    pub(crate) receive_timeout: AtomicU64,
    pub(crate) send_timeout: AtomicU64,
    /// The kernel reported something on the descriptor since last looked at.
    pub(crate) rx_kernel_event: AtomicBool,
    /// The same for senders, who look at other things and must not wait for a receiver to look.
    pub(crate) tx_kernel_event: AtomicBool,
    /// The sending direction is in `Flushing`.
    pub(crate) is_flushing: AtomicBool,
    /// The other side is the server's carrier, and the peer on another host: see `carried`.
    pub(crate) is_carried: AtomicBool,
    /// Of a TCP connection within the host whose bytes may still come through the kernel: see
    /// `send`.
    pub(crate) acknowledges: AtomicBool,
    /// It is carried by this process: see `net`.
    pub(crate) is_delegated: AtomicBool,
    /// The program has sent something since it last waited for an answer.
    pub(crate) has_asked: AtomicBool,
    /// Of a UDP socket: bits of `datagrams::form`.
    pub(crate) form: AtomicU32,
    /// Carried: `SO_KEEPALIVE` as the program has it, and whether an option was set before it was
    /// delegated: see `remote::options`.
    pub(crate) keepalive: AtomicBool,
    pub(crate) has_new_options: AtomicBool,
    /// Ended, and not let go of yet: see `settle`.
    pub(crate) is_over: AtomicBool,
    /// Counts what the slot has been used for.
    pub(crate) generation: AtomicU32,
    /// Of `tx`, readable without its lock: one of the constants of `switch`.
    pub(crate) tx_state: AtomicU32,
    pub(crate) tx: Mutex<Sender>,
    pub(crate) rx: Mutex<Receiver>,
    pub(crate) facts: Mutex<Facts>,
    /// It is time for a sample of `progress`.
    pub(crate) is_due: AtomicBool,
    pub(crate) progress: Mutex<Away>,
    rx_policy: Mutex<Policy>,
    tx_policy: Mutex<Policy>,
}

/// Room for which a writer of more than that is woken (bytes): a quarter of the ring's near part;
/// half of it if the reader has to stop reading for us.
pub(crate) fn worth_waking_for(stream: &Stream) -> usize {
    let part = if stream.reader_is_near() { 2 } else { 4 };
    (stream.near_bytes() as usize / part).max(1)
}

impl Session {
    pub(crate) fn new(slot: u32) -> Self {
        let policy = || Mutex::new(Policy::new(Wait::Park));
        Self {
            slot,
            fd: AtomicI32::new(-1),
            kind: AtomicU32::new(0),
            is_nonblocking: AtomicBool::new(false),
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            rx_kernel_event: AtomicBool::new(false),
            tx_kernel_event: AtomicBool::new(false),
            is_flushing: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            is_carried: AtomicBool::new(false),
            acknowledges: AtomicBool::new(false),
            is_delegated: AtomicBool::new(false),
            form: AtomicU32::new(0),
            keepalive: AtomicBool::new(false),
            has_new_options: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            tx_state: AtomicU32::new(switch::KERNEL),
            tx: Mutex::default(),
            rx: Mutex::default(),
            facts: Mutex::default(),
            is_due: AtomicBool::new(false),
            progress: Mutex::default(),
            rx_policy: policy(),
            tx_policy: policy(),
        }
    }

    /// Its index among the process's sessions.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn number(&self) -> i32 {
        self.fd.load(Ordering::Relaxed)
    }

    pub(crate) fn kind(&self) -> KindT {
        match self.kind.load(Ordering::Relaxed) {
            1 => KindT::Tcp,
            2 => KindT::Unix,
            4 => KindT::Udp,
            _ => KindT::Pipe,
        }
    }

    /// How to wait for this session's bytes and room.
    pub(crate) fn set_wait(&self, wait: Wait) {
        *lock(&self.rx_policy) = Policy::new(wait);
        *lock(&self.tx_policy) = Policy::new(wait);
    }

    pub(crate) fn rx_policy(&self) -> MutexGuard<'_, Policy> {
        lock(&self.rx_policy)
    }

    pub(crate) fn tx_policy(&self) -> MutexGuard<'_, Policy> {
        lock(&self.tx_policy)
    }

    /// A pipe's writer seldom waits on this session, and its peer learns where it runs only from
    /// its writes: that both are on one processor, where spinning never pays, must be known even
    /// so.
    #[inline]
    pub(crate) fn note_writers_cpu(&self, stream: &Stream) {
        if self.kind() == KindT::Pipe
            && let Ok(mut policy) = self.tx_policy.try_lock()
        {
            stream.set_cpu(policy.cpu());
        }
    }

    /// Room with which a session counts as writable (bytes): a pipe promises that the smallest
    /// writes go whole. Of a socket's ring some part must be free, as of the kernel's buffers: a
    /// writer that was woken for each little that is read would do little else. Those of a Unix
    /// socket go whole as well.
    pub(crate) fn room_wanted(&self, stream: &Stream) -> usize {
        match self.kind() {
            KindT::Pipe => PIPE_BUF,
            KindT::Unix => worth_waking_for(stream).max(PIPE_BUF),
            _ => worth_waking_for(stream),
        }
    }

    /// What the rings say. The kernel may know more, see [`Ready`].
    pub(crate) fn ready(&self) -> Ready {
        let (input, receives, is_in_kernel) = {
            let rx = lock(&self.rx);
            let mut is_in_kernel = !matches!(rx.phase, RxPhase::Home | RxPhase::Ring);
            let input = match (&rx.stream, rx.phase) {
                (Some(_), RxPhase::Ring | RxPhase::Joined) if self.is_datagram() => {
                    Some(self.has_datagram(&rx))
                }
                (Some(stream), RxPhase::Ring | RxPhase::Joined) => match stream.available() {
                    Ok(len) => Some(len > 0),
                    // A call will find out: it must be made.
                    Err(Stop::Violation) => Some(true),
                    // Not in the ring yet, or not any more: once home, the kernel decides.
                    Err(stop) => {
                        is_in_kernel |= stop == Stop::Frozen;
                        Some(false)
                    }
                },
                (Some(stream), RxPhase::Residue) => Some(rest_is_here(stream, &rx)),
                (Some(_), RxPhase::Reset) => Some(true),
                _ => None,
            };
            (input, rx.stream.is_some(), is_in_kernel)
        };
        let (output, sends) = {
            let tx = lock(&self.tx);
            let output = match (&tx.stream, tx.phase) {
                // Its buffer knows.
                (Some(_), TxPhase::Ring) if self.is_datagram() => None,
                (Some(stream), TxPhase::Ring) => match stream.room_in_all() {
                    Ok(room) => Some(room >= self.room_wanted(stream)),
                    Err(Stop::Violation) => Some(true),
                    Err(_) => None,
                },
                (Some(_), TxPhase::Flushing) => Some(false),
                _ => None,
            };
            (output, tx.stream.is_some())
        };
        Ready {
            input: input == Some(true),
            output,
            error: lock(&self.rx).phase == RxPhase::Reset,
            // A pipe's writer that has not switched yet has nothing to say of itself, but is not
            // home.
            is_home: !receives && !sends,
            is_in_kernel,
        }
    }

    /// Bells are to be posted to the inbox. Look at [`Session::ready`] again before sleeping.
    pub(crate) fn arm(&self, input: bool, output: bool) {
        if let Some(stream) = self.stream() {
            if input {
                stream.announce_reader(sojourn_stream::Bell::OnInbox);
            }
            if output {
                let room = self.room_wanted(&stream);
                stream.announce_writer(sojourn_stream::Bell::OnInbox, room);
            }
        }
    }

    pub(crate) fn stream(&self) -> Option<Arc<Stream>> {
        // One lock after the other: within one expression the first would still be held.
        let of_rx = lock(&self.rx).stream.clone();
        of_rx.or_else(|| lock(&self.tx).stream.clone())
    }

    /// Whether receives are the kernel's while the sending direction is not home yet.
    #[inline]
    pub(crate) fn receives_at_home(&self) -> bool {
        self.is_flushing.load(Ordering::Relaxed) && lock(&self.rx).phase == RxPhase::Home
    }

    /// The inbox and the slot in it that peers post to.
    pub(crate) fn place(&self) -> Option<(Arc<Inbox>, u32)> {
        lock(&self.facts).place.clone()
    }

    /// The set its inbox is for, counted from 1; 0 for none.
    pub(crate) fn set(&self) -> u32 {
        lock(&self.facts).set
    }

    /// The kernel reported an event on the descriptor.
    pub(crate) fn note_kernel_event(&self) {
        self.rx_kernel_event.store(true, Ordering::SeqCst);
        self.tx_kernel_event.store(true, Ordering::SeqCst);
    }

    /// Bytes that `FIONREAD` must count beside the kernel's.
    pub(crate) fn input_queue(&self) -> usize {
        let rx = lock(&self.rx);
        match (&rx.stream, rx.phase) {
            (Some(stream), RxPhase::Ring | RxPhase::Joined) if stream.peer_uses_ring() => {
                stream.available().unwrap_or(0)
            }
            (Some(stream), RxPhase::Residue) => rest_in_ring(stream, &rx),
            _ => 0,
        }
    }

    /// Bytes that `SIOCOUTQ` must count beside the kernel's. What a TCP peer has been handed counts
    /// as acknowledged, read or not.
    pub(crate) fn output_queue(&self) -> usize {
        let tx = lock(&self.tx);
        match (&tx.stream, tx.phase) {
            (Some(stream), TxPhase::Ring) if self.kind() == KindT::Unix => stream.pending(),
            (Some(stream), TxPhase::Flushing) => {
                stream.own_leftover().unwrap_or(0).saturating_sub(tx.flushed)
            }
            _ => 0,
        }
    }
}
