//! The part of packet sockets that `message` and `ring` have in common: options, binding, sending.
//! Read packet(7).
//!
//! Not here: receiving (`message`, `ring`). The caller attaches filters and joins fanout groups
//! between [`open`], which returns a socket that receives nothing yet, and [`bind`].

use crate::device::{Device, DeviceError};
use crate::interface::{LinkError, OpenError, Outgoing, Properties, SendError, Statistics};
use crate::raw;
use core::ffi::c_void;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, socket_with, sockopt};
use sojourn_wire::vnet::HEADER_BYTES;

/// The longest IP packet that is cut into segments: the longest that IPv4's length field allows.
const GSO_MAX: usize = 65_535;

/// The options of a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// Every frame has an offload header (`PACKET_VNET_HDR`): partial checksums, and segments of up
    /// to 64 KB, both ways. Without it long outgoing frames are refused, and long arriving frames
    /// are not marked as such.
    pub vnet: bool,
    /// Frames that this host sends are not received (`PACKET_IGNORE_OUTGOING`).
    pub ignore_outgoing: bool,
    /// Sent frames go to the driver directly (`PACKET_QDISC_BYPASS`): they are not shaped, and
    /// neither taps such as tcpdump nor TC programs see them. Off by default for that reason.
    pub qdisc_bypass: bool,
    /// Frames received by messages have a time of arrival (`SO_TIMESTAMPNS`), as those in a ring
    /// always have.
    pub timestamps: bool,
    /// The receive buffer in bytes as the kernel counts them, about twice the payload. With
    /// `CAP_NET_ADMIN` every size is granted, otherwise up to twice `net.core.rmem_max`, which may
    /// be three frames of 64 KB. `None` keeps the system's default. A connection must not announce
    /// a larger window than this buffer holds.
    pub receive_buffer: Option<usize>,
    /// The send buffer in bytes, counted likewise. The system's default holds two or three frames
    /// of 64 KB.
    pub send_buffer: Option<usize>,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            vnet: true,
            ignore_outgoing: true,
            qdisc_bypass: false,
            timestamps: false,
            receive_buffer: Some(8 << 20),
            send_buffer: Some(4 << 20),
        }
    }
}

/// Opens a packet socket with `options` that is not bound and receives nothing yet.
///
/// # Errors
/// [`OpenError::NotPermitted`] without `CAP_NET_RAW`.
pub fn open(options: &PacketOptions) -> Result<OwnedFd, OpenError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // The protocol is 0: with another one the socket would receive from every interface until it is
    // bound (packet(7)).
    let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map_err(OpenError::at("socket"))?;
    configure(fd.as_fd(), options)?;
    Ok(fd)
}

/// Sets the options. `PACKET_VNET_HDR` cannot be changed once there is a ring.
pub fn configure(fd: BorrowedFd<'_>, options: &PacketOptions) -> Result<(), OpenError> {
    set_number(fd, libc::PACKET_VNET_HDR, options.vnet.into(), "PACKET_VNET_HDR")?;
    let ignore = options.ignore_outgoing.into();
    set_number(fd, libc::PACKET_IGNORE_OUTGOING, ignore, "PACKET_IGNORE_OUTGOING")?;
    let bypass = options.qdisc_bypass.into();
    set_number(fd, libc::PACKET_QDISC_BYPASS, bypass, "PACKET_QDISC_BYPASS")?;
    // The auxiliary data has the state of a frame's checksum, and the VLAN tag that the kernel took
    // out.
    set_number(fd, libc::PACKET_AUXDATA, 1, "PACKET_AUXDATA")?;
    if options.timestamps {
        raw::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)
            .map_err(OpenError::at("SO_TIMESTAMPNS"))?;
    }
    if let Some(bytes) = options.receive_buffer {
        sockopt::set_socket_recv_buffer_size_force(fd, bytes / 2)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, bytes / 2))
            .map_err(OpenError::at("SO_RCVBUF"))?;
    }
    if let Some(bytes) = options.send_buffer {
        let bytes = i32::try_from(bytes / 2).map_err(|_| OpenError::BadLayout("send buffer"))?;
        raw::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            .or_else(|_| raw::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
            .map_err(OpenError::at("SO_SNDBUF"))?;
    }
    Ok(())
}

/// Sets a numeric option of a packet socket.
pub(crate) fn set_number(
    fd: BorrowedFd<'_>,
    name: i32,
    value: i32,
    step: &'static str,
) -> Result<(), OpenError> {
    raw::set_option(fd, libc::SOL_PACKET, name, &value).map_err(OpenError::at(step))
}

/// Binds to all protocols of the interface with `index`: frames arrive from now on. The socket
/// needs all protocols (`ETH_P_ALL`), since a socket for one protocol comes after TC programs and
/// would not see the frames that they consume.
///
/// # Errors
/// [`OpenError::NoDevice`].
pub fn bind(fd: BorrowedFd<'_>, index: u32) -> Result<(), OpenError> {
    rustix::net::bind(fd, &Address { index }).map_err(OpenError::at("bind"))
}

/// Returns the index of the interface called `name` in the network namespace of `fd`.
///
/// # Errors
/// [`OpenError::NoDevice`], [`OpenError::UnknownLink`].
pub fn index_of(fd: BorrowedFd<'_>, name: &str) -> Result<u32, OpenError> {
    Ok(Device::by_name(fd, name)?.index)
}

