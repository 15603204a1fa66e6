//! Packets on the control socket.
//!
//! One `SOCK_SEQPACKET` socket per connection carries the rare packets: the greeting, descriptors,
//! the registration of grants, and wake-ups for a side that sleeps on the socket. Packets are
//! fixed: 40 bytes, so a short or long one is an error at once. See unix(7), cmsg(3). Not here: the
//! effect of a packet on a connection's state (`greet`, `packets` and `link` for the server,
//! `connect` and `connection` for the client).

use crate::ancillary::{self, Arrived};
use crate::layout::Seq;
use crate::rt::Credentials;
use crate::shares::Share;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use sojourn_shm::{AtomicU32, futex, park};

/// First word of a greeting: identifies Sojourn and the version of the region.
pub(crate) const GREETING: u64 = 0x534a_4950_4331_0001;
pub(crate) const PACKET_LEN: usize = 40;
/// Flag of a welcome: the server prefers a message in one piece if it fits.
pub(crate) const WHOLE: u64 = 1 << 32;

/// The topic of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Topic {
    /// Client: `a` greeting, `b` calls wanted outstanding | payload wanted << 32, `c` longest
    /// answer.
    Hello = 1,
    /// Server: `number` index, `a` generation | slots << 32, `b` area | [`WHOLE`], `c` longest
    /// request, `d` the endpoint's number in its address space; the region.
    Welcome = 2,
    /// Server: `number` the reason.
    Refused = 3,
    /// Either: a wake-up to look at the region.
    Wake = 4,
    /// Either: `number` the sequence number of the message that announces these descriptors.
    Descriptors = 5,
    /// Client: `number` the grant, `a` length, `b` 1 if writable; the segment.
    Register = 6,
    /// Client: `number` the grant.
    Unregister = 7,
    /// Server: answers the last two; `number` the grant, `a` 0 or a reason.
    Done = 8,
}

/// A packet without its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) topic: Topic,
    /// The number that the topic tells of.
    pub(crate) number: u32,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
    pub(crate) d: u64,
}

impl Packet {
    pub(crate) fn new(topic: Topic, number: u32) -> Self {
        Self { topic, number, a: 0, b: 0, c: 0, d: 0 }
    }

    fn to_bytes(self) -> [u8; PACKET_LEN] {
        let mut bytes = [0; PACKET_LEN];
        bytes[..4].copy_from_slice(&(self.topic as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.a.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.b.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.c.to_ne_bytes());
        bytes[32..].copy_from_slice(&self.d.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PACKET_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let topic = match half(0) {
            1 => Topic::Hello,
            2 => Topic::Welcome,
            3 => Topic::Refused,
            4 => Topic::Wake,
            5 => Topic::Descriptors,
            6 => Topic::Register,
            7 => Topic::Unregister,
            8 => Topic::Done,
            _ => return None,
        };
        Some(Self { topic, number: half(4), a: word(8), b: word(16), c: word(24), d: word(32) })
    }
}

/// The result of receiving from a control socket.
#[derive(Debug)]
pub(crate) enum Received {
    /// A packet with its descriptors. `lost` is true if the kernel could not deliver all of them;
    /// `sender` is set if the socket has `SO_PASSCRED`.
    Packet { packet: Packet, fds: Vec<OwnedFd>, lost: bool, sender: Option<Credentials> },
    /// Not a packet of this protocol.
    Nonsense,
    /// No packet waits.
    Empty,
    /// The peer is gone.
    Ended,
}

/// Sends one packet without waiting. Fails with `EAGAIN` if the peer does not read its socket.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    packet: Packet,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    ancillary::send(socket, &[IoSlice::new(&packet.to_bytes())], fds)
}

/// Receives one packet without waiting.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Received {
    let mut bytes = [0; PACKET_LEN + 1];
    let arrived = ancillary::receive(socket, &mut bytes);
    read(arrived, &bytes)
}

/// Interprets a received packet.
pub(crate) fn read(arrived: Result<Arrived, Errno>, bytes: &[u8; PACKET_LEN + 1]) -> Received {
    let Arrived { len, fds, lost, sender } = match arrived {
        Ok(arrived) => arrived,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Empty,
        Err(_) => return Received::Ended,
    };
    if len == 0 {
        return Received::Ended;
    }
    match bytes.get(..len).and_then(Packet::from_bytes) {
        Some(packet) => Received::Packet { packet, fds, lost, sender },
        None => Received::Nonsense,
    }
}

/// Descriptors that came before the message that announces them.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The sequence number of that message.
    pub(crate) seq: Seq,
    pub(crate) fds: Vec<OwnedFd>,
    /// The share of a server's descriptors that its client has so; a client counts none.
    pub(crate) share: Option<Share>,
}

/// The batches of a connection.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    batches: Vec<Batch>,
}

impl Inbox {
    /// Keeps a batch; returns false if as many wait as a connection may have.
    pub(crate) fn put(&mut self, batch: Batch, batches_max: usize) -> bool {
        if self.batches.len() >= batches_max {
            return false;
        }
        self.batches.push(batch);
        true
    }

    /// Takes the batch for message `seq`.
    pub(crate) fn take(&mut self, seq: Seq) -> Option<Vec<OwnedFd>> {
        let at = self.batches.iter().position(|batch| batch.seq == seq)?;
        let Batch { fds, share, .. } = self.batches.swap_remove(at);
        drop(share);
        Some(fds)
    }
}

/// Wakes the peer after a publication, if its bell says that it sleeps.
#[inline(always)]
pub(crate) fn ring(bell: &AtomicU32, socket: &impl AsFd) {
    match park::ring(bell) {
        park::AWAKE => {}
        how => wake(bell, socket, how),
    }
}

#[inline(never)]
fn wake(bell: &AtomicU32, socket: &impl AsFd, how: u32) {
    if how == park::ON_FUTEX {
        return futex::wake(bell);
    }
    // If the socket is full, a packet in it already wakes the peer.
    let _ = send(socket.as_fd(), Packet::new(Topic::Wake, 0), &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn packets_and_descriptors_arrive_as_sent() {
        let (ours, theirs) = pair();
        let packet = Packet { topic: Topic::Register, number: 7, a: 1 << 40, b: 2, c: 3, d: 4 };
        send(ours.as_fd(), packet, &[ours.as_fd(), theirs.as_fd()]).unwrap();
        match receive(theirs.as_fd()) {
            Received::Packet { packet: got, fds, lost, .. } => {
                assert_eq!((got, fds.len(), lost), (packet, 2, false));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(receive(theirs.as_fd()), Received::Empty));
    }

    #[test]
    fn short_long_and_unknown_packets_are_nonsense() {
        let (ours, theirs) = pair();
        for bytes in [&[0u8; 39][..], &[0; 41], &[0; 40], &[9; 40]] {
            rustix::net::send(&ours, bytes, SendFlags::empty()).unwrap();
            assert!(matches!(receive(theirs.as_fd()), Received::Nonsense));
        }
        drop(ours);
        assert!(matches!(receive(theirs.as_fd()), Received::Ended));
    }

    #[test]
    fn an_inbox_is_bounded_and_finds_by_sequence() {
        let mut inbox = Inbox::default();
        let batch = |seq| Batch { seq: Seq(seq), fds: vec![], share: None };
        assert!(inbox.put(batch(1), 2) && inbox.put(batch(2), 2));
        assert!(!inbox.put(batch(3), 2));
        let [one, two] = [Seq(1), Seq(2)];
        assert!(
            inbox.take(two).is_some() && inbox.take(two).is_none() && inbox.take(one).is_some()
        );
    }
}
