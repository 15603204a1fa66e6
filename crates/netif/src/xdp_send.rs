//! The sending half of an AF_XDP socket: the transmit ring, the completion ring, and the chunks of
//! the memory area that frames leave from.
//!
//! Not here: receiving (`xdp`), and the choice of the frames that leave this way (`with_xdp`).
//! `Documentation/networking/af_xdp.rst` and `xsk-tx-metadata.rst` of the kernel.
//!
//! # Theory of operation
//! A frame is copied to a spare chunk, and its entry to the transmit ring. A system call makes the
//! kernel copy it to a buffer of its own and hand that to the driver (`__xsk_generic_xmit`), past
//! the queueing discipline and past taps. The completion ring returns the chunk.
//!
//! Since Linux 6.11 a few bytes before the frame may ask the device to complete a checksum, as the
//! offload header of a packet socket does. On an older kernel the checksum is completed here.

use crate::interface::{OpenError, Outgoing, SendError};
use crate::partial::complete_checksum;
use crate::umem::Umem;
use crate::xdp_ring::{ADDRESS_BYTES, Consumer, DESCRIPTOR_BYTES, Descriptor, Producer, Shared};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{SendFlags, send, sockopt};
use sojourn_wire::vnet::Checksum;

/// The largest number of system calls of one flush; each sends 32 frames.
const KICKS_MAX: usize = 64;
/// Bytes of `struct xsk_tx_metadata`, which ends where the frame begins.
const METADATA_BYTES: usize = 24;
/// The offset of the frame in its chunk, so that the frame begins at half a cache line.
const FRAME_AT: usize = 32;

/// The sizes of an AF_XDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XdpLayout {
    /// Chunks to receive into; 0 for a socket that only sends.
    pub(crate) receive_chunks: u32,
    /// Chunks to send from.
    pub(crate) send_chunks: u32,
    /// Bytes of a chunk: 2048 or 4096.
    pub(crate) chunk_len: u32,
}

impl XdpLayout {
    fn check(&self) -> Result<(), OpenError> {
        let is_count = |chunks: u32| chunks.is_power_of_two() && chunks <= 1 << 16;
        if !is_count(self.send_chunks) || !is_count(self.receive_chunks.max(1)) {
            return Err(OpenError::BadLayout("chunks: a power of two, 65,536 at most"));
        }
        if self.chunk_len != 2048 && self.chunk_len != 4096 {
            return Err(OpenError::BadLayout("chunks of 2048 or 4096 bytes"));
        }
        Ok(())
    }
}

/// An AF_XDP socket with its memory area, as far as it sends.
#[derive(Debug)]
pub(crate) struct XdpSending {
    // Declared before the socket, so that the rings are unmapped before the socket is closed.
    completion: Consumer,
    transmit: Producer,
    fd: OwnedFd,
    // Declared after the socket, because the kernel uses the area until the socket is closed.
    pub(crate) umem: Umem,
    /// Free chunks to send from.
    spare: Vec<u64>,
    /// The device completes checksums.
    leaves_checksums: bool,
    pub(crate) sent: u64,
}

