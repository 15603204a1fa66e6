//! AF_XDP in copy mode: receives the frames of one queue of an interface that an XDP program
//! redirects to this socket.
//!
//! Not here: sending (`xdp_send`); that program, and its map of sockets. The code that loads them
//! enters this socket's descriptor ([`AsFd`]). `Documentation/networking/af_xdp.rst` of the kernel.
//!
//! # Theory of operation
//! A memory area is registered with the kernel: half of its chunks are for receiving, and travel
//! through the fill ring to the kernel and through the receive ring back; the other half are for
//! sending, through the transmit ring and the completion ring. In copy mode the kernel copies
//! between chunks and its own buffers, which works on every device; it is also all that veth has.
//!
//! AF_XDP differs from packet sockets in these points. Frames have no offload header, so long
//! frames do not arrive (the other side must not make them) and partial checksums arrive without a
//! mark ([`XdpOptions::trusts_checksums`]). Taps such as tcpdump see neither direction. A queue has
//! one owner. The holder of an AF_XDP socket can send any frame on any interface.

use crate::device::Device;
use crate::interface::{
    Interface, LinkError, OpenError, Outgoing, Properties, Received, SendError, Statistics,
};
use crate::xdp_ring::{ADDRESS_BYTES, Consumer, DESCRIPTOR_BYTES, Descriptor, Producer, Shared};
use crate::xdp_send::{XdpLayout, XdpSending};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::xdp::{XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt};
use sojourn_wire::vnet::{self, Checksum};

/// The options of an AF_XDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface's queue.
    pub queue: u32,
    /// Chunks to receive into, and as many to send from: a power of two.
    pub chunks: u32,
    /// Bytes of a chunk: 2048 or 4096. A frame must fit, behind 256 bytes that the kernel keeps.
    pub chunk_len: u32,
    /// True if arriving frames count as undamaged. That is right for veth, on which frames of a
    /// kernel on this host have partial checksums without a mark, and wrong for a real link.
    pub trusts_checksums: bool,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self { queue: 0, chunks: 2048, chunk_len: 2048, trusts_checksums: false }
    }
}

/// An AF_XDP socket.
#[derive(Debug)]
pub struct Xdp {
    // Declared before the socket, so that the rings are unmapped before the socket is closed.
    fill: Producer,
    receive: Consumer,
    sending: XdpSending,
    /// A socket for queries about the interface.
    control: OwnedFd,
    checksum: Checksum,
    properties: Properties,
    counts: Statistics,
}

impl Xdp {
    /// Opens a socket for one queue of the interface called `name`. Needs `CAP_NET_RAW`. Nothing
    /// arrives until an XDP program finds it.
    ///
    /// # Errors
    /// [`OpenError::NotPermitted`], [`OpenError::NoDevice`], [`OpenError::UnknownLink`],
    /// [`OpenError::BadLayout`]; `EBUSY` at `bind` if the queue has an owner.
    pub fn open(name: &str, options: &XdpOptions) -> Result<Self, OpenError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
            .map_err(OpenError::at("socket"))?;
        let control = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
            .map_err(OpenError::at("socket"))?;
        let index = Device::by_name(control.as_fd(), name)?.index;
        Self::from_descriptor(fd, control, index, options)
    }

    /// Takes an AF_XDP socket that the caller has opened and not bound, gives it memory of this
    /// process and binds it. `control` is any other socket of the same network namespace, because
    /// AF_XDP sockets do not answer queries about interfaces.
    ///
    /// # Errors
    /// As for [`Xdp::open`]; [`OpenError::WrongDescriptor`].
    pub fn from_descriptor(
        fd: OwnedFd,
        control: OwnedFd,
        index: u32,
        options: &XdpOptions,
    ) -> Result<Self, OpenError> {
        let &XdpOptions { queue, chunks, chunk_len, trusts_checksums } = options;
        let layout = XdpLayout { receive_chunks: chunks, send_chunks: chunks, chunk_len };
        let sending = XdpSending::prepare(fd, &layout)?;
        let device = Device::by_index(control.as_fd(), index)?;
        let at = sending.fd();
        let offsets = sockopt::xdp_mmap_offsets(at).map_err(OpenError::at("XDP_MMAP_OFFSETS"))?;
        let map = |offsets, page_offset, entry_len| {
            Shared::map(at, offsets, page_offset, entry_len, chunks).map_err(OpenError::at("mmap"))
        };
        let fill = map(&offsets.fr, XDP_UMEM_PGOFF_FILL_RING, ADDRESS_BYTES)?;
        let receive = map(&offsets.rx, XDP_PGOFF_RX_RING, DESCRIPTOR_BYTES)?;
        let (mut fill, receive) = (Producer::new(fill), Consumer::new(receive));
        for address in sending.umem.receive_chunks() {
            fill.push(Descriptor { address, len: 0 });
        }
        fill.publish();
        sending.bind(index, queue)?;
        let properties = Properties {
            index,
            mtu: device.mtu,
            link: device.link,
            address: device.address,
            // The checksum is completed at the latest while the frame is copied.
            checksum_offload: true,
            gso_max: 0,
        };
        let checksum = if trusts_checksums { Checksum::Valid } else { Checksum::Unknown };
        let counts = Statistics::default();
        Ok(Self { fill, receive, sending, control, checksum, properties, counts })
    }
}

