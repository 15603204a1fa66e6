//! A packet socket whose short frames are sent by an AF_XDP socket.
//!
//! Not here: the rings (`xdp_send`); AF_XDP in both directions (`xdp`).
//!
//! # Theory of operation
//! To send a short frame by an AF_XDP socket takes less of the kernel than sendmsg(2) on a packet
//! socket does. Frames that the device cuts into segments, or that no chunk holds, leave by the
//! packet socket, after the short ones before them. All frames arrive by the packet socket: an XDP
//! program and an AF_XDP socket are no faster at that than a mapped ring, a frame can then come one
//! way only, and the kernel's other frames are not copied for a program to look at.
//!
//! A frame that was sent by AF_XDP passes neither the queueing discipline, nor programs of TC, nor
//! taps such as tcpdump on this host. One AF_XDP socket can be bound to each queue of an interface.

use crate::interface::{
    Accept, Interface, LinkError, OpenError, Outgoing, Properties, Received, SendError, Statistics,
};
use crate::pass_on::pass_on;
use crate::xdp_send::{XdpLayout, XdpSending};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// Chunks to send from: more frames than one look at the sessions leaves.
const LAYOUT: XdpLayout = XdpLayout { receive_chunks: 0, send_chunks: 64, chunk_len: 2048 };
/// The largest number of queues that are tried.
const QUEUES_MAX: u32 = 64;

/// An AF_XDP socket that only sends, with its memory.
#[derive(Debug)]
pub struct XdpSender(XdpSending);

impl XdpSender {
    /// Takes an AF_XDP socket that the caller has opened and not bound, gives it memory of this
    /// process, and binds it to the first free queue of the interface with this index. Needs no
    /// right beyond the socket.
    ///
    /// # Errors
    /// [`OpenError::WrongDescriptor`]; [`OpenError::Failed`] with `EOPNOTSUPP` if the kernel is
    /// older than 6.11 and cannot leave checksums to the device, with `EBUSY` or `EINVAL` if every
    /// queue has an owner.
    pub fn open(socket: OwnedFd, index: u32) -> Result<Self, OpenError> {
        let sending = XdpSending::prepare(socket, &LAYOUT)?;
        if !sending.leaves_checksums() {
            return Err(OpenError::at("AF_XDP checksums")(Errno::OPNOTSUPP));
        }
        let mut bound = Ok(());
        for queue in 0..QUEUES_MAX {
            bound = sending.bind(index, queue);
            if !matches!(bound, Err(OpenError::Failed { errno: Errno::BUSY, .. })) {
                break;
            }
        }
        bound.map(|()| Self(sending))
    }
}

/// A packet socket, and an AF_XDP socket by which its short frames are sent.
#[derive(Debug)]
pub struct WithXdp<I> {
    packets: I,
    short: XdpSending,
    /// The longest frame that leaves by the AF_XDP socket.
    short_max: usize,
}

impl<I: Interface> WithXdp<I> {
    /// Sends the short frames of `packets` by `sender`, which is bound to the same interface.
    pub fn new(packets: I, sender: XdpSender) -> Self {
        let XdpSender(short) = sender;
        let short_max = short_max(packets.properties(), &short);
        Self { packets, short, short_max }
    }
}

/// Returns the length of the longest frame of the link that a chunk holds.
fn short_max(properties: &Properties, short: &XdpSending) -> usize {
    properties.frame_max().min(short.frame_max())
}

impl<I: Interface> Interface for WithXdp<I> {
    #[inline]
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        self.packets.receive(budget, accept)
    }

    #[inline]
    fn receive_to(&mut self, budget: usize, accept: &mut dyn Accept) -> Result<usize, LinkError> {
        self.packets.receive_to(budget, accept)
    }

    #[inline]
    fn has_nothing(&self) -> bool {
        self.packets.has_nothing()
    }

    #[inline]
    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        if frame.vnet.segments.is_none() && frame.len() <= self.short_max {
            match self.short.send(frame) {
                // The kernel has all chunks, which it returns as the driver lets go of the frames.
                Err(SendError::Full) => {}
                sent => return sent,
            }
        }
        // The short frames before this one go first. What the socket does not take now it takes at
        // the next flush: behind this frame, as on any network.
        let _ = self.short.flush();
        self.packets.send(frame)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), SendError> {
        self.short.flush()?;
        self.packets.flush()
    }

    fn refresh(&mut self) -> Result<(), LinkError> {
        self.packets.refresh()?;
        self.short_max = short_max(self.packets.properties(), &self.short);
        Ok(())
    }

    fn statistics(&mut self) -> Statistics {
        let statistics = self.packets.statistics();
        Statistics { sent: statistics.sent + self.short.sent, ..statistics }
    }

    pass_on!(self.packets: wait_fd, take_error, properties);
}
