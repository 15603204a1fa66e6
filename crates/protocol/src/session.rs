//! A session that is served: its socket, the calls that wait at it, and the events that the watcher
//! looks for.
//!
//! Each session's own lock guards its queue; the lock is this process's alone, and no thread waits
//! under it. Not here: the order of waiting calls (`queue`), the watcher's sleep (`watcher`).

use crate::buffer::{Buffer, Envelope};
use crate::calls::{Kind, Socket};

use crate::queue::{ClientEvents, Queue, Receiver, Source, Waiter, ignore};
use crate::watcher::Watcher;
use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::io::Errno;
use sojourn_ipc::{ClientId, Gone};
use sojourn_session::protocol::server::{
    DATA_MAX, ProtocolReceiveDeferredReply, ProtocolReceiveFromDeferredReply,
    ProtocolWaitDeferredReply, ProtocolWaitOut,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to answer a receive.
#[derive(Debug)]
pub(crate) enum ReceiveReply {
    Bytes(ProtocolReceiveDeferredReply),
    Datagram(ProtocolReceiveFromDeferredReply),
}

impl ReceiveReply {
    /// Returns the kind of the sessions that are asked so.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Bytes(_) => Kind::Tcp,
            Self::Datagram(_) => Kind::Udp,
        }
    }

    /// Answers.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits any more.
    pub(crate) fn lend(self, status: u32, data: &[u8], with: &Envelope) -> Result<(), Gone> {
        match self {
            Self::Bytes(reply) => reply.lend(status, data),
            Self::Datagram(reply) => {
                reply.lend(status, &with.from, with.whole, with.control(), data)
            }
        }
    }
}

/// A call of `receive` or `receive_from` that has not been answered.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) size: usize,
    pub(crate) client: ClientId,
    pub(crate) is_answered_first: bool,
    pub(crate) reply: ReceiveReply,
}

impl Receiver for Receive {
    fn size(&self) -> usize {
        self.size
    }

    fn client(&self) -> ClientId {
        self.client
    }

    fn is_answered_first(&self) -> bool {
        self.is_answered_first
    }

    fn answer(self, status: u32, data: &[u8], envelope: &Envelope) -> Result<(), Gone> {
        let len = data.len().min(self.size);
        self.reply.lend(status, &data[..len], envelope)
    }
}

impl Waiter for ProtocolWaitDeferredReply {
    fn answer(self, ret: u32, ready: u32) {
        ignore(self.send(ProtocolWaitOut { ret, ready }));
    }
}

/// The queue of a session, and the events for which the watcher looks.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) queue: Queue<Receive, ProtocolWaitDeferredReply>,
    /// The events for which the watcher looks.
    armed: u32,
    /// How often in a row the watcher has found something and nobody could be answered.
    vain: u32,
}

/// So often in a row the watcher may find something in vain before it pauses: while a session
/// moves, bytes are hidden for a moment.
const VAIN_MAX: u32 = 16;
/// The first pause, and the binary logarithm of how many times as long the longest one is.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES_LOG: u32 = 4;

/// A session that is served.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) socket: Socket,
    /// Names the session to the watcher.
    pub(crate) key: u64,
    /// It is the kernel's, and its holders use it there.
    pub(crate) is_released: AtomicBool,
    waiting: Mutex<Waiting>,
}

impl Served {
    pub(crate) fn new(socket: Socket, key: u64) -> Self {
        let waiting = Mutex::new(Waiting { queue: Queue::new(), armed: 0, vain: 0 });
        Self { socket, key, is_released: AtomicBool::new(false), waiting }
    }

    /// Locks the queue, which is whole after every step: a panic of another thread does no harm.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the queue for a call that may wait. A release marks the session before it takes this
    /// lock and answers all that wait, so that no later call waits.
    ///
    /// # Errors
    /// `ESTALE`: the session was released.
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, Waiting>, Errno> {
        let waiting = self.lock();
        // SYNC: under the lock; pairs with the swap in `Protocol::release`.
        match self.is_released.load(Ordering::SeqCst) {
            true => Err(Errno::STALE),
            false => Ok(waiting),
        }
    }