impl XdpSending {
    /// Takes an AF_XDP socket that the caller has opened, and gives it memory of this process and
    /// rings.
    pub(crate) fn prepare(fd: OwnedFd, layout: &XdpLayout) -> Result<Self, OpenError> {
        layout.check()?;
        let &XdpLayout { receive_chunks, send_chunks, chunk_len } = layout;
        let umem = Umem::new(chunk_len as usize, receive_chunks as usize, send_chunks as usize)
            .map_err(OpenError::at("memory"))?;
        let leaves_checksums = register(fd.as_fd(), &umem)?;
        let error = OpenError::at("AF_XDP ring sizes");
        // The kernel binds no socket without a fill ring.
        sockopt::set_xdp_umem_fill_ring_size(&fd, receive_chunks.max(1)).map_err(&error)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, send_chunks).map_err(&error)?;
        if receive_chunks > 0 {
            sockopt::set_xdp_rx_ring_size(&fd, receive_chunks).map_err(&error)?;
        }
        sockopt::set_xdp_tx_ring_size(&fd, send_chunks).map_err(&error)?;
        let offsets = sockopt::xdp_mmap_offsets(&fd).map_err(OpenError::at("XDP_MMAP_OFFSETS"))?;
        let map = |offsets, page_offset, entry_len| {
            let mapped = Shared::map(fd.as_fd(), offsets, page_offset, entry_len, send_chunks);
            mapped.map_err(OpenError::at("mmap"))
        };
        let completion = map(&offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING, ADDRESS_BYTES)?;
        let transmit = map(&offsets.tx, XDP_PGOFF_TX_RING, DESCRIPTOR_BYTES)?;
        let spare = umem.send_chunks().collect();
        Ok(Self {
            completion: Consumer::new(completion),
            transmit: Producer::new(transmit),
            fd,
            umem,
            spare,
            leaves_checksums,
            sent: 0,
        })
    }

    /// Binds the socket to a queue of the interface with this index: it can send, and receive, from
    /// now on.
    pub(crate) fn bind(&self, index: u32, queue: u32) -> Result<(), OpenError> {
        let flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        rustix::net::bind(&self.fd, &SocketAddrXdp::new(flags, index, queue))
            .map_err(OpenError::at("bind"))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns true if the device completes checksums.
    pub(crate) const fn leaves_checksums(&self) -> bool {
        self.leaves_checksums
    }

    /// Returns the length of the longest frame that a chunk holds.
    pub(crate) const fn frame_max(&self) -> usize {
        self.umem.chunk_len() - FRAME_AT
    }

    /// Puts a frame without segmentation into the transmit ring.
    #[inline]
    pub(crate) fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        let len = frame.len();
        if len > self.frame_max() {
            return Err(SendError::TooLong);
        }
        // The chunk that was sent last is still in the processor's cache.
        self.reclaim();
        let Some(start) = self.spare.pop() else { return Err(SendError::Full) };
        // SAFETY: it was among the spare ones, which the kernel does not have.
        let chunk = unsafe { self.umem.chunk_mut(start) };
        let written = chunk.and_then(|chunk| written(chunk, frame, len, self.leaves_checksums));
        let Some(options) = written else {
            self.spare.push(start);
            return Err(SendError::Invalid);
        };
        let address = start + FRAME_AT as u64;
        // The ring has as many entries as there are chunks, so there is room.
        self.transmit.push_with(Descriptor { address, len: len as u32 }, options);
        self.sent += 1;
        Ok(())
    }

    /// Makes the kernel send the frames of the transmit ring.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), SendError> {
        self.transmit.publish();
        for _ in 0..KICKS_MAX {
            let pending = self.transmit.pending();
            if pending == 0 || !self.transmit.needs_wakeup() {
                break;
            }
            match send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) => {}
                // The kernel sends a limited number of frames per call and returns `EAGAIN` if more
                // remain (`__xsk_generic_xmit`).
                Err(Errno::AGAIN) if self.transmit.pending() < pending => {}
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => return Err(SendError::Full),
                Err(error) => return Err(SendError::Link(error.into())),
            }
        }
        Ok(())
    }

    /// Reclaims the chunks that the kernel has sent.
    #[inline]
    fn reclaim(&mut self) {
        let count = self.completion.available();
        for _ in 0..count {
            let Descriptor { address, .. } = self.completion.take();
            // More chunks than exist would be false completions, and would make the list grow.
            if let Some(start) = self.umem.send_chunk(address)
                && self.spare.len() < self.spare.capacity()
            {
                self.spare.push(start);
            }
        }
        if count > 0 {
            self.completion.release();
        }
    }
}

