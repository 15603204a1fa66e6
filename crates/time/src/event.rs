//! Events as the kernel's programs report them: decoded, checked, with names instead of places.
//!
//! The format is `struct event` of `bpf/time/maps.h`: change both together. Not here: the use
//! of events (`ledger`). Read `bpf/time.bpf.c` first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Stamps of one event.
pub(crate) const STAMPS: usize = 6;
/// Bytes of one event.
pub(crate) const EVENT_LEN: usize = 96 + STAMPS * 16;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The kernel's monotonic clock (ns); 0: the place was not passed.
    pub at: u64,
    /// The time that stamps have taken on this processor up to then (ns, wrapping).
    pub spent: u32,
    /// The processor.
    pub processor: u32,
}

impl Stamp {
    /// Returns true if the place was passed.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.at != 0
    }
}

/// The carrier of a session's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// Unix sockets.
    Unix,
    /// Pipes.
    Pipe,
}

impl Protocol {
    /// The word for users, as `sojourn ss` has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Unix => "unix",
            Self::Pipe => "pipe",
        }
    }
}

/// A socket or pipe: an address of the kernel's, used as a name only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SocketId(pub u64);

/// A packet: likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketId(pub u64);

/// The inode of a socket or pipe; 0 names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

/// The socket or pipe of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The socket or pipe.
    pub sock: SocketId,
    /// The inode of the socket or pipe: the name for users.
    pub inode: Inode,
    /// The carrier of the data.
    pub protocol: Protocol,
    /// The program's end.
    pub local: Option<SocketAddr>,
    /// The other end; none if the socket has no peer (UDP).
    pub remote: Option<SocketAddr>,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call that sends has ended. Stamps: call, protocol, IP, link, device took it, end.
    Sent,
    /// A socket's reader is told of data. Stamps: soft interrupt, packet, IP, protocol, told.
    Arrived,
    /// A call that takes data has ended. Stamps: call, thread got its processor, end.
    Taken,
    /// A trial of the programs themselves.
    Probed,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Of which kind.
    pub kind: Kind,
    /// The thread that made the call.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The call's return value.
    pub result: i32,
    /// The packet, if there is one.
    pub packet: Option<PacketId>,
    /// TCP: the sequence number before the data.
    pub first: u32,
    /// TCP: the sequence number behind the data.
    pub last: u32,
    /// The time that the stamp of an arrival takes as a rule (ns).
    pub usual: u32,
    /// The socket or pipe.
    pub ends: Ends,
    /// The moments.
    pub stamps: [Stamp; STAMPS],
}

/// Positions of the stamps of [`Kind::Sent`].
pub(crate) mod sent {
    pub(crate) const ENTER: usize = 0;
    pub(crate) const OUT: usize = 1;
    pub(crate) const IP: usize = 2;
    pub(crate) const LINK: usize = 3;
    pub(crate) const DONE: usize = 4;
    pub(crate) const EXIT: usize = 5;
}

/// Positions of the stamps of [`Kind::Arrived`].
pub(crate) mod arrived {
    #[cfg(test)]
    pub(crate) const DEVICE: usize = 0;
    pub(crate) const FILTER: usize = 1;
    pub(crate) const IP: usize = 2;
    pub(crate) const IN: usize = 3;
    pub(crate) const READY: usize = 4;
}

/// Positions of the stamps of [`Kind::Taken`].
pub(crate) mod taken {
    pub(crate) const ENTER: usize = 0;
    pub(crate) const RUN: usize = 1;
    pub(crate) const EXIT: usize = 2;
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Reads numbers from bytes whose length was checked.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        if let Some(found) = self.0.get(at..at + N) {
            bytes.copy_from_slice(found);
        }
        bytes
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }
}