impl From<DeviceError> for OpenError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::None => Self::NoDevice,
            DeviceError::UnknownLink(kind) => Self::UnknownLink(kind),
            DeviceError::Failed(errno) => Self::at("look at the interface")(errno),
        }
    }
}

impl From<DeviceError> for LinkError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::None | DeviceError::UnknownLink(_) => Self::Gone,
            DeviceError::Failed(errno) => errno.into(),
        }
    }
}

/// The address of an interface for bind(2).
struct Address {
    index: u32,
}

// SAFETY: what is lent is a whole link-layer address, which is what its family is for.
unsafe impl SocketAddrArg for Address {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: self.index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        f((&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32)
    }
}

/// Returns the index of the interface to which a packet socket is bound.
fn bound_to(fd: BorrowedFd<'_>) -> Result<u32, OpenError> {
    const WRONG: OpenError = OpenError::WrongDescriptor("not a packet socket");
    let kind = sockopt::socket_type(fd).map_err(|_| WRONG)?;
    let address = getsockname(fd).map_err(|_| WRONG)?;
    if address.address_family() != AddressFamily::PACKET || kind != SocketType::RAW {
        return Err(WRONG);
    }
    // The kernel omits the end of the link-layer address, which lies behind the index.
    let at = core::mem::offset_of!(libc::sockaddr_ll, sll_ifindex);
    if (address.addr_len() as usize) < at + 4 {
        return Err(WRONG);
    }
    // SAFETY: at least that many bytes of the address were written, as just checked.
    let index = unsafe { address.as_ptr().cast::<u8>().add(at).cast::<u32>().read_unaligned() };
    if index == 0 {
        return Err(OpenError::WrongDescriptor("not bound to an interface"));
    }
    Ok(index)
}

/// What a receiver of frames has counted: see [`Statistics`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveCounts {
    pub(crate) received: u64,
    pub(crate) truncated: u64,
    pub(crate) damaged: u64,
}

/// A bound packet socket with its interface's properties.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// True if an offload header precedes every frame.
    pub(crate) has_vnet: bool,
    pub(crate) properties: Properties,
    pub(crate) sent: u64,
    /// The sum of the drops that `PACKET_STATISTICS` has reported; the kernel resets its counters
    /// at each query.
    overruns: u64,
}

impl Socket {
    /// Takes a socket that the caller has opened and bound.
    pub(crate) fn take(fd: OwnedFd) -> Result<Self, OpenError> {
        let index = bound_to(fd.as_fd())?;
        let device = Device::by_index(fd.as_fd(), index)?;
        let has_vnet: i32 = raw::option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR)
            .map_err(OpenError::at("PACKET_VNET_HDR"))?;
        let has_vnet = has_vnet != 0;
        let properties = Properties {
            index,
            mtu: device.mtu,
            link: device.link,
            address: device.address,
            checksum_offload: has_vnet,
            gso_max: if has_vnet { GSO_MAX } else { 0 },
        };
        Ok(Self { fd, has_vnet, properties, sent: 0, overruns: 0 })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends the offload header and the frame's parts as one message.
    #[inline]
    pub(crate) fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        if !self.has_vnet && frame.needs_offload() {
            return Err(SendError::NoOffload);
        }
        let header: [u8; HEADER_BYTES] = frame.vnet.to_bytes();
        let header = if self.has_vnet { &header[..] } else { &[] };
        let [first, second, third] = frame.parts;
        let mut parts = [header, first, second, third].map(io_slice);
        // SAFETY: all zero is an empty message.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the message points to slices that are borrowed until after the call; the kernel
        // only reads them.
        let done = unsafe { raw::send_message(self.fd(), &message, libc::MSG_DONTWAIT) };
        done?;
        self.sent += 1;
        Ok(())
    }

    pub(crate) fn take_error(&mut self) -> Option<LinkError> {
        let error = sockopt::socket_error(self.fd()).ok()?;
        error.err().map(LinkError::from)
    }

    pub(crate) fn refresh(&mut self) -> Result<(), LinkError> {
        let device = Device::by_index(self.fd(), self.properties.index)?;
        self.properties.mtu = device.mtu;
        self.properties.address = device.address;
        Ok(())
    }

    /// Returns the counts of an interface that receives by this socket; the socket's own are filled
    /// in.
    pub(crate) fn statistics(&mut self, receiving: ReceiveCounts) -> Statistics {
        let ReceiveCounts { received, truncated, damaged } = receiving;
        Statistics { received, sent: self.sent, overruns: self.overruns(), truncated, damaged }
    }

    /// Returns the number of frames that the kernel dropped for lack of room since the socket was
    /// opened.
    fn overruns(&mut self) -> u64 {
        let asked: Result<libc::tpacket_stats, Errno> =
            raw::option(self.fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
        if let Ok(counts) = asked {
            self.overruns += u64::from(counts.tp_drops);
        }
        self.overruns
    }
}

/// Returns an I/O vector entry for bytes that the kernel reads.
fn io_slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast::<c_void>().cast_mut(), iov_len: bytes.len() }
}