/// Registers the memory area. Returns true if bytes before a frame may ask for its checksum.
fn register(fd: BorrowedFd<'_>, umem: &Umem) -> Result<bool, OpenError> {
    let plain = XdpUmemReg {
        addr: umem.address(),
        len: umem.len() as u64,
        chunk_size: umem.chunk_len() as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    let flags = XdpUmemRegFlags::from_bits_retain(libc::XDP_UMEM_TX_METADATA_LEN);
    let area = XdpUmemReg { flags, tx_metadata_len: METADATA_BYTES as u32, ..plain };
    if sockopt::set_xdp_umem_reg(fd, area).is_ok() {
        return Ok(true);
    }
    // The kernel is older than 6.11, or the socket is not a fresh one of this family.
    sockopt::set_xdp_umem_reg(fd, plain).map_err(|errno| match errno {
        Errno::NOPROTOOPT | Errno::NOTSOCK | Errno::OPNOTSUPP => {
            OpenError::WrongDescriptor("not an AF_XDP socket")
        }
        Errno::BUSY => OpenError::WrongDescriptor("it has its memory already"),
        errno => OpenError::at("XDP_UMEM_REG")(errno),
    })?;
    Ok(false)
}

/// Writes a frame of `len` bytes to its chunk, with the request to complete its checksum, and
/// returns the options of its entry. `None` if the frame makes no sense; the kernel would refuse
/// its entry for ever.
#[inline]
fn written(chunk: &mut [u8], frame: &Outgoing<'_>, len: usize, is_left: bool) -> Option<u32> {
    let (before, bytes) = chunk.split_at_mut_checked(FRAME_AT)?;
    if len == 0 || frame.copy_to(bytes)? != len {
        return None;
    }
    let bytes = &mut bytes[..len];
    let Checksum::Partial { start, offset } = frame.vnet.checksum else { return Some(0) };
    if !is_left {
        return complete_checksum(bytes, frame.vnet.checksum).then_some(0);
    }
    if usize::from(start) + usize::from(offset) + 2 > len {
        return None;
    }
    let metadata = &mut before[FRAME_AT - METADATA_BYTES..];
    metadata[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
    metadata[8..10].copy_from_slice(&start.to_ne_bytes());
    metadata[10..12].copy_from_slice(&offset.to_ne_bytes());
    metadata[12..].fill(0);
    Some(libc::XDP_TX_METADATA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::vnet;

    fn frame(bytes: &[u8], checksum: Checksum) -> Outgoing<'_> {
        let vnet = vnet::Header { checksum, ..vnet::Header::NONE };
        Outgoing { vnet, parts: [bytes, &[], &[]] }
    }

    #[test]
    fn a_partial_checksum_is_asked_for_before_the_frame() {
        let mut chunk = [0xaa; 64];
        let partial = Checksum::Partial { start: 8, offset: 6 };
        let options = written(&mut chunk, &frame(&[7; 16], partial), 16, true);
        assert_eq!(options, Some(libc::XDP_TX_METADATA));
        assert_eq!(chunk[..8], [0xaa; 8], "before the request");
        assert_eq!(chunk[8..16], 2u64.to_ne_bytes());
        assert_eq!(chunk[16..20], [8u16.to_ne_bytes(), 6u16.to_ne_bytes()].concat());
        assert_eq!(chunk[20..32], [0; 12]);
        assert_eq!(chunk[32..48], [7; 16]);
        assert_eq!(chunk[48..], [0xaa; 16], "behind the frame");
    }

    #[test]
    fn what_the_kernel_would_refuse_for_ever_is_refused() {
        let mut chunk = [0; 64];
        let beyond = Checksum::Partial { start: 8, offset: 7 };
        assert_eq!(written(&mut chunk, &frame(&[7; 16], beyond), 16, true), None);
        assert_eq!(written(&mut chunk, &frame(&[], Checksum::Valid), 0, true), None);
        assert_eq!(written(&mut chunk, &frame(&[7; 33], Checksum::Valid), 33, true), None);
        assert_eq!(written(&mut chunk, &frame(&[7; 32], Checksum::Valid), 32, true), Some(0));
    }
}