impl Event {
    /// Decodes an event; none if the bytes are no event of a known kind.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != EVENT_LEN {
            return None;
        }
        let reader = Reader(bytes);
        let kind = match reader.u32(0) {
            1 => Kind::Sent,
            2 => Kind::Arrived,
            3 => Kind::Taken,
            4 => Kind::Probed,
            _ => return None,
        };
        let mut stamps = [Stamp::default(); STAMPS];
        for (index, stamp) in stamps.iter_mut().enumerate() {
            let at = EVENT_LEN - STAMPS * 16 + index * 16;
            *stamp = Stamp {
                at: reader.u64(at),
                spent: reader.u32(at + 8),
                processor: reader.u32(at + 12),
            };
        }
        Some(Self {
            kind,
            thread: reader.u32(4),
            process: reader.u32(8),
            result: i32::from_ne_bytes(reader.bytes(12)),
            packet: Some(PacketId(reader.u64(16))).filter(|packet| packet.0 != 0),
            first: reader.u32(24),
            last: reader.u32(28),
            usual: reader.u32(32),
            ends: ends(&reader),
            stamps,
        })
    }
}

fn ends(reader: &Reader<'_>) -> Ends {
    const AT: usize = 40;
    let family = reader.bytes::<1>(AT + 17)[0];
    let protocol = match reader.bytes::<1>(AT + 16)[0] {
        2 => Protocol::Udp,
        3 => Protocol::Unix,
        4 => Protocol::Pipe,
        _ => Protocol::Tcp,
    };
    let address = |at: usize, port: u16| {
        let ip = match family {
            AF_INET => IpAddr::V4(Ipv4Addr::from(reader.bytes::<4>(at))),
            AF_INET6 => IpAddr::V6(Ipv6Addr::from(reader.bytes::<16>(at))),
            _ => return None,
        };
        // A socket of IPv6 with a peer of IPv4 is told as the session it is.
        Some(SocketAddr::new(ip.to_canonical(), port))
    };
    let local = address(AT + 24, reader.u16(AT + 18));
    let remote = address(AT + 40, reader.u16(AT + 20)).filter(|remote| remote.port() != 0);
    Ends {
        sock: SocketId(reader.u64(AT)),
        inode: Inode(reader.u64(AT + 8)),
        protocol,
        local,
        remote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_wrong_length_or_kind_are_none() {
        assert_eq!(Event::decode(&[]), None);
        assert_eq!(Event::decode(&[1; EVENT_LEN - 1]), None);
        assert_eq!(Event::decode(&[9; EVENT_LEN]), None);
    }

    #[test]
    fn fields_are_read_where_the_programs_write_them() {
        let mut bytes = [0; EVENT_LEN];
        bytes[0] = 1;
        bytes[4..8].copy_from_slice(&77_u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&(-11_i32).to_ne_bytes());
        bytes[40..48].copy_from_slice(&5_u64.to_ne_bytes());
        bytes[48..56].copy_from_slice(&6_u64.to_ne_bytes());
        bytes[56] = 2;
        bytes[57] = AF_INET;
        bytes[58..60].copy_from_slice(&80_u16.to_ne_bytes());
        bytes[60..62].copy_from_slice(&81_u16.to_ne_bytes());
        bytes[64..68].copy_from_slice(&[10, 0, 0, 1]);
        bytes[80..84].copy_from_slice(&[10, 0, 0, 2]);
        bytes[96..104].copy_from_slice(&9_u64.to_ne_bytes());
        let event = Event::decode(&bytes).unwrap();
        assert_eq!((event.kind, event.thread, event.result), (Kind::Sent, 77, -11));
        assert_eq!((event.ends.sock, event.ends.inode), (SocketId(5), Inode(6)));
        assert_eq!(event.ends.protocol, Protocol::Udp);
        assert_eq!(event.ends.local, Some("10.0.0.1:80".parse().unwrap()));
        assert_eq!(event.ends.remote, Some("10.0.0.2:81".parse().unwrap()));
        assert_eq!(event.stamps[0].at, 9);
    }
}
