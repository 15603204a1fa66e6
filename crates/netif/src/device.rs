//! The properties of a network interface: index, name, MTU, link header, address. Read
//! netdevice(7).
//!
//! The queries go through the packet socket, so the answers are those of the socket's network
//! namespace, which may differ from the thread's. Not here: routes, neighbours, and notification of
//! changes.

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, ioctl};
use sojourn_wire::MacAddress;
use sojourn_wire::frame::LinkType;

const SIOCGIFNAME: Opcode = libc::SIOCGIFNAME as Opcode;
const SIOCGIFINDEX: Opcode = libc::SIOCGIFINDEX as Opcode;
const SIOCGIFMTU: Opcode = libc::SIOCGIFMTU as Opcode;
const SIOCGIFHWADDR: Opcode = libc::SIOCGIFHWADDR as Opcode;
/// `linux/if_arp.h`.
const ARPHRD_RAWIP: u16 = 519;

/// A network interface at the time of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index in the network namespace.
    pub index: u32,
    /// The longest IP packet that the interface carries, in bytes.
    pub mtu: usize,
    /// The kind of link header of the interface's frames.
    pub link: LinkType,
    /// The link-layer address, if frames have such addresses.
    pub address: Option<MacAddress>,
}

/// The reason why an interface could not be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no interface of that name or index.
    #[error("there is no such interface")]
    None,
    /// The link headers are of an unknown kind (`ARPHRD_*`).
    #[error("link headers of type {0} are not supported")]
    UnknownLink(u16),
    /// Anything else.
    #[error("the kernel says: {0}")]
    Failed(Errno),
}

impl From<Errno> for DeviceError {
    fn from(errno: Errno) -> Self {
        if errno == Errno::NODEV { Self::None } else { Self::Failed(errno) }
    }
}

impl Device {
    /// Queries the interface called `name` in the network namespace of `socket`, which may be any
    /// socket.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such interface, if its link header is unknown, or if a query
    /// fails.
    pub fn by_name(socket: BorrowedFd<'_>, name: &str) -> core::result::Result<Self, DeviceError> {
        let mut request = Request::about(name.as_bytes()).ok_or(DeviceError::None)?;
        request.ask::<SIOCGIFINDEX>(socket)?;
        Self::complete(socket, request.number(), request)
    }

    /// Queries the interface with `index` in the network namespace of `socket`, which may be any
    /// socket.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such interface, if its link header is unknown, or if a query
    /// fails.
    pub fn by_index(socket: BorrowedFd<'_>, index: u32) -> core::result::Result<Self, DeviceError> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], body: [0; 24] };
        request.body[..4].copy_from_slice(&index.to_ne_bytes());
        request.ask::<SIOCGIFNAME>(socket)?;
        Self::complete(socket, index, request)
    }

    /// Completes a query; `request` has the interface's name.
    fn complete(
        socket: BorrowedFd<'_>,
        index: u32,
        mut request: Request,
    ) -> core::result::Result<Self, DeviceError> {
        request.ask::<SIOCGIFMTU>(socket)?;
        let mtu = request.number() as usize;
        request.ask::<SIOCGIFHWADDR>(socket)?;
        // The answer is a `struct sockaddr`: two bytes of family, which is the kind of link here,
        // then the address.
        let [low, high, address @ ..] = request.body;
        let address: [u8; 6] = core::array::from_fn(|at| address[at]);
        let (link, address) = match u16::from_ne_bytes([low, high]) {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => {
                (LinkType::Ethernet, Some(MacAddress(address)))
            }
            libc::ARPHRD_NONE | ARPHRD_RAWIP => (LinkType::Raw, None),
            other => return Err(DeviceError::UnknownLink(other)),
        };
        Ok(Self { index, mtu, link, address })
    }
}

/// `struct ifreq`: a name, and a union of which every member is written and read as bytes here.
#[repr(C, align(8))]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    body: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    /// Creates a request for the interface of that name; `None` if no interface can have the name.
    fn about(text: &[u8]) -> Option<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        if text.len() >= name.len() || text.contains(&0) {
            return None;
        }
        name[..text.len()].copy_from_slice(text);
        Some(Self { name, body: [0; 24] })
    }

    fn ask<const OPCODE: Opcode>(&mut self, socket: BorrowedFd<'_>) -> Result<()> {
        // SAFETY: the calls above take an interface request and write back no more than one.
        unsafe { ioctl(socket, Updater::<OPCODE, Self>::new(self)) }
    }

    /// Returns the answer of a request for a number.
    fn number(&self) -> u32 {
        u32::from_ne_bytes(core::array::from_fn(|at| self.body[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::net::{AddressFamily, SocketType, socket};

    #[test]
    fn the_loopback_interface_is_found_both_ways() {
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let by_name = Device::by_name(any.as_fd(), "lo").unwrap();
        assert_eq!(Device::by_index(any.as_fd(), by_name.index), Ok(by_name));
        assert_eq!(by_name.link, LinkType::Ethernet);
        assert!(by_name.mtu >= 1280);
        assert_eq!(by_name.address, Some(MacAddress([0; 6])));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        for name in ["", "no-such-thing", "a-name-that-is-much-too-long", "l\0o"] {
            assert_eq!(Device::by_name(any.as_fd(), name), Err(DeviceError::None), "{name:?}");
        }
        assert_eq!(Device::by_index(any.as_fd(), u32::MAX >> 1), Err(DeviceError::None));
    }
}