    /// Takes the bytes that have been answered with: the answer to a later call says that they have
    /// been, unless the session is moving just now.
    pub(crate) fn settle(&self) {
        with_buffer(|buffer| self.lock().queue.settle(&self.socket, buffer));
    }

    /// Sends the session home for good. May wait for the session server.
    ///
    /// # Errors
    /// `EBUSY` if it is not home in time.
    pub(crate) fn go_home(&self) -> Result<(), Errno> {
        self.socket.go_home()?;
        // The next who reads must not find bytes that a program has been answered with. At home all
        // are there.
        match with_buffer(|buffer| self.lock().queue.settle(&self.socket, buffer)) {
            true => Ok(()),
            false => Err(Errno::BUSY),
        }
    }

    /// Has the watcher look for the events that calls wait for. `waiting` is this session's.
    pub(crate) fn arm(&self, waiting: &mut Waiting, watcher: &Watcher) {
        let interest = waiting.queue.interest();
        if interest & !waiting.armed != 0 {
            waiting.armed |= interest;
            watcher.arm(self.socket.number(), self.key, waiting.armed);
        }
    }

    /// Answers waiting calls after the watcher has found something. `rung` gets the clients that
    /// have watched, with their events. Returns a pause if the watcher is to be armed only after
    /// that ([`Self::rearm`]); what happens meanwhile it is told of.
    pub(crate) fn found(
        &self,
        watcher: &Watcher,
        is_shared: bool,
        rung: &mut Vec<ClientEvents>,
    ) -> Option<Duration> {
        let mut waiting = self.lock();
        // Nobody waits any more: one vain wake-up is the price of not disarming after each answer.
        if waiting.queue.interest() == 0 && waiting.armed != 0 {
            waiting.armed = 0;
            watcher.arm(self.socket.number(), self.key, 0);
            return None;
        }
        let before = waiting.queue.len();
        self.answer(&mut waiting, is_shared, rung);
        if waiting.queue.len() < before {
            waiting.vain = 0;
        } else {
            waiting.vain = waiting.vain.saturating_add(1);
        }
        match waiting.vain.checked_sub(VAIN_MAX) {
            None => self.arm_anew(&mut waiting, watcher),
            // Nobody waits: there is nothing to be armed for.
            Some(_) if waiting.queue.interest() == 0 => {}
            Some(more) => return Some(PAUSE * (1 << more.min(PAUSES_LOG))),
        }
        None
    }

    /// Has the watcher look again after a pause.
    pub(crate) fn rearm(&self, watcher: &Watcher) {
        self.arm_anew(&mut self.lock(), watcher);
    }

    /// Answers the calls that can be answered now, and has the watcher look for the others.
    /// `waiting` is this session's, and its lock is held from the look at the socket on: of an
    /// event after that look the watcher hears, and then waits for the lock.
    pub(crate) fn serve(
        &self,
        waiting: &mut Waiting,
        watcher: &Watcher,
        is_shared: bool,
        rung: &mut Vec<ClientEvents>,
    ) {
        self.answer(waiting, is_shared, rung);
        self.arm_anew(waiting, watcher);
    }

    fn answer(&self, waiting: &mut Waiting, is_shared: bool, rung: &mut Vec<ClientEvents>) {
        with_buffer(|buffer| {
            waiting.queue.serve(Source { data: &self.socket, is_shared }, buffer, rung)
        });
    }

    /// Arms the watcher even for the same events: while a session moves, bytes may be hidden from
    /// the look after their event was told of.
    fn arm_anew(&self, waiting: &mut Waiting, watcher: &Watcher) {
        waiting.armed = 0;
        self.arm(waiting, watcher);
    }
}

thread_local! {
    /// Where data lie between a session and the message that they are answered with.
    static BUFFER: RefCell<Buffer> = RefCell::new(Buffer::new(DATA_MAX as usize));
}

/// Lends this thread's buffer, which has room for any receiver.
pub(crate) fn with_buffer<R>(work: impl FnOnce(&mut Buffer) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| work(buffer))
}
