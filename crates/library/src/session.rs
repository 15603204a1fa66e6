//! A session that is, or was a moment ago, away from the kernel: its stream and the state of each
//! direction.
//!
//! Sessions live in a pool and are never freed, only used again, so a slot number read from the
//! table always leads to a session. Not here: the data calls (`io::receive`, `io::send`), moving
//! out (`policy::hot`, `moves::join`), going home (`moves::home`). Read
//! `docs/understand/streams.md` first.
//!
//! # Locks
//! `tx` is taken before `rx`, and `rx` before nothing. Data calls hold them for a few hundred
//! nanoseconds, a return for as long as it takes; no thread sleeps for the peer's data with one.

pub(crate) mod datagram;
pub(crate) mod directions;
pub(crate) mod identity;
pub(crate) mod owed;
pub(crate) mod peeked;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod received;
pub(crate) mod service;
pub(crate) mod signals;
pub(crate) mod transport;

use crate::fds::slot::{SetNumber, Slot};
use crate::host::epoll::bit;
use crate::host::kernel::PIPE_BUF;
use crate::host::lock::lock;
use crate::session::directions::{Receiver, RxPhase, Sender, TxPhase, switch};
use crate::session::identity::{Generation, InboxPlace};
use crate::session::service::Service;
use crate::session::signals::Signals;
use crate::session::transport::{Local, Transport, Transports};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use sojourn_pump::SessionNumber;
use sojourn_session::protocol::client::TokenT;
use sojourn_session::{KindT, LocalNumber, ProcessId, StreamNumber};
use sojourn_shm::wait::{Policy, Wait};
use sojourn_stream::{Stop, Stream};
use std::sync::{Arc, Mutex, MutexGuard};

/// Facts that do not change while a session is joined.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The library's own number for the session, by which the server knows it.
    pub(crate) local: LocalNumber,
    /// Where peers post to.
    pub(crate) place: Option<InboxPlace>,
    /// The epoll set that the inbox serves; if none, the sessions that are in no set.
    pub(crate) set: SetNumber,
    /// The number here of the peer's process; 0 if it has none.
    pub(crate) peer_pid: ProcessId,
    /// The protocol thread has been told of its end.
    pub(crate) peer_has_ended: bool,
    /// The server's number for the stream.
    pub(crate) stream: StreamNumber,
    /// The protocol server's name of the session, for other processes that hold it; `None` if it
    /// does not serve the session.
    pub(crate) token: Option<TokenT>,
    /// The `fork` epoch of the offer: as long as it is the process's, no child has the session.
    pub(crate) epoch: u32,
    /// Every descriptor number of the session in this process.
    pub(crate) numbers: Vec<i32>,
    /// When it joined, in nanoseconds of the monotonic clock.
    pub(crate) joined_ns: u64,
}

/// Readiness of the receiving direction.
struct InputReadiness {
    is_readable: bool,
    /// The direction uses the stream still.
    receives: bool,
    /// Bytes may still come through the kernel.
    is_in_kernel: bool,
    /// The next receive returns an error.
    is_reset: bool,
}

/// Readiness as far as the rings tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// There is something to receive in the ring; if not, the kernel may still have something.
    pub(crate) input: bool,
    /// The ring has room; `None`: the kernel decides, or nobody wants to know.
    pub(crate) output: Option<bool>,
    /// An error that the next receive returns.
    pub(crate) error: bool,
    /// Neither direction uses the stream any more: the kernel alone decides.
    pub(crate) is_home: bool,
    /// Bytes may still come through the kernel.
    pub(crate) is_in_kernel: bool,
    /// Other events of epoll(7) that hold: the peer's end, a hang-up, room in the priority band.
    pub(crate) others: u32,
}

