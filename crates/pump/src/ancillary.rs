//! The control messages that a UDP socket's program has asked for with each datagram, as the kernel
//! makes them and in its order.
//!
//! They are for datagrams that came past the kernel; the others have the kernel's own. Another
//! process, the protocol server, hands both over as bytes ([`ControlMessages`]). The flags are read
//! from the socket when the library begins to carry it, and whenever the program sets one of them.
//! Not here: the program's control buffer (`sojourn-preload`), and options that keep a socket in
//! the kernel (the session server). Read ip(7), ipv6(7), socket(7), udp(7), cmsg(3).

use rustix::fd::BorrowedFd;
use rustix::time::{ClockId, clock_gettime};
use sojourn_proto::udp::Envelope;
use sojourn_shm::sockopt::option_number;
use std::net::IpAddr;

/// Bits for the messages that a program wants. The lowest eight bits are left to others.
pub mod wants {
    /// `SO_TIMESTAMP`.
    pub const TIME: u32 = 1 << 8;
    /// `SO_TIMESTAMP_NEW`: times of 64 bits on every machine.
    pub const TIME_NEW: u32 = 1 << 9;
    /// `SO_TIMESTAMPNS`.
    pub const NANOSECONDS: u32 = 1 << 10;
    /// `SO_TIMESTAMPNS_NEW`: times of 64 bits on every machine.
    pub const NANOSECONDS_NEW: u32 = 1 << 11;
    /// `IP_PKTINFO`.
    pub const TARGET: u32 = 1 << 12;
    /// `IP_RECVTTL`.
    pub const TTL: u32 = 1 << 13;
    /// `IP_RECVTOS`.
    pub const TOS: u32 = 1 << 14;
    /// `IPV6_RECVPKTINFO`.
    pub const TARGET_V6: u32 = 1 << 15;
    /// `IPV6_RECVHOPLIMIT`.
    pub const HOPS: u32 = 1 << 16;
    /// `IPV6_RECVTCLASS`.
    pub const CLASS: u32 = 1 << 17;
}

/// Options for times (`asm-generic/socket.h`), which are the types of their messages as well.
const SO_TIMESTAMP_NEW: i32 = 63;
const SO_TIMESTAMPNS_NEW: i32 = 64;
/// `linux/udp.h`.
const UDP_GRO: i32 = 104;

/// The option that asks for each message.
const OPTIONS: [(i32, i32, u32); 10] = [
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, wants::TIME),
    (libc::SOL_SOCKET, SO_TIMESTAMP_NEW, wants::TIME_NEW),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, wants::NANOSECONDS),
    (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW, wants::NANOSECONDS_NEW),
    (libc::IPPROTO_IP, libc::IP_PKTINFO, wants::TARGET),
    (libc::IPPROTO_IP, libc::IP_RECVTTL, wants::TTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS, wants::TOS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, wants::TARGET_V6),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, wants::HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, wants::CLASS),
];

/// Returns the messages that the socket's program wants. An IPv6 socket has separate options for
/// IPv4.
pub fn wanted(socket: BorrowedFd<'_>) -> u32 {
    let is_set = |level, name| option_number(socket, level, name).is_ok_and(|value| value != 0);
    let bits = OPTIONS.iter().filter(|(level, name, _)| is_set(*level, *name));
    let bits = bits.fold(0, |all, (_, _, bit)| all | bit);
    // The kernel says that SO_TIMESTAMP_NEW is set when SO_TIMESTAMPNS_NEW is (`sk_getsockopt`),
    // and sends only the finer one.
    if bits & wants::NANOSECONDS_NEW == 0 { bits } else { bits & !wants::TIME_NEW }
}

/// The values for the messages with one datagram.
#[derive(Clone, Copy, Debug)]
pub struct DatagramAncillary {
    /// Bits of [`wants`].
    pub wants: u32,
    /// The fields that came with the datagram.
    pub envelope: Envelope,
    /// The index of the interface by which it came.
    pub interface: u32,
    /// The size of each of several merged datagrams but the last; 0 for a single one.
    pub segment_size: u16,
}

/// The outcome of writing the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the room that they took.
    pub len: usize,
    /// There was not room for all (`MSG_CTRUNC`).
    pub is_cut: bool,
}

impl DatagramAncillary {
    /// Bytes that all messages together take at most.
    pub const LEN_MAX: usize = 256;

    /// Returns true if there is a message to write.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.wants != 0 || self.segment_size > 0
    }

    /// Writes the messages one after another into `room` bytes: `put` copies a part of them to its
    /// offset. Padding is left as it is.
    pub fn write(&self, room: usize, put: impl FnMut(usize, &[u8])) -> Written {
        if !self.is_any() {
            return Written::default();
        }
        let mut messages = Messages { put, room, written: Written::default() };
        messages.time(self.wants, self.envelope.time_ns);
        if self.segment_size > 0 {
            let size = i32::from(self.segment_size).to_ne_bytes();
            messages.put(libc::SOL_UDP, UDP_GRO, &size);
        }
        messages.target_v6(self);
        match self.envelope.target {
            IpAddr::V4(_) => messages.v4(self),
            IpAddr::V6(_) => messages.v6(self),
        }
        messages.written
    }
}

/// Control messages that another process has written.
#[derive(Clone, Copy)]
pub struct ControlMessages {
    bytes: [u8; DatagramAncillary::LEN_MAX],
    len: usize,
}

