//! A packet socket without a ring: one message per packet in both directions. Read packet(7),
//! recvmsg(2).
//!
//! Not here: opening, binding and sending (`packet`). The frame is copied once, into a buffer of
//! this process. A ring also uses [`Inbox`], for the frames that do not fit its slots.

use crate::interface::{
    FRAME_BYTES_MAX, Interface, LinkError, OpenError, Properties, Received, Scatter, SendError,
    Statistics,
};
use crate::packet::{self, PacketOptions, ReceiveCounts, Socket};
use crate::pass_on::pass_on;
use crate::raw;
use core::ffi::c_void;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sojourn_wire::ethernet::{EtherType, VlanTag};
use sojourn_wire::vnet::{self, HEADER_BYTES};

/// The largest number of frames that one call drops.
const LOST_MAX: usize = 64;

/// A packet socket, one message per packet.
#[derive(Debug)]
pub struct Message {
    socket: Socket,
    inbox: Inbox,
    counts: ReceiveCounts,
}

impl Message {
    /// Opens a socket on the interface called `name`. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`OpenError::NotPermitted`], [`OpenError::NoDevice`], [`OpenError::UnknownLink`], and
    /// [`OpenError::Failed`] with the kernel's error.
    pub fn open(name: &str, options: &PacketOptions) -> Result<Self, OpenError> {
        let fd = packet::open(options)?;
        packet::bind(fd.as_fd(), packet::index_of(fd.as_fd(), name)?)?;
        Self::from_descriptor(fd)
    }

    /// Takes a packet socket that the caller has opened and bound, and perhaps filtered and locked.
    /// The socket must have no ring.
    ///
    /// # Errors
    /// [`OpenError::WrongDescriptor`] if the descriptor is not such a socket;
    /// [`OpenError::NoDevice`] if the interface is gone meanwhile.
    pub fn from_descriptor(fd: OwnedFd) -> Result<Self, OpenError> {
        let socket = Socket::take(fd)?;
        let inbox = Inbox::new();
        Ok(Self { socket, inbox, counts: ReceiveCounts::default() })
    }
}

impl Interface for Message {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        let mut count = 0;
        // Each turn takes a frame or ends the loop. The bound covers a socket that reports damaged
        // frames for ever.
        for _ in 0..budget.saturating_add(LOST_MAX) {
            if count == budget {
                break;
            }
            match self.inbox.take(self.socket.fd(), self.socket.has_vnet) {
                Taken::Frame(received) => {
                    accept(received);
                    count += 1;
                    self.counts.received += 1;
                }
                Taken::Truncated => self.counts.truncated += 1,
                Taken::Damaged => self.counts.damaged += 1,
                Taken::Nothing => break,
                Taken::Failed(error) => return Err(error.into()),
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }

    fn properties(&self) -> &Properties {
        &self.socket.properties
    }

    fn statistics(&mut self) -> Statistics {
        self.socket.statistics(self.counts)
    }

    pass_on!(self.socket: send, take_error, refresh);
}

/// The result of receiving from a socket's queue.
pub(crate) enum Taken<'a> {
    Frame(Received<'a>),
    /// A frame longer than the buffer; it is lost.
    Truncated,
    /// A frame whose offload header is missing or incomplete; it is lost.
    Damaged,
    Nothing,
    Failed(Errno),
}

/// Buffers for one frame and its control data.
#[derive(Debug)]
pub(crate) struct Inbox {
    frame: Box<[u8]>,
    control: Control,
}

/// A buffer for control data, aligned for its words.
#[derive(Debug)]
#[repr(C, align(8))]
struct Control([u8; 128]);

impl Inbox {
    pub(crate) fn new() -> Self {
        let frame = vec![0; FRAME_BYTES_MAX].into_boxed_slice();
        Self { frame, control: Control([0; 128]) }
    }

