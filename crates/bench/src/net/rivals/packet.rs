//! A packet socket with the interface's offloads (packet(7), `PACKET_VNET_HDR`) as a device for
//! smoltcp.
//!
//! A header in front of each frame (`struct virtio_net_hdr`) says where its checksum belongs, and
//! in which pieces the interface has to cut it.

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::time::Instant;

/// Bytes of `struct virtio_net_hdr`.
const HEADER: usize = 10;
/// Bytes of an Ethernet header; below, of an IPv4 header without options.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const MTU: usize = 1500;
/// Bytes of the largest frame that the interface cuts into segments.
const LARGE: usize = 65_000;
const ROOM: usize = 1 << 17;
/// Offset of the checksum in a TCP header (RFC 9293, section 3.1).
const TCP_CHECKSUM: usize = 16;
const NEEDS_CHECKSUM: u8 = 1;
const SEGMENTS_TCP4: u8 = 1;
const TCP: u8 = 6;
/// From packet(7); some versions of `libc` lack it.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// The device.
pub(super) struct Packets {
    socket: OwnedFd,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Packets {
    /// Opens a socket on `interface`; its reads and writes do not block.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        let every = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain calls; arguments passed by address live through the call and have the size
        // that the call is told.
        let socket = unsafe {
            // Protocol 0: the socket receives nothing before it is bound to the interface.
            let socket = OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?);
            for option in [libc::PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING] {
                let on: libc::c_int = 1;
                check(libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_PACKET,
                    option,
                    (&raw const on).cast(),
                    size_of_val(&on) as libc::socklen_t,
                ))?;
            }
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = every;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()).cast_signed();
            let len = size_of_val(&address) as libc::socklen_t;
            check(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len))?;
            socket
        };
        Ok(Self { socket, incoming: vec![0; ROOM], outgoing: vec![0; ROOM] })
    }
}

impl AsRawFd for Packets {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Device for Packets {
    type RxToken<'a> = Incoming<'a>;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let buffer = &mut self.incoming;
        // SAFETY: the buffer has as many bytes as the call is told.
        let got = unsafe {
            libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
        };
        let got = usize::try_from(got).ok().filter(|got| *got > HEADER)?;
        let outgoing = Outgoing::new(&self.socket, &mut self.outgoing);
        Some((Incoming(&self.incoming[HEADER..got]), outgoing))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing::new(&self.socket, &mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ethernet;
        all.max_transmission_unit = ETHERNET + MTU;
        // The peer's kernel leaves checksums blank on a veth pair, so they are not checked; the
        // checksums of TCP segments that this client sends are left to the interface.
        all.checksum.tcp = Checksum::None;
        all.checksum.udp = Checksum::Tx;
        all.segmentation.tcpv4 = std::num::NonZeroUsize::new(LARGE);
        all
    }
}

/// A received frame.
pub(super) struct Incoming<'a>(&'a [u8]);

impl phy::RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

/// A frame to be sent.
pub(super) struct Outgoing<'a> {
    socket: &'a OwnedFd,
    buffer: &'a mut [u8],
    segment: Option<u16>,
}

impl<'a> Outgoing<'a> {
    fn new(socket: &'a OwnedFd, buffer: &'a mut [u8]) -> Self {
        Self { socket, buffer, segment: None }
    }
}

impl phy::TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, make: F) -> R {
        let (header, frame) = self.buffer[..HEADER + len].split_at_mut(HEADER);
        frame.fill(0);
        let made = make(frame);
        header.copy_from_slice(&offload(frame, self.segment));
        // SAFETY: the buffer has as many bytes as the call is told. A frame that finds no room in
        // the queue is lost, as on any link.
        unsafe {
            libc::send(self.socket.as_raw_fd(), self.buffer.as_ptr().cast(), HEADER + len, 0);
        }
        made
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size.map(Into::into);
    }
}

/// Returns the `struct virtio_net_hdr` with the interface's work on a frame. Writes the sum of the
/// pseudo header (RFC 9293, section 3.1) into the checksum field, as partial checksum offload
/// expects it.
fn offload(frame: &mut [u8], segment: Option<u16>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let is_tcp = frame.len() >= ETHERNET + IPV4 + 20
        && frame[12..14] == [8, 0]
        && frame[ETHERNET + 9] == TCP;
    if !is_tcp {
        return header;
    }
    let start = ETHERNET + IPV4;
    let bytes = frame.len() - start;
    let words = frame[ETHERNET + 12..ETHERNET + IPV4].chunks_exact(2);
    let mut sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    sum += u32::from(TCP) + bytes as u32;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let at = start + TCP_CHECKSUM;
    frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    header[0] = NEEDS_CHECKSUM;
    header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&(TCP_CHECKSUM as u16).to_ne_bytes());
    if let Some(segment) = segment {
        let headers = start + usize::from(frame[start + 12] >> 4) * 4;
        header[1] = SEGMENTS_TCP4;
        header[2..4].copy_from_slice(&(headers as u16).to_ne_bytes());
        header[4..6].copy_from_slice(&segment.to_ne_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tcp_is_left_to_the_interface() {
        let mut frame = vec![0; 80];
        frame[12] = 8;
        frame[ETHERNET + 9] = 17;
        assert_eq!(offload(&mut frame, None), [0; HEADER]);
        frame[ETHERNET + 9] = TCP;
        frame[ETHERNET + 12..ETHERNET + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[ETHERNET + IPV4 + 12] = 5 << 4;
        let header = offload(&mut frame, Some(1448));
        assert_eq!((header[0], header[1], header[6], header[8]), (1, 1, 34, 16));
        assert_eq!(u16::from_ne_bytes([header[2], header[3]]), 54);
        assert_eq!(u16::from_ne_bytes([header[4], header[5]]), 1448);
        // The pseudo header's sum: addresses 10.0 + 0.1 + 10.0 + 0.2, protocol 6, length 46.
        assert_eq!(frame[50..52], (0x0a00_u16 * 2 + 1 + 2 + 6 + 46).to_be_bytes());
    }
}
