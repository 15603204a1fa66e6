//! What is said of an option: the columns of the table.
//!
//! Not here: the rows (`table`).

use core::ffi::c_int;

/// A value that the engine obeys from then on.
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
    /// What is in the IP headers: `IP_TOS`, `IP_TTL`, `IP_MTU_DISCOVER`, `IPV6_TCLASS`,
    /// `IPV6_UNICAST_HOPS`.
    Header,
}

impl Change {
    /// All of them.
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

/// What setting an option does to a session that is away. The kernel's socket is set in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Nothing: the value does not show in a stream, or only at an end that the kernel makes.
    Ignored,
    /// A time limit, which the session's calls obey.
    Timeout,
    /// Only the kernel honours it: the session goes home and stays there.
    Home,
    /// The same for streams. UDP sessions obey it.
    DatagramsObey,
    /// The same for streams. A UDP session goes home, and the server decides at its next offer.
    DatagramsOffered,
    /// The value shows in packets. Sessions with other hosts obey it; within one host there are no
    /// packets.
    Engine(Change),
    /// The same, of `SO_KEEPALIVE`, whose value the library keeps.
    Keepalive,
    /// The value shows in packets, and the engine does not obey it: TCP sessions with other hosts
    /// go home.
    NotRemote,
}

/// What the library answers when an option of a session with another host is asked for: the
/// kernel's socket is silent while the session is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `TCP_INFO`: the engine's figures.
    Info,
    /// `TCP_MAXSEG`: the engine's segment size.
    SegmentSize,
    /// `TCP_QUICKACK`: the engine's mode.
    QuickAck,
    /// `SO_KEEPALIVE`: what the program has set; it is off in the kernel meanwhile.
    Keepalive,
    /// `SO_ERROR`: also of a peer that was killed.
    Error,
}

/// Kinds of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP and Unix stream sockets with both ends on this host.
    OneHost,
    /// TCP with another host.
    RemoteTcp,
    /// UDP.
    Datagram,
}

/// Some kinds of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// None.
    pub const NONE: Self = Self(0);
    /// TCP with other hosts.
    pub const REMOTE_TCP: Self = Self(1 << Kind::RemoteTcp as u8);
    /// UDP.
    pub const DATAGRAM: Self = Self(1 << Kind::Datagram as u8);
    /// TCP and Unix stream sockets, whatever their peer.
    pub const STREAM: Self = Self(1 << Kind::OneHost as u8 | Self::REMOTE_TCP.0);
    /// Whatever talks with other hosts.
    pub const REMOTE: Self = Self(Self::REMOTE_TCP.0 | Self::DATAGRAM.0);
    /// All.
    pub const ALL: Self = Self(Self::STREAM.0 | Self::DATAGRAM.0);

    /// Whether `kind` is among them.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

/// The value with which an option keeps nothing in the kernel. An option that a kernel or a kind of
/// socket does not know has its usual value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// Four bytes of this number.
    Number(i32),
    /// 0 or 1: a connection that was accepted by a listener of Multipath TCP has `SO_RCVLOWAT` 0,
    /// which means 1.
    ZeroOrOne,
    /// No bytes.
    Empty,
    /// More than a value decides: the server has a rule of its own, in these words.
    Rule(&'static str),
    /// No filter: asked with no room, `SO_ATTACH_FILTER` answers how many instructions there are.
    NoFilter,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct SocketOption {
    /// `SOL_SOCKET`, `IPPROTO_TCP` and their like.
    pub level: c_int,
    /// Its number there.
    pub number: c_int,
    /// Its name in C.
    pub name: &'static str,
    /// What setting it does.
    pub setting: Setting,
    /// What asking for it answers.
    pub answer: Option<Answer>,
    /// The kinds of sessions that another value than the usual one keeps in the kernel.
    pub keeps: Kinds,
    /// That value.
    pub usual: Usual,
}

impl SocketOption {
    pub(crate) const fn new(
        level: c_int,
        number: c_int,
        name: &'static str,
        setting: Setting,
    ) -> Self {
        let (keeps, usual) = (Kinds::NONE, Usual::Number(0));
        Self { level, number, name, setting, answer: None, keeps, usual }
    }

    pub(crate) const fn answered(self, answer: Answer) -> Self {
        Self { answer: Some(answer), ..self }
    }

    pub(crate) const fn keeping(self, keeps: Kinds, usual: Usual) -> Self {
        Self { keeps, usual, ..self }
    }
}