    /// Receives the next frame of the socket's queue.
    #[inline]
    pub(crate) fn take(&mut self, fd: BorrowedFd<'_>, has_vnet: bool) -> Taken<'_> {
        let mut header = [0; HEADER_BYTES];
        let header_len = if has_vnet { HEADER_BYTES } else { 0 };
        let mut parts = [io_slice(&mut header[..header_len]), io_slice(&mut self.frame)];
        let mut message = message_to(&mut parts);
        message.msg_control = self.control.0.as_mut_ptr().cast();
        message.msg_controllen = self.control.0.len() as _;
        // SAFETY: the message points to buffers of the lengths given, borrowed until after the
        // call.
        let len = match unsafe { raw::receive_message(fd, &mut message, FLAGS) } {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Taken::Nothing,
            // The kernel cannot describe this frame's offload and has dropped it (`tpacket_rcv`,
            // `packet_rcv_vnet`).
            Err(Errno::INVAL) => return Taken::Damaged,
            Err(error) => return Taken::Failed(error),
        };
        let Some(len) = len.checked_sub(header_len) else { return Taken::Damaged };
        let Some(frame) = self.frame.get(..len) else { return Taken::Truncated };
        let mut vnet = vnet::Header::parse(&header).unwrap_or_default();
        let metadata =
            auxiliary(self.control.0.get(..message.msg_controllen as _).unwrap_or_default());
        if !has_vnet && metadata.needs_no_look {
            vnet.checksum = vnet::Checksum::Valid;
        }
        Taken::Frame(Received { vnet, frame, tag: metadata.tag, time_ns: metadata.time_ns })
    }

    /// Receives the next frame, which is known to be `len` bytes long and to begin like `start`,
    /// and copies the bytes behind its headers to `place`. Returns false if the frame was another
    /// one or could not be copied there; it is lost then.
    pub(crate) fn take_to(
        &mut self,
        fd: BorrowedFd<'_>,
        has_vnet: bool,
        start: &[u8],
        len: usize,
        place: Scatter<'_>,
    ) -> Result<bool, Errno> {
        let mut header = [0; HEADER_BYTES];
        let header_len = if has_vnet { HEADER_BYTES } else { 0 };
        let at = place.at.min(self.frame.len());
        let [first, second, third] = place.parts;
        let mut parts = [
            io_slice(&mut header[..header_len]),
            io_slice(&mut self.frame[..at]),
            io_slice(first),
            io_slice(second),
            io_slice(third),
        ];
        let mut message = message_to(&mut parts);
        // SAFETY: as in `take`.
        match unsafe { raw::receive_message(fd, &mut message, FLAGS) } {
            Ok(taken) => Ok(taken == header_len + len && start.get(..at) == self.frame.get(..at)),
            // `EFAULT` means that the program's memory is not mapped. The frame is lost, the peer
            // sends its data again, and the program's own read reports the error.
            Err(Errno::AGAIN | Errno::INTR | Errno::INVAL | Errno::FAULT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// With `MSG_TRUNC` the returned length is the frame's, even if the frame did not fit.
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_TRUNC;

/// Returns a message header that receives into `parts`.
fn message_to(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message
}

/// Returns an I/O vector entry for bytes that the kernel writes.
fn io_slice(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() }
}

/// The facts about a frame in its control data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameMetadata {
    tag: Option<VlanTag>,
    needs_no_look: bool,
    time_ns: Option<u64>,
}

/// Bytes of a control message's header: length, level, type. cmsg(3).
const CONTROL_HEADER: usize = size_of::<libc::cmsghdr>();

/// Reads control messages; unknown or incomplete ones are ignored.
pub(crate) fn auxiliary(mut control: &[u8]) -> FrameMetadata {
    let mut metadata = FrameMetadata::default();
    while let Some((header, _)) = control.split_at_checked(CONTROL_HEADER) {
        let len = usize::from_ne_bytes(core::array::from_fn(|at| header[at]));
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
        };
        let Some(content) = control.get(CONTROL_HEADER..len) else { break };
        let level = word(header, size_of::<usize>()).map(u32::cast_signed);
        let kind = word(header, size_of::<usize>() + 4).map(u32::cast_signed);
        match (level, kind) {
            (Some(libc::SOL_PACKET), Some(libc::PACKET_AUXDATA)) if content.len() >= 20 => {
                // struct tpacket_auxdata: status, two lengths, two offsets, tag control, tag
                // protocol.
                let (status, tag) = (word(content, 0), word(content, 16));
                metadata.aux(status.unwrap_or_default(), tag.unwrap_or_default());
            }
            (Some(libc::SOL_SOCKET), Some(libc::SCM_TIMESTAMPNS)) if content.len() >= 16 => {
                let eight =
                    |at: usize| u64::from_ne_bytes(core::array::from_fn(|n| content[at + n]));
                metadata.time_ns =
                    Some(eight(0).wrapping_mul(1_000_000_000).wrapping_add(eight(8)));
            }
            _ => {}
        }
        let step = len.next_multiple_of(size_of::<usize>());
        control = control.get(step..).unwrap_or_default();
    }
    metadata
}

impl FrameMetadata {
    /// Takes the fields of `PACKET_AUXDATA`. `words` are tag control and tag protocol, 16 bits each
    /// in memory order.
    fn aux(&mut self, status: u32, words: u32) {
        const NO_LOOK: u32 = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID;
        self.needs_no_look = status & NO_LOOK != 0;
        let [a, b, c, d] = words.to_ne_bytes();
        self.tag = tag_of(status, u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    }
}

/// Returns the VLAN tag, if `status` has the flag for one.
pub(crate) fn tag_of(status: u32, control: u16, protocol: u16) -> Option<VlanTag> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let is_told = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let ether_type = if is_told { EtherType(protocol) } else { EtherType::VLAN };
    Some(VlanTag { ether_type, control })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn control_message(level: i32, kind: i32, content: &[u8]) -> Vec<u8> {
        let mut bytes = (CONTROL_HEADER + content.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn a_tag_and_a_time_are_told() {
        let status = libc::TP_STATUS_VLAN_VALID
            | libc::TP_STATUS_VLAN_TPID_VALID
            | libc::TP_STATUS_CSUM_VALID;
        let mut aux = status.to_ne_bytes().to_vec();
        aux.extend([0; 12]);
        aux.extend(0x2005u16.to_ne_bytes());
        aux.extend(0x88a8u16.to_ne_bytes());
        let mut bytes = control_message(libc::SOL_PACKET, libc::PACKET_AUXDATA, &aux);
        let time: Vec<u8> = [3u64.to_ne_bytes(), 7u64.to_ne_bytes()].concat();
        bytes.extend(control_message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time));
        let tag = VlanTag { ether_type: EtherType::SERVICE_VLAN, control: 0x2005 };
        let expected =
            FrameMetadata { tag: Some(tag), needs_no_look: true, time_ns: Some(3_000_000_007) };
        assert_eq!(auxiliary(&bytes), expected);
        // The first half of the control data gives only the first message.
        assert_eq!(auxiliary(&bytes[..CONTROL_HEADER + 19]), FrameMetadata::default());
        assert_eq!(auxiliary(&bytes[..40]).tag, Some(tag));
    }

    proptest! {
        #[test]
        fn nonsense_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            auxiliary(&bytes);
        }

        #[test]
        fn nonsense_with_plausible_lengths_is_survived(
            lens in proptest::collection::vec(0usize..64, 1..4),
            fill in any::<u8>(),
        ) {
            let bytes: Vec<u8> = lens
                .iter()
                .flat_map(|len| {
                    let mut part = len.to_ne_bytes().to_vec();
                    part.extend([fill; 24]);
                    part
                })
                .collect();
            auxiliary(&bytes);
        }
    }
}
