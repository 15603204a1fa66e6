//! The properties of an option: the columns of the table.
//!
//! Not here: the rows (`table`).

use core::ffi::c_int;

/// An option's name, as getsockopt(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionName {
    /// The protocol level, as `SOL_SOCKET`.
    pub level: c_int,
    /// The number at that level.
    pub number: c_int,
}

impl OptionName {
    /// Makes a name of its two numbers.
    #[must_use]
    pub const fn new(level: c_int, number: c_int) -> Self {
        Self { level, number }
    }
}

/// A value that the engine obeys from the moment of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `TCP_NODELAY`.
    NoDelay,
    /// `TCP_CORK`.
    Cork,
    /// `TCP_QUICKACK`.
    QuickAck,
    /// `SO_KEEPALIVE`, and the times and the count of `TCP_KEEPIDLE` and its like.
    Keepalive,
    /// `TCP_USER_TIMEOUT`.
    UserTimeout,
    /// `SO_SNDBUF`.
    SendBuffer,
    /// `SO_RCVBUF`.
    ReceiveBuffer,
    /// Fields of the IP headers: `IP_TOS`, `IP_TTL`, `IP_MTU_DISCOVER`, `IPV6_TCLASS`,
    /// `IPV6_UNICAST_HOPS`.
    Header,
}

impl Change {
    /// All changes.
    pub const ALL: [Self; 8] = [
        Self::NoDelay,
        Self::Cork,
        Self::QuickAck,
        Self::Keepalive,
        Self::UserTimeout,
        Self::SendBuffer,
        Self::ReceiveBuffer,
        Self::Header,
    ];
}

/// The effect of setting an option on a session that is away. The kernel's socket is set in any
/// case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// No effect: the value does not show in a stream, or only in a connection that the kernel
    /// makes or ends.
    Ignored,
    /// A time limit, which the session's calls obey.
    Timeout,
    /// The session returns to the kernel and stays there: only the kernel honours the option.
    Home,
    /// As `Home` for streams. UDP sessions obey the option.
    DatagramsObey,
    /// As `Home` for streams. A UDP session returns to the kernel, and the server decides at its
    /// next offer.
    DatagramsOffered,
    /// The value shows in packets. Sessions with other hosts obey it; sessions within one host have
    /// no packets.
    Engine(Change),
    /// As `Engine`, for `SO_KEEPALIVE`, whose value the library keeps.
    Keepalive,
    /// The value shows in packets, and the engine does not obey it: TCP sessions with other hosts
    /// return to the kernel.
    NotRemote,
}

/// The answer of the library when a program reads an option of a session with another host. The
/// library answers because the kernel's socket is silent while the session is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `TCP_INFO`: the engine's figures.
    Info,
    /// `TCP_MAXSEG`: the engine's segment size.
    SegmentSize,
    /// `TCP_QUICKACK`: the engine's mode.
    QuickAck,
    /// `SO_KEEPALIVE`: the value that the program has set; the option is off in the kernel
    /// meanwhile.
    Keepalive,
    /// `SO_ERROR`: the kernel's error, and that of a peer that was killed.
    Error,
    /// `TCP_ZEROCOPY_RECEIVE`: reading the option receives bytes, which only the kernel can do. The
    /// session goes home for good, also one of one host.
    Home,
}

/// A kind of session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP and Unix stream sockets with both ends on this host.
    OneHost,
    /// TCP with another host.
    RemoteTcp,
    /// UDP.
    Datagram,
}

/// A set of kinds of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// TCP with other hosts.
    pub const REMOTE_TCP: Self = Self(1 << Kind::RemoteTcp as u8);
    /// UDP.
    pub const DATAGRAM: Self = Self(1 << Kind::Datagram as u8);
    /// TCP and Unix stream sockets, with any peer.
    pub const STREAM: Self = Self(1 << Kind::OneHost as u8 | Self::REMOTE_TCP.0);
    /// All kinds with other hosts.
    pub const REMOTE: Self = Self(Self::REMOTE_TCP.0 | Self::DATAGRAM.0);
    /// All kinds.
    pub const ALL: Self = Self(Self::STREAM.0 | Self::DATAGRAM.0);

    /// Returns true if `kind` is in the set.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

/// The values of an option with which a session may leave the kernel. An option that a kernel or a
/// kind of socket does not know counts as accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedValue {
    /// This number, in four bytes.
    Number(i32),
    /// 0 or 1. A connection that a listener of Multipath TCP has accepted has `SO_RCVLOWAT` 0,
    /// which means 1.
    ZeroOrOne,
    /// No bytes.
    Empty,
    /// A rule of the server, described in these words, because it depends on more than the value.
    Rule(&'static str),
    /// No filter: read with a buffer of no bytes, `SO_ATTACH_FILTER` returns the number of
    /// instructions.
    NoFilter,
}

/// An option: a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct SocketOption {
    /// The level: `SOL_SOCKET`, `IPPROTO_TCP` and so on.
    pub level: c_int,
    /// The number within the level.
    pub number: c_int,
    /// The name in C.
    pub name: &'static str,
    /// The effect of setting the option.
    pub setting: Setting,
    /// The answer when the option is read; `None` if only the kernel answers.
    pub answer: Option<Answer>,
    /// The kinds of sessions that any value but an accepted one keeps in the kernel.
    pub keeps: Kinds,
    /// The accepted value.
    pub accepted: AcceptedValue,
}

impl SocketOption {
    pub(crate) const fn new(
        level: c_int,
        number: c_int,
        name: &'static str,
        setting: Setting,
    ) -> Self {
        let (keeps, accepted) = (Kinds::NONE, AcceptedValue::Number(0));
        Self { level, number, name, setting, answer: None, keeps, accepted }
    }

    pub(crate) const fn answered(self, answer: Answer) -> Self {
        Self { answer: Some(answer), ..self }
    }

    pub(crate) const fn keeping(self, keeps: Kinds, accepted: AcceptedValue) -> Self {
        Self { keeps, accepted, ..self }
    }
}