impl ControlMessages {
    /// Returns what has been written so far: as much of `bytes` as there is room for.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let len = bytes.len().min(DatagramAncillary::LEN_MAX);
        let mut messages = Self { bytes: [0; DatagramAncillary::LEN_MAX], len };
        messages.bytes[..len].copy_from_slice(&bytes[..len]);
        messages
    }

    /// Writes the messages as [`DatagramAncillary::write`] does, up to the first that is malformed.
    /// Those by which the kernel tells of descriptors and of processes are left out: the writer is
    /// not believed so much.
    pub fn write(&self, room: usize, put: impl FnMut(usize, &[u8])) -> Written {
        let mut messages = Messages { put, room, written: Written::default() };
        let mut rest = &self.bytes[..self.len];
        while let Some(message) = Message::first(rest) {
            let Message { level, kind, data } = message;
            if level != libc::SOL_SOCKET || !OF_PROCESSES.contains(&kind) {
                messages.put(level, kind, data);
            }
            let len = (HEAD + data.len()).next_multiple_of(size_of::<usize>());
            rest = rest.get(len..).unwrap_or_default();
        }
        messages.written
    }
}

impl core::fmt::Debug for ControlMessages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ControlMessages").field(&&self.bytes[..self.len]).finish()
    }
}

/// `SCM_RIGHTS`, `SCM_CREDENTIALS`, `SCM_SECURITY`, `SCM_PIDFD` (linux/socket.h).
const OF_PROCESSES: core::ops::RangeInclusive<i32> = 1..=4;
/// Bytes of `struct cmsghdr`: length, level, type.
const HEAD: usize = size_of::<usize>() + 8;

/// A control message.
struct Message<'b> {
    level: i32,
    kind: i32,
    data: &'b [u8],
}

impl<'b> Message<'b> {
    /// Returns the first of several; `None` if it is malformed, or there is none.
    fn first(bytes: &'b [u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (level, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let data = rest.get(..usize::from_ne_bytes(*len).checked_sub(HEAD)?)?;
        Some(Self { level: i32::from_ne_bytes(*level), kind: i32::from_ne_bytes(*kind), data })
    }
}

/// The room that is being filled.
struct Messages<P> {
    put: P,
    room: usize,
    written: Written,
}

impl<P: FnMut(usize, &[u8])> Messages<P> {
    /// Writes one more message, as much of it as there is room for (`put_cmsg`, net/core/scm.c).
    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let left = self.room - self.written.len;
        if left < HEAD {
            self.written.is_cut = true;
            return;
        }
        let whole = HEAD + data.len();
        self.written.is_cut |= left < whole;
        let len = whole.min(left);
        let at = self.written.len;
        (self.put)(at, &len.to_ne_bytes());
        (self.put)(at + size_of::<usize>(), &level.to_ne_bytes());
        (self.put)(at + size_of::<usize>() + 4, &kind.to_ne_bytes());
        (self.put)(at + HEAD, &data[..len - HEAD]);
        self.written.len += whole.next_multiple_of(size_of::<usize>()).min(left);
    }

    fn time(&mut self, wants: u32, time_ns: u64) {
        let (kind, is_fine) = match wants {
            bits if bits & wants::NANOSECONDS_NEW != 0 => (SO_TIMESTAMPNS_NEW, true),
            bits if bits & wants::NANOSECONDS != 0 => (libc::SO_TIMESTAMPNS, true),
            bits if bits & wants::TIME_NEW != 0 => (SO_TIMESTAMP_NEW, false),
            bits if bits & wants::TIME != 0 => (libc::SO_TIMESTAMP, false),
            _ => return,
        };
        // A datagram without a time gets the current one, as in the kernel.
        let ns = if time_ns == 0 { now_ns() } else { time_ns };
        let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let rest = if is_fine { rest } else { rest / 1_000 };
        // On machines of 64 bits all four messages are two numbers of 64 bits.
        self.put(libc::SOL_SOCKET, kind, [seconds, rest].map(u64::to_ne_bytes).as_flattened());
    }

    /// Writes `struct in6_pktinfo`: address, interface. Programs get it with IPv4 datagrams as
    /// well.
    fn target_v6(&mut self, told: &DatagramAncillary) {
        if told.wants & wants::TARGET_V6 == 0 {
            return;
        }
        let mut data = [0; 20];
        let target = match told.envelope.target {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        data[..16].copy_from_slice(&target.octets());
        data[16..].copy_from_slice(&told.interface.to_ne_bytes());
        self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
    }

    fn v4(&mut self, told: &DatagramAncillary) {
        let Envelope { target, traffic_class, hop_limit, .. } = told.envelope;
        if let (IpAddr::V4(ip), true) = (target, told.wants & wants::TARGET != 0) {
            // `struct in_pktinfo`: the interface, the local address, and the packet's target
            // address, which are the same for a unicast datagram.
            let parts = [told.interface.to_ne_bytes(), ip.octets(), ip.octets()];
            self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, parts.as_flattened());
        }
        if told.wants & wants::TTL != 0 {
            self.put(libc::IPPROTO_IP, libc::IP_TTL, &i32::from(hop_limit).to_ne_bytes());
        }
        if told.wants & wants::TOS != 0 {
            self.put(libc::IPPROTO_IP, libc::IP_TOS, &[traffic_class]);
        }
    }

    fn v6(&mut self, told: &DatagramAncillary) {
        let Envelope { traffic_class, hop_limit, .. } = told.envelope;
        if told.wants & wants::HOPS != 0 {
            let hops = i32::from(hop_limit).to_ne_bytes();
            self.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
        }
        if told.wants & wants::CLASS != 0 {
            let class = i32::from(traffic_class).to_ne_bytes();
            self.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
        }
    }
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
#[path = "ancillary_tests.rs"]
mod tests;