/// A session's state in this process.
#[derive(Debug)]
pub struct Session {
    slot: Slot,
    /// One of its descriptors, for kernel calls.
    pub(crate) fd: AtomicI32,
    pub(crate) kind: AtomicU32,
    pub(crate) is_nonblocking: AtomicBool,
    /// Nanoseconds; 0: no timeout.
    pub(crate) receive_timeout: AtomicU64,
    pub(crate) send_timeout: AtomicU64,
    /// The program has limited the time for which bytes may stay unacknowledged
    /// (`TCP_USER_TIMEOUT`).
    pub(crate) has_user_timeout: AtomicBool,
    /// The kernel has reported something on the descriptor since a receiver last looked.
    pub(crate) rx_kernel_event: AtomicBool,
    /// The same for senders, which look at other things and must not depend on a receiver's look.
    pub(crate) tx_kernel_event: AtomicBool,
    /// The sending direction is in `Flushing`.
    pub(crate) is_flushing: AtomicBool,
    /// The sending direction has ended, and the session's sets have not heard of it.
    pub(crate) has_ended_sending: AtomicBool,
    /// The session is a pipe's writing end, which has nothing to receive.
    pub(crate) only_sends: AtomicBool,
    /// What carries the session's bytes.
    pub(crate) transports: Transports,
    /// The protocol server's part in the session: see `remote::served`.
    pub(crate) service: Service,
    /// Signals for I/O: see `signals`.
    pub(crate) signals: Signals,
    /// This process runs the session's engine: see `remote::net`.
    pub(crate) is_delegated: AtomicBool,
    /// The program has sent something since it last waited for an answer.
    pub(crate) has_asked: AtomicBool,
    /// The session has ended, and its slot is not free yet: see `settle`.
    pub(crate) is_over: AtomicBool,
    /// Counts the uses of the slot.
    generation: AtomicU32,
    /// The state of `tx`, readable without its lock: a constant of `switch`.
    pub(crate) tx_state: AtomicU32,
    pub(crate) tx: Mutex<Sender>,
    pub(crate) rx: Mutex<Receiver>,
    pub(crate) facts: Mutex<Facts>,
    /// Times of its layers were wanted at the last look, and when that was (ns): see `io::timed`.
    pub(crate) is_timed: AtomicBool,
    pub(crate) looked_at: AtomicU64,
    rx_policy: Mutex<Policy>,
    tx_policy: Mutex<Policy>,
}

/// Room (bytes) for which a writer that needs more is woken: a quarter of the ring's near part, or
/// half of it if the reader runs on the writer's processor and has to stop reading for the writer.
pub(crate) fn worth_waking_for(stream: &Stream) -> usize {
    let part = if stream.reader_is_near() { 2 } else { 4 };
    (stream.near_bytes() as usize / part).max(1)
}

impl Session {
    pub(crate) fn new(slot: Slot) -> Self {
        let policy = || Mutex::new(Policy::new(Wait::Park));
        Self {
            slot,
            fd: AtomicI32::new(-1),
            kind: AtomicU32::new(0),
            is_nonblocking: AtomicBool::new(false),
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            has_user_timeout: AtomicBool::new(false),
            rx_kernel_event: AtomicBool::new(false),
            tx_kernel_event: AtomicBool::new(false),
            is_flushing: AtomicBool::new(false),
            has_ended_sending: AtomicBool::new(false),
            only_sends: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            transports: Transports::default(),
            service: Service::default(),
            signals: Signals::default(),
            is_delegated: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            tx_state: AtomicU32::new(switch::KERNEL),
            tx: Mutex::default(),
            rx: Mutex::default(),
            facts: Mutex::default(),
            is_timed: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
            rx_policy: policy(),
            tx_policy: policy(),
        }
    }

    /// Returns the session's index in the process's pool.
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns the number by which the pump of this process knows the session.
    pub(crate) fn pump_number(&self) -> SessionNumber {
        self.slot.into()
    }

    /// Returns the use of the slot. It is another one as soon as the session is home.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Returns true if the slot's use is still this one. Under a lock of the session it stays so.
    #[inline]
    pub(crate) fn is_still(&self, generation: Generation) -> bool {
        self.generation.load(Ordering::Relaxed) == generation.0
    }

    /// Ends the use of the slot.
    pub(crate) fn end_use(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
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

    /// Returns the session's transport.
    #[inline]
    pub(crate) fn transport(&self) -> Transport<'_> {
        self.transports.used()
    }

    pub(crate) fn is_udp(&self) -> bool {
        matches!(self.transport(), Transport::Udp(_))
    }

