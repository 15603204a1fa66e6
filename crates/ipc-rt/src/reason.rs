//! The reasons why connections end: one list for both sides and both languages.

/// The reason why a connection ended or was refused. The numbers are those of
/// `include/sojourn/ipc.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Reason {
    /// The peer's process is gone, or closed its end without giving a reason.
    PeerDied = 1,
    /// The server was closed.
    Closed = 2,
    /// The server disconnected this client (`Server::expel` of `sojourn-ipc`).
    Expelled = 3,
    /// A message header had a field out of range.
    BadHeader = 4,
    /// A request carried a sequence number other than the next one.
    BadSequence = 5,
    /// A request named a reply line that was still in use, or does not exist.
    BadLine = 6,
    /// A message was longer than agreed, or the lengths of its parts were inconsistent.
    BadLength = 7,
    /// The body of a message broke the rules of its interface.
    BadMessage = 8,
    /// A grant was unknown, out of range, or asked for more than it was registered for.
    BadGrant = 9,
    /// A message announced descriptors that did not come.
    MissingDescriptors = 10,
    /// Descriptors were sent without the messages that announce them.
    DescriptorFlood = 11,
    /// The client woke the server many times in a row without a request.
    DoorbellFlood = 12,
    /// A packet on the control socket was invalid.
    BadPacket = 13,
    /// Version or magic number differ: another release, or not a Sojourn peer.
    Version = 14,
    /// The server serves as many clients as it may.
    TooManyClients = 15,
    /// The server ran out of memory or descriptors while taking the client.
    NoResources = 16,
    /// The server serves as many clients of this user as it may.
    TooManyOfUser = 17,
}

const ALL: [Reason; 17] = [
    Reason::PeerDied,
    Reason::Closed,
    Reason::Expelled,
    Reason::BadHeader,
    Reason::BadSequence,
    Reason::BadLine,
    Reason::BadLength,
    Reason::BadMessage,
    Reason::BadGrant,
    Reason::MissingDescriptors,
    Reason::DescriptorFlood,
    Reason::DoorbellFlood,
    Reason::BadPacket,
    Reason::Version,
    Reason::TooManyClients,
    Reason::NoResources,
    Reason::TooManyOfUser,
];

impl Reason {
    /// Returns the reason's number.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Returns the reason with that number; unknown numbers give [`Reason::PeerDied`].
    pub fn from_code(code: u32) -> Self {
        ALL.into_iter().find(|reason| reason.code() == code).unwrap_or(Self::PeerDied)
    }

    /// Returns a sentence for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::PeerDied => "the peer has gone",
            Self::Closed => "the server was closed",
            Self::Expelled => "the server ended the connection",
            Self::BadHeader => "a message header had a field out of range",
            Self::BadSequence => "a request was out of sequence",
            Self::BadLine => "a request named a reply line that was not free",
            Self::BadLength => "a message was longer than agreed or did not add up",
            Self::BadMessage => "the body of a message broke the rules of its interface",
            Self::BadGrant => "a grant was unknown, out of range or not allowed",
            Self::MissingDescriptors => "a message announced descriptors that did not come",
            Self::DescriptorFlood => "descriptors were sent without messages",
            Self::DoorbellFlood => "the peer was woken for nothing too often",
            Self::BadPacket => "a packet on the control socket made no sense",
            Self::Version => "the peer speaks another version of the protocol",
            Self::TooManyClients => "the server has as many clients as it may",
            Self::NoResources => "the server is out of memory or descriptors",
            Self::TooManyOfUser => "the server has as many clients of this user as it may",
        }
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}
