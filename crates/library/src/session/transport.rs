//! The transport of a session that is away: what carries its bytes, and the state that only
//! sessions with that transport have.
//!
//! A session's slot is used again for sessions of other transports, while threads that knew the old
//! session still look at it. So a slot has a place for the state of each transport, and
//! [`Transport`] leads to the one in use. A thread that has checked the session's generation under
//! one of its locks sees the transport of that session. Not here: the state that a lock guards
//! (`session::directions`); sessions that the protocol server serves (`session::service`), which
//! callers treat first: of these, UDP sockets have [`Transport::Udp`], others [`Transport::Local`].

use crate::session::progress::TrialProgress;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sojourn_session::KindT;
use sojourn_stream::Stream;
use std::sync::Mutex;

/// What carries the bytes of a session that is away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport<'a> {
    /// Rings between two processes of this host: a TCP or Unix connection, or a pipe.
    Local(&'a Local),
    /// TCP with another host. The stream's other side is the server's carrier, or the engine in
    /// this process: see `remote::carried`.
    RemoteTcp(&'a RemoteTcp),
    /// UDP: datagrams past the kernel and through it. The stream has no bytes; its other side is
    /// that of [`Transport::RemoteTcp`]. See `io::datagrams`.
    Udp(&'a Udp),
}

/// The state of a session within the host.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// A TCP connection whose bytes may still come through the kernel: see `io::send`.
    pub(crate) acknowledges: AtomicBool,
    /// Bytes or room of the ring are with the program: see `io::lend`. Written under the lock of
    /// the direction.
    pub(crate) is_lent: AtomicBool,
    pub(crate) is_reserved: AtomicBool,
    /// A sample for `progress` is due.
    pub(crate) is_due: AtomicBool,
    pub(crate) progress: Mutex<TrialProgress>,
}

/// The state of a TCP session with another host: see `remote::options`.
#[derive(Debug, Default)]
pub(crate) struct RemoteTcp {
    /// `SO_KEEPALIVE` as the program set it.
    pub(crate) keepalive: AtomicBool,
    /// The program set an option before the session was delegated.
    pub(crate) has_new_options: AtomicBool,
}

/// The state of a UDP session.
#[derive(Debug, Default)]
pub(crate) struct Udp {
    /// Bits of `io::datagrams::form`.
    pub(crate) form: AtomicU32,
}

/// Values of [`Transports::used`].
const LOCAL: u32 = 0;
const REMOTE_TCP: u32 = 1;
const UDP: u32 = 2;

/// A slot's places for the state of each transport.
#[derive(Debug, Default)]
pub(crate) struct Transports {
    used: AtomicU32,
    local: Local,
    remote_tcp: RemoteTcp,
    udp: Udp,
}

impl Transports {
    /// Begins the use of the slot by a session of that kind. `is_carried`: its peer is on another
    /// host.
    pub(crate) fn begin(&self, kind: KindT, is_carried: bool) {
        let flags = [
            &self.local.acknowledges,
            &self.local.is_lent,
            &self.local.is_reserved,
            &self.local.is_due,
            &self.remote_tcp.has_new_options,
        ];
        flags.into_iter().for_each(|flag| flag.store(false, Ordering::SeqCst));
        let used = match (kind, is_carried) {
            (KindT::Udp, _) => UDP,
            (_, true) => REMOTE_TCP,
            (_, false) => LOCAL,
        };
        self.used.store(used, Ordering::SeqCst);
    }

    /// Returns the transport in use.
    #[inline]
    pub(crate) fn used(&self) -> Transport<'_> {
        match self.used.load(Ordering::Relaxed) {
            REMOTE_TCP => Transport::RemoteTcp(&self.remote_tcp),
            UDP => Transport::Udp(&self.udp),
            _ => Transport::Local(&self.local),
        }
    }

    /// Returns the state of a session within the host; `None` for other sessions.
    #[inline]
    pub(crate) fn local(&self) -> Option<&Local> {
        (self.used.load(Ordering::Relaxed) == LOCAL).then_some(&self.local)
    }
}

impl Local {
    /// Returns true if bytes of the ring are with the program.
    #[inline]
    pub(crate) fn has_lent(&self, stream: &Stream) -> bool {
        self.is_lent.load(Ordering::Relaxed) && !stream.is_frozen()
    }

    /// Returns true if room of the ring is with the program.
    #[inline]
    pub(crate) fn has_reserved(&self, stream: &Stream) -> bool {
        self.is_reserved.load(Ordering::Relaxed) && !stream.is_frozen()
    }
}