/// The descriptor is for the map in which the XDP program finds the socket.
impl AsFd for Xdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sending.fd()
    }
}

impl Interface for Xdp {
    #[inline]
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        let available = (self.receive.available() as usize).min(budget);
        let vnet = vnet::Header { checksum: self.checksum, ..vnet::Header::NONE };
        let mut count = 0;
        for _ in 0..available {
            let entry = self.receive.take();
            // SAFETY: the chunk goes back below, after the callback.
            match unsafe { self.sending.umem.frame(entry) } {
                Some(frame) => {
                    accept(Received { vnet, frame, tag: None, time_ns: None });
                    count += 1;
                }
                None => self.counts.damaged += 1,
            }
            if let Some(address) = self.sending.umem.receive_chunk(entry.address) {
                self.fill.push(Descriptor { address, len: 0 });
            }
        }
        if available > 0 {
            self.receive.release();
            self.fill.publish();
            self.counts.received += count as u64;
        }
        if self.fill.needs_wakeup() {
            // The result does not matter, because the next call tries again.
            let _ = recv(self.sending.fd(), &mut [0; 0][..], RecvFlags::DONTWAIT);
        }
        Ok(count)
    }

    #[inline]
    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        if frame.vnet.segments.is_some() {
            return Err(SendError::NoOffload);
        }
        if frame.len() > self.properties.frame_max() {
            return Err(SendError::TooLong);
        }
        self.sending.send(frame)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), SendError> {
        self.sending.flush()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sending.fd())
    }

    fn take_error(&mut self) -> Option<LinkError> {
        sockopt::socket_error(self.sending.fd()).ok()?.err().map(LinkError::from)
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn refresh(&mut self) -> Result<(), LinkError> {
        let device = Device::by_index(self.control.as_fd(), self.properties.index)?;
        self.properties.mtu = device.mtu;
        self.properties.address = device.address;
        Ok(())
    }

    fn statistics(&mut self) -> Statistics {
        let mut counts = Statistics { sent: self.sending.sent, ..self.counts };
        if let Ok(told) = sockopt::xdp_statistics(self.sending.fd()) {
            let full = told.rx_ring_full.unwrap_or(0);
            counts.overruns = full + told.rx_fill_ring_empty_descs.unwrap_or(0);
            // These are mostly frames longer than a chunk; the kernel does not distinguish them
            // from other drops.
            counts.truncated = told.rx_dropped;
            counts.damaged += told.rx_invalid_descs + told.tx_invalid_descs;
        }
        counts
    }
}