    /// Returns the state of a session within the host; `None` for other sessions.
    #[inline]
    pub(crate) fn local(&self) -> Option<&Local> {
        self.transports.local()
    }

    /// Returns true if a call may wait: neither it nor the descriptor says that none must.
    #[inline]
    pub(crate) fn may_wait(&self, dont_wait: bool) -> bool {
        !dont_wait && !self.is_nonblocking.load(Ordering::Relaxed)
    }

    /// Sets how threads wait for this session's bytes and room.
    pub(crate) fn set_wait(&self, wait: Wait) {
        *lock(&self.rx_policy) = Policy::for_other_processes(wait);
        *lock(&self.tx_policy) = Policy::for_other_processes(wait);
    }

    pub(crate) fn rx_policy(&self) -> MutexGuard<'_, Policy> {
        lock(&self.rx_policy)
    }

    pub(crate) fn tx_policy(&self) -> MutexGuard<'_, Policy> {
        lock(&self.tx_policy)
    }

    /// Publishes the processor on which a pipe's writer runs. A pipe's writer seldom waits on this
    /// session, and the reader learns the processor only from writes. The reader has to know that
    /// both run on one processor, where spinning never pays.
    #[inline]
    pub(crate) fn note_writers_cpu(&self, stream: &Stream) {
        if self.kind() == KindT::Pipe
            && let Ok(mut policy) = self.tx_policy.try_lock()
        {
            stream.set_cpu(policy.cpu());
        }
    }

    /// Returns the room (bytes) from which on a session counts as writable. A pipe promises that
    /// writes of `PIPE_BUF` go whole, and Unix sockets keep to that, too. A socket's ring must be
    /// free to some part, like the kernel's buffers (`sk_stream_is_writeable`): a writer that is
    /// woken for every few bytes would do little else.
    pub(crate) fn room_wanted(&self, stream: &Stream) -> usize {
        match self.kind() {
            KindT::Pipe => PIPE_BUF,
            KindT::Unix => worth_waking_for(stream).max(PIPE_BUF),
            _ => worth_waking_for(stream),
        }
    }

    /// Tells what the rings know of readiness for the events `wanted`, those of epoll(7). The
    /// kernel may know more, see [`Ready`]. A direction that is not wanted is not looked at: each
    /// look takes a cache line from the peer's processor.
    pub(crate) fn ready_by_rings(&self, wanted: u32) -> Ready {
        if let Transport::Udp(_) = self.transport() {
            return self.ready_for_datagrams();
        }
        let input = self.input_readiness(wanted & bit::INPUT != 0);
        let (output, sends) = {
            let tx = lock(&self.tx);
            let is_wanted = wanted & bit::OUTPUT != 0;
            (is_wanted.then(|| self.output_readiness(&tx)).flatten(), tx.stream.is_some())
        };
        let has_bands = output == Some(true) && self.kind() == KindT::Unix;
        Ready {
            input: input.is_readable,
            output,
            error: input.is_reset,
            // A pipe's writer that has not switched to the ring yet says `None`, but is not home.
            is_home: !input.receives && !sends,
            is_in_kernel: input.is_in_kernel,
            others: if has_bands { bit::WRBAND } else { 0 },
        }
    }

    fn input_readiness(&self, is_wanted: bool) -> InputReadiness {
        let rx = lock(&self.rx);
        let mut is_in_kernel = !matches!(rx.phase, RxPhase::Home | RxPhase::Ring);
        let is_readable = match (&rx.stream, rx.phase) {
            (Some(_), RxPhase::Ring | RxPhase::Joined) if !is_wanted => false,
            // The carrier is about to bring the bytes, and a receive waits for it.
            (Some(_), RxPhase::Ring) if rx.is_promised() => true,
            (Some(stream), RxPhase::Ring | RxPhase::Joined) => match stream.available() {
                Ok(len) => len > 0,
                // The program's next call returns the violation, so it has to be made.
                Err(Stop::Violation) => true,
                // The peer has left, and this end is about to follow: what the peer owes is
                // readable as before.
                Err(Stop::Frozen) => {
                    is_in_kernel = true;
                    stream.peer_leftover().is_ok_and(|owed| owed > 0)
                }
                // The ring is not in use yet: the kernel decides.
                Err(_) => false,
            },
            (Some(stream), RxPhase::Residue(residue)) => residue.is_in_ring(stream),
            (Some(_), RxPhase::Reset) => true,
            _ => false,
        };
        InputReadiness {
            is_readable,
            receives: rx.stream.is_some(),
            is_in_kernel,
            is_reset: rx.phase == RxPhase::Reset,
        }
    }

    /// Returns true if the ring has room, false if it has none; `None` if the kernel decides.
    fn output_readiness(&self, tx: &Sender) -> Option<bool> {
        match (&tx.stream, tx.phase) {
            (Some(stream), TxPhase::Ring) => match stream.room_in_all() {
                Ok(room) => Some(room >= self.room_wanted(stream)),
                Err(Stop::Violation) => Some(true),
                Err(_) => None,
            },
            (Some(_), TxPhase::Flushing) => Some(false),
            _ => None,
        }
    }

    /// Returns the events that the kernel reports when there is room: of a Unix socket for both
    /// bands (`unix_poll`, net/unix/af_unix.c).
    pub(crate) fn room_events(&self) -> u32 {
        if self.kind() == KindT::Unix { bit::OUTPUT } else { bit::OUT | bit::WRNORM }
    }

    /// Asks the ring's peer for posts to the inbox.
    pub(crate) fn arm_by_rings(&self, input: bool, output: bool) {
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
        // Two statements: within one expression the lock of `rx` would still be held while `tx` is
        // taken.
        let of_rx = lock(&self.rx).stream.clone();
        of_rx.or_else(|| lock(&self.tx).stream.clone())
    }

    /// Returns true if the kernel serves receives while the sending direction is not home: it is
    /// still flushing, or the kernel refuses to read from a pipe's writing end.
    #[inline]
    pub(crate) fn receives_at_home(&self) -> bool {
        self.only_sends.load(Ordering::Relaxed)
            || self.is_flushing.load(Ordering::Relaxed) && lock(&self.rx).phase == RxPhase::Home
    }

    /// Returns the place where peers post to.
    pub(crate) fn place(&self) -> Option<InboxPlace> {
        lock(&self.facts).place.clone()
    }

    /// Returns the set that the inbox serves.
    pub(crate) fn set(&self) -> SetNumber {
        lock(&self.facts).set
    }

    /// Notes that the kernel has reported an event on the descriptor.
    pub(crate) fn note_kernel_event(&self) {
        self.rx_kernel_event.store(true, Ordering::SeqCst);
        self.tx_kernel_event.store(true, Ordering::SeqCst);
    }

    /// Counts the bytes of the rings that `FIONREAD` must add to the kernel's count.
    pub(crate) fn input_in_rings(&self) -> usize {
        // A pipe tells at its writing end, too, what it holds.
        let written = if self.kind() == KindT::Pipe { self.unread(true) } else { 0 };
        let rx = lock(&self.rx);
        let received = match (&rx.stream, rx.phase) {
            (Some(stream), RxPhase::Ring | RxPhase::Joined) if stream.peer_uses_ring() => {
                stream.available().unwrap_or(0)
            }
            (Some(stream), RxPhase::Residue(residue)) => residue.rest_in_ring(stream),
            _ => 0,
        };
        written + received
    }

    /// Counts the bytes that `SIOCOUTQ` must add to the kernel's count. Bytes that lie in a TCP
    /// peer's ring count as acknowledged, read or not.
    pub(crate) fn output_queue(&self) -> usize {
        self.unread(self.kind() == KindT::Unix)
    }

    /// Counts the bytes sent past the kernel that the peer has not read; those in the ring of a
    /// session that is away only if `counts_ring`.
    fn unread(&self, counts_ring: bool) -> usize {
        let tx = lock(&self.tx);
        match (&tx.stream, tx.phase) {
            (Some(stream), TxPhase::Ring) if counts_ring => stream.pending(),
            (Some(stream), TxPhase::Flushing) => {
                stream.own_leftover().unwrap_or(0).saturating_sub(tx.flushed)
            }
            _ => 0,
        }
    }
}
