//! The server's side of one connection: the state of one client that all threads share.
//!
//! A link is private memory of the server; the client can write only its `region`. The thread that
//! serves the client reads requests (`lane`); any thread that holds a token may answer (`reply`);
//! the control thread (`endpoint`) handles the socket. Nothing here waits for the client, ever.

use crate::control::{self, Batch, Inbox, Packet, Topic};
use crate::grant::Granted;
use crate::layout::{INLINE_WORDS, Region, Seq};
use crate::lock::lock;
use crate::proxy::ClientSocket;
use crate::rt::Reason;
use crate::rt::{Badge, Beside, ClientId, Credentials, FDS_MAX, GrantId};
use crate::shares::Budget;
use crate::thread::{Mailbox, Note};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_shm::park;
use std::sync::{Arc, Mutex};

/// The number of packets on the control socket, without a request between, that counts as a flood.
const PACKETS_MAX: u32 = 4096;
/// Batches of descriptors that may wait for their messages, per reply line.
const BATCHES_MAX: usize = 2;

/// One reply line: the outstanding call, and the buffers of its answer.
#[derive(Debug)]
pub(crate) struct ReplyLine {
    /// Sequence number of the outstanding call plus `1 << 32`, or `2 << 32` once it is claimed
    /// through the C interface, whose tokens can be copied; [`ANSWERING`] while its answer is
    /// published; 0 when the line is free.
    outstanding: AtomicU64,
    pub(crate) words: UnsafeCell<[u64; INLINE_WORDS]>,
    /// Tag and meta word of the complete answer.
    pub(crate) answer: UnsafeCell<Answer>,
    /// Lists of items and descriptors, lent to one answer after another.
    pub(crate) spare: UnsafeCell<Option<Box<Beside<'static>>>>,
}

// SAFETY: `words`, `answer` and `spare` are touched only by the holder of the token of the call
// outstanding on this line, and there is one such token at a time: `outstanding` goes from 0 to a
// call, and back when the answer has been published, only once for each.
unsafe impl Sync for ReplyLine {}

/// The answer to the call on a line is being published.
const ANSWERING: u64 = 3 << 32;

/// Tag, meta word and number of payload words of a complete answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) tag: u64,
    pub(crate) meta: u64,
    pub(crate) count: usize,
}

/// The result of noting a call on a reply line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStart {
    /// The line has taken the call.
    Yes,
    /// Another thread is publishing the previous answer at this moment: try again.
    Later,
    /// The line is occupied, or there is no such line.
    No,
}

/// An answer that is larger than its area, while the client fetches it piece by piece.
#[derive(Debug)]
pub(crate) struct LongReply {
    pub(crate) line: u8,
    pub(crate) stream: Vec<u8>,
    pub(crate) sent: usize,
}

/// Memory of a caller in this address space, on loan while the caller waits for its answer.
#[derive(Debug)]
pub(crate) struct LocalRequest {
    pub(crate) seq: Seq,
    pub(crate) body: *const [u8],
    pub(crate) items: Vec<*const [u8]>,
}

// SAFETY: the caller waits, with its memory untouched, until the call is answered.
unsafe impl Send for LocalRequest {}

/// The state that only connections within one address space use.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) request: Option<LocalRequest>,
    /// True while a server thread reads a caller's memory.
    pub(crate) is_lent: bool,
    pub(crate) replies: Vec<LocalReply>,
}

/// A long answer to a caller in this address space.
#[derive(Debug)]
pub(crate) struct LocalReply {
    pub(crate) seq: Seq,
    pub(crate) stream: Vec<u64>,
}

/// Memory that a client has registered.
#[derive(Debug)]
pub(crate) struct RegisteredGrant {
    /// The client's number for it.
    pub(crate) id: GrantId,
    pub(crate) granted: Arc<Granted>,
}

/// The numbers that name one call among those of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallNumbers {
    /// The reply line.
    pub line: u8,
    /// The sequence number.
    pub seq: Seq,
}

/// The mailbox of a server thread.
pub(crate) type ServerThread = Mailbox<ClientLink>;

