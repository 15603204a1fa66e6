//! The part of a session that the protocol server serves: where it stands, and what wakes those who
//! wait for it.
//!
//! Not here: the calls to the server (`remote::protocol_server`, `remote::served`), and data calls
//! (`io::served`). Read `docs/understand/protocol-server.md` first.

use core::sync::atomic::{AtomicBool, Ordering};
use sojourn_session::protocol::client::TokenT;
use sojourn_shm::{AtomicU32, futex};

/// Values of [`Service::state`].
const NONE: u32 = 0;
const PENDING: u32 = 1;
const SERVED: u32 = 2;

/// The number under which the protocol server knows a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceNumber {
    /// Counts the connections with protocol servers: a number means nothing on another one.
    pub(crate) connection: u32,
    pub(crate) session: u32,
}

/// This process's part in a session of the protocol server's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServicePart {
    pub(crate) number: ServiceNumber,
    /// The right to the session, for other processes that hold it.
    pub(crate) token: TokenT,
}

/// The service of a session.
#[derive(Debug, Default)]
pub(crate) struct Service {
    state: AtomicU32,
    connection: AtomicU32,
    session: AtomicU32,
    /// Events for which the server rings.
    pub(crate) armed: AtomicU32,
    /// Counts what the server has told; threads of this process sleep on it.
    news: AtomicU32,
    /// The connection is lost, and the kernel does not have the session again yet.
    pub(crate) is_lost: AtomicBool,
    /// Counts the receipts: answers to calls that have waited in the server, which takes the bytes
    /// out after the answer.
    receipts: AtomicU32,
    /// The last receipt, until another answer says that the server has taken its bytes; 0: none.
    unconfirmed: AtomicU32,
}

impl Service {
    /// Returns true if the session is the protocol server's, or about to be.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.state.load(Ordering::Relaxed) != NONE
    }

    /// Returns true if data calls are calls to the protocol server.
    #[inline]
    pub(crate) fn is_begun(&self) -> bool {
        self.state.load(Ordering::SeqCst) == SERVED
    }

    /// Returns true if the session is to be handed over as soon as no call sits in the kernel.
    pub(crate) fn is_pending(&self) -> bool {
        self.state.load(Ordering::SeqCst) == PENDING
    }

    /// Notes that the session is to be handed over.
    pub(crate) fn awaits(&self) {
        self.armed.store(0, Ordering::SeqCst);
        self.is_lost.store(false, Ordering::SeqCst);
        self.state.store(PENDING, Ordering::SeqCst);
    }

    /// Notes that the server serves the session, under that number.
    pub(crate) fn begin(&self, number: ServiceNumber) {
        self.connection.store(number.connection, Ordering::SeqCst);
        self.session.store(number.session, Ordering::SeqCst);
        self.unconfirmed.store(0, Ordering::SeqCst);
        // SYNC: release, after the number; pairs with `Service::number`.
        self.state.store(SERVED, Ordering::SeqCst);
    }

    /// Notes that the session is the kernel's again. Returns false if another thread has done so.
    pub(crate) fn end(&self) -> bool {
        let was_any = self.state.swap(NONE, Ordering::SeqCst) != NONE;
        self.tell();
        was_any
    }

    /// Returns the session's number, while it is served.
    pub(crate) fn number(&self) -> Option<ServiceNumber> {
        // SYNC: acquire, before the number; pairs with `Service::begin`.
        self.is_begun().then(|| ServiceNumber {
            connection: self.connection.load(Ordering::SeqCst),
            session: self.session.load(Ordering::SeqCst),
        })
    }

    /// Notes bytes that the server takes out after its answer, which has come.
    pub(crate) fn received(&self) {
        let last = self.receipts.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        self.unconfirmed.store(last.max(1), Ordering::SeqCst);
    }

    /// Returns the last receipt, if it is not confirmed; else 0.
    pub(crate) fn receipt(&self) -> u32 {
        self.unconfirmed.load(Ordering::SeqCst)
    }

    /// Notes that the server has answered a call that was made after that receipt.
    pub(crate) fn confirm(&self, receipt: u32) {
        if receipt != 0 {
            let order = Ordering::SeqCst;
            // Another one may have come since, which is not confirmed by this.
            let _ = self.unconfirmed.compare_exchange(receipt, 0, order, order);
        }
    }

    /// Forgets the last receipt. Returns true if it was confirmed.
    pub(crate) fn forget_receipt(&self) -> bool {
        self.unconfirmed.swap(0, Ordering::SeqCst) == 0
    }

    /// Wakes those who wait: the server has told of an event, or the service has ended.
    pub(crate) fn tell(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(&self.news);
    }

    /// Returns the word that changes with [`Service::tell`].
    pub(crate) fn news(&self) -> &AtomicU32 {
        &self.news
    }
}
