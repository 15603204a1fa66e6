//! A tun device: a link without link headers, whose far end is a descriptor (the kernel's
//! `Documentation/networking/tuntap.rst`).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, IoSlice, IoSliceMut, readv, writev};
use sojourn_netif::{
    Interface, LinkError, LinkType, Outgoing, Properties, Received, SendError, Statistics, vnet,
};

/// The end of the device that is a descriptor.
#[derive(Debug)]
pub(crate) struct Tun {
    fd: OwnedFd,
    buffer: Vec<u8>,
    properties: Properties,
    counts: Statistics,
}

impl Tun {
    /// Makes a device of this name in this thread's network namespace. Returns `None`, and prints
    /// the reason, where there are no tun devices.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(fd) = open("/dev/net/tun", flags, Mode::empty()) else {
            eprintln!("skipped: no tun devices here");
            return None;
        };
        #[repr(C)]
        struct Request {
            name: [u8; 16],
            flags: u16,
            rest: [u8; 22],
        }
        let mut request = Request {
            name: [0; 16],
            flags: (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16,
            rest: [0; 22],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
        // SAFETY: the request has the layout of an interface request, which the call wants.
        let made = unsafe { libc::ioctl(raw, libc::TUNSETIFF as _, &raw mut request) };
        assert_eq!(made, 0, "TUNSETIFF");
        // TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6: partial checksums, and segments of TCP over both
        // versions.
        const OFFLOADS: libc::c_ulong = 1 | 2 | 4;
        // SAFETY: the argument is a number.
        let set = unsafe { libc::ioctl(raw, libc::TUNSETOFFLOAD as _, OFFLOADS) };
        assert_eq!(set, 0, "TUNSETOFFLOAD");
        let properties = Properties {
            index: 0,
            mtu: 1500,
            link: LinkType::Raw,
            address: None,
            checksum_offload: true,
            gso_max: 65_535,
        };
        Some(Self { fd, buffer: vec![0; 70_000], properties, counts: Statistics::default() })
    }
}

impl Interface for Tun {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        let mut header = [0; vnet::HEADER_BYTES];
        for count in 0..budget {
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut self.buffer)];
            let len = match readv(&self.fd, &mut parts) {
                Ok(len) => len - header.len(),
                Err(Errno::AGAIN) => return Ok(count),
                Err(errno) => return Err(LinkError::Failed(errno)),
            };
            let vnet = vnet::Header::parse(&header).unwrap();
            let frame = &self.buffer[..len];
            self.counts.received += 1;
            accept(Received { vnet, frame, tag: None, time_ns: None });
        }
        Ok(budget)
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        let limit = if frame.vnet.segments.is_some() { 65_535 } else { self.properties.mtu };
        if frame.len() > limit {
            return Err(SendError::TooLong);
        }
        let header = frame.vnet.to_bytes();
        let [first, second, third] = frame.parts.map(IoSlice::new);
        writev(&self.fd, &[IoSlice::new(&header), first, second, third])?;
        self.counts.sent += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn statistics(&mut self) -> Statistics {
        self.counts
    }
}