/// One client's state in the server.
#[derive(Debug)]
pub(crate) struct ClientLink {
    pub(crate) id: ClientId,
    pub(crate) region: Region,
    pub(crate) socket: ClientSocket,
    pub(crate) credentials: Credentials,
    pub(crate) badge: AtomicU64,
    /// The longest answer that the client accepts, and the longest request that it may send
    /// (bytes).
    pub(crate) reply_max: u64,
    pub(crate) request_max: u64,
    /// Items of requests stay in the region.
    pub(crate) items_in_place: bool,
    /// The client lives in this address space.
    pub(crate) same_space: bool,
    pub(crate) thread: Arc<ServerThread>,
    pub(crate) lines: Box<[ReplyLine]>,
    pub(crate) local: Mutex<Local>,
    pub(crate) long_replies: Mutex<Vec<LongReply>>,
    pub(crate) grants: Mutex<Vec<RegisteredGrant>>,
    /// The endpoint's.
    pub(crate) budget: Budget,
    pub(crate) inbox: Mutex<Inbox>,
    /// Held while packets are read and put away.
    pub(crate) reading: Mutex<()>,
    /// 0, or the reason code with which it ended.
    ended: AtomicU32,
    packets: AtomicU32,
    /// The state of a lane that sleeps on the control socket, for which a packet is a wake-up.
    pub(crate) cold: park::Cold,
}

/// The terms agreed with a client in the greeting.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) id: ClientId,
    pub(crate) credentials: Credentials,
    pub(crate) reply_max: u64,
    pub(crate) request_max: u64,
    pub(crate) items_in_place: bool,
    pub(crate) same_space: bool,
    pub(crate) budget: Budget,
}

impl ClientLink {
    pub(crate) fn new(
        terms: Terms,
        region: Region,
        socket: ClientSocket,
        thread: Arc<ServerThread>,
    ) -> Self {
        let line = || ReplyLine {
            outstanding: AtomicU64::new(0),
            words: UnsafeCell::new([0; INLINE_WORDS]),
            answer: UnsafeCell::default(),
            spare: UnsafeCell::new(None),
        };
        Self {
            id: terms.id,
            credentials: terms.credentials,
            reply_max: terms.reply_max,
            request_max: terms.request_max,
            items_in_place: terms.items_in_place,
            same_space: terms.same_space,
            badge: AtomicU64::new(0),
            lines: (0..region.layout.lines()).map(|_| line()).collect(),
            region,
            socket,
            thread,
            local: Mutex::default(),
            long_replies: Mutex::default(),
            grants: Mutex::default(),
            budget: terms.budget,
            inbox: Mutex::default(),
            reading: Mutex::default(),
            ended: AtomicU32::new(0),
            packets: AtomicU32::new(0),
            cold: park::Cold::new(),
        }
    }

    pub(crate) fn badge(&self) -> Badge {
        Badge(self.badge.load(Ordering::Relaxed))
    }

    /// Notes that call `seq` wants its answer on `line`.
    #[inline]
    pub(crate) fn begin_call(&self, line: u8, seq: Seq) -> CallStart {
        let Some(line) = self.lines.get(line as usize) else { return CallStart::No };
        match line.outstanding.load(Ordering::Acquire) {
            0 => {
                line.outstanding.store(1 << 32 | u64::from(seq.0), Ordering::Relaxed);
                CallStart::Yes
            }
            ANSWERING => CallStart::Later,
            _ => CallStart::No,
        }
    }

    /// Claims call `seq` on `line` for an answer: true once, for one caller, if it is outstanding.
    #[inline]
    pub(crate) fn claim_call(&self, line: u8, seq: Seq) -> bool {
        let Some(line) = self.lines.get(line as usize) else { return false };
        let (outstanding, claimed) = (1 << 32 | u64::from(seq.0), 2 << 32 | u64::from(seq.0));
        line.outstanding
            .compare_exchange(outstanding, claimed, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the call that is outstanding and unclaimed on `line`.
    pub(crate) fn unclaimed(&self, line: u8) -> Option<Seq> {
        let outstanding = self.lines.get(line as usize)?.outstanding.load(Ordering::Acquire);
        (outstanding >> 32 == 1).then_some(Seq(outstanding as u32))
    }

    /// Returns true if call `seq` on `line` is outstanding and unclaimed.
    #[inline]
    pub(crate) fn is_outstanding(&self, line: u8, seq: Seq) -> bool {
        self.lines.get(line as usize).is_some_and(|line| {
            line.outstanding.load(Ordering::Acquire) == 1 << 32 | u64::from(seq.0)
        })
    }

    /// Notes that the answer to the call on `line` is about to be published. The client may send
    /// the next call as soon as it sees the answer; that call has to wait until [`Self::end_call`].
    #[inline]
    pub(crate) fn begin_answer(&self, line: u8) {
        if let Some(line) = self.lines.get(line as usize) {
            line.outstanding.store(ANSWERING, Ordering::Relaxed);
        }
    }

    /// Notes that the call on `line` has been answered, or will not be.
    #[inline]
    pub(crate) fn end_call(&self, line: u8) {
        if let Some(line) = self.lines.get(line as usize) {
            // SYNC: release; pairs with the acquire load in `begin_call`: the next call's token may
            // use `words` only after this one is done with it.
            line.outstanding.store(0, Ordering::Release);
        }
    }

    /// Returns the reason why the client is gone; `None` while it is connected.
    pub(crate) fn ended(&self) -> Option<Reason> {
        match self.ended.load(Ordering::Acquire) {
            0 => None,
            code => Some(Reason::from_code(code)),
        }
    }

    /// Ends the connection for the first reason given: writes the reason for the client, shuts the
    /// socket down in both directions, and notifies the lane's thread.
    pub(crate) fn end(&self, reason: Reason) {
        let code = reason.code();
        let ended = || self.ended.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        if !self.thread.post_if(Note::Ended(self.id), || ended().is_ok()) {
            return;
        }
        self.region.reason().store(code, Ordering::Release);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        // The hang-up wakes a client that sleeps on its socket; ringing wakes a client that sleeps
        // on its bell.
        self.ring_client();
    }

    /// Wakes the client after a publication, if it sleeps.
    #[inline(always)]
    pub(crate) fn ring_client(&self) {
        control::ring(self.region.client_bell(), &self.socket);
    }

    /// Sends the descriptors of answer `seq`. Fails, without waiting, if the client lets its socket
    /// fill up or the kernel cannot hold more descriptors in flight.
    pub(crate) fn send_fds(&self, seq: Seq, fds: &[BorrowedFd<'_>]) -> bool {
        let packet = Packet::new(Topic::Descriptors, seq.0);
        fds.len() <= FDS_MAX && control::send(self.socket.as_fd(), packet, fds).is_ok()
    }

    /// Counts a packet; returns false if the packets are a flood.
    pub(crate) fn count_packet(&self) -> bool {
        self.packets.fetch_add(1, Ordering::Relaxed) < PACKETS_MAX
    }

    /// Resets the count of packets, because a request was seen.
    #[inline(always)]
    pub(crate) fn reset_packet_count(&self) {
        if self.packets.load(Ordering::Relaxed) != 0 {
            self.packets.store(0, Ordering::Relaxed);
        }
    }

    /// Keeps descriptors until their message comes; returns false if too many wait.
    pub(crate) fn put_fds(&self, seq: Seq, fds: Vec<OwnedFd>) -> bool {
        let share = self.budget.descriptors.take(self.credentials.user(), fds.len());
        let batches_max = BATCHES_MAX * self.lines.len();
        share.is_some() && lock(&self.inbox).put(Batch { seq, fds, share }, batches_max)
    }

    /// Notes that the server thread does not read the caller's memory any more.
    #[cold]
    pub(crate) fn return_loan(&self) {
        lock(&self.local).is_lent = false;
    }

    /// Waits until no thread reads, or will read, the memory lent by the caller of request `seq`.
    /// Needed only if the call ended without an answer, since an answer comes after the loan.
    #[cold]
    pub(crate) fn await_loan(&self, seq: Seq) {
        loop {
            let mut local = lock(&self.local);
            local.request.take_if(|request| request.seq == seq);
            if !local.is_lent {
                return;
            }
            drop(local);
            std::thread::sleep(core::time::Duration::from_micros(50));
        }
    }

    /// Sets notification bits for the client.
    pub(crate) fn notify(&self, bits: u64) {
        // SYNC: release; pairs with the acquire swap in the client's `wait_notify`.
        self.region.to_client().fetch_or(bits, Ordering::Release);
        self.ring_client();
    }
}
