//! Interfaces by netlink (rtnetlink(7)): queries, making and removing the pairs behind ports, and
//! the older way to attach programs.
//!
//! The file encodes and decodes seven kinds of request itself: a message is a header, a fixed
//! structure and attributes. All requests act in the network name space of the calling thread. Not
//! here: routes and neighbours (`sojourn-server`).

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use sojourn_wire::MacAddress;
use sojourn_wire::frame::LinkType;
use sojourn_wire::netlink::{Attribute, Message, attributes, find, messages};
use std::io;

const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_QDISC: u16 = 36;
const NEW_FILTER: u16 = 44;
const DEL_FILTER: u16 = 45;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const DUMP: u16 = 0x300;

const ERROR: u16 = 2;
const DONE: u16 = 3;

const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const ALIAS: u16 = 20;
const NETNS_FD: u16 = 28;
const XDP: u16 = 43;
const XDP_PROGRAM: u16 = 4;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;

const HEADER_LEN: usize = 16;
const LINK_LEN: usize = 16;
const UP: u32 = 1;
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;

/// An interface, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index in its network name space.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The alias, which an administrator may set; for ports, their description.
    pub alias: String,
    /// The kind of link header.
    pub link: LinkType,
    /// The link-layer address; zeros if it has none.
    pub mac: MacAddress,
    /// The MTU in bytes.
    pub mtu: u32,
    /// True if the interface is administratively up (`IFF_UP`).
    pub is_up: bool,
    /// The number of the interface's XDP program, if it has one.
    pub xdp_program: Option<u32>,
}

/// A queueing discipline or a program on one (`struct tcmsg`).
struct Traffic {
    interface: u32,
    handle: u32,
    parent: u32,
    /// A program's priority, and the protocol of its packets.
    info: u32,
}

/// A message under construction.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST).to_ne_bytes());
        bytes.extend(fixed);
        Self(bytes)
    }

    /// Creates a request about links (`struct ifinfomsg`).
    fn link(kind: u16, flags: u16, index: u32, up: bool) -> Self {
        Self::new(kind, flags, &link_message(index, up))
    }

    /// Creates a request about queueing disciplines and programs.
    fn traffic(kind: u16, flags: u16, traffic: &Traffic) -> Self {
        let Traffic { interface, handle, parent, info } = *traffic;
        let words = [0, interface, handle, parent, info];
        Self::new(kind, flags, &words.map(u32::to_ne_bytes).concat())
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nested(kind, |inside| inside.0.extend(value))
    }

    /// Adds an attribute whose value `fill` writes.
    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.0.len();
        self.0.extend([0; 4]);
        fill(self);
        let len = (self.0.len() - at) as u16;
        self.0[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        self.0[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

fn link_message(index: u32, up: bool) -> [u8; LINK_LEN] {
    let mut fixed = [0; LINK_LEN];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    if up {
        fixed[8..12].copy_from_slice(&UP.to_ne_bytes());
        fixed[12..16].copy_from_slice(&UP.to_ne_bytes());
    }
    fixed
}

fn zero_ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// A conversation with the kernel about one network name space.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket in the calling thread's current name space.
    pub(crate) fn new() -> io::Result<Self> {
        // The first of netlink's protocols, NETLINK_ROUTE, is number 0, the default.
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        Ok(Self(rustix::net::socket_with(family, SocketType::RAW, flags, None)?))
    }

    /// Sends a request, and passes every message of the answer to `take`.
    fn ask(&self, mut request: Request, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let len = request.0.len() as u32;
        request.0[..4].copy_from_slice(&len.to_ne_bytes());
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.0, &request.0, SendFlags::empty(), &kernel)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (len, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            for Message { kind, body, .. } in messages(&buffer[..len]) {
                match kind {
                    DONE => return Ok(()),
                    ERROR => return status(body),
                    _ => take(body),
                }
            }
        }
    }

    /// Sends a request, and waits for its acknowledgement.
    fn tell(&self, request: Request) -> io::Result<()> {
        self.ask(request, |_| ())
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn status(body: &[u8]) -> io::Result<()> {
    match word(body, 0).unwrap_or(0) as i32 {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
    }
}

pub(crate) fn interface(body: &[u8]) -> Option<Interface> {
    let (hardware, index, flags) = (half(body, 2)?, word(body, 4)?, word(body, 8)?);
    let mut found = Interface {
        index,
        name: String::new(),
        alias: String::new(),
        link: if matches!(hardware, ETHERNET | LOOPBACK) {
            LinkType::Ethernet
        } else {
            LinkType::Raw
        },
        mac: MacAddress::default(),
        mtu: 0,
        is_up: flags & UP != 0,
        xdp_program: None,
    };
    let text = |value: &[u8]| {
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        String::from_utf8_lossy(&value[..end]).into_owned()
    };
    for Attribute { kind, value } in attributes(body.get(LINK_LEN..)?) {
        match kind {
            NAME => found.name = text(value),
            ALIAS => found.alias = text(value),
            XDP => found.xdp_program = find(value, XDP_PROGRAM).and_then(|value| word(value, 0)),
            MTU => found.mtu = word(value, 0).unwrap_or(0),
            ADDRESS => found.mac = value.try_into().map(MacAddress).unwrap_or_default(),
            _ => {}
        }
    }
    Some(found)
}

/// Returns all interfaces.
///
/// # Errors
/// The kernel's error.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found = Vec::new();
    Socket::new()?
        .ask(Request::link(GET_LINK, DUMP, 0, false), |body| found.extend(interface(body)))?;
    Ok(found)
}

/// Returns the interface with an index.
///
/// # Errors
/// `ENODEV` if there is none.
pub fn by_index(index: u32) -> io::Result<Interface> {
    one(Request::link(GET_LINK, ACK, index, false))
}

/// Returns the interface with a name.
///
/// # Errors
/// `ENODEV` if there is none.
pub fn by_name(name: &str) -> io::Result<Interface> {
    let mut request = Request::link(GET_LINK, ACK, 0, false);
    request.attribute(NAME, &zero_ended(name));
    one(request)
}

fn one(request: Request) -> io::Result<Interface> {
    let mut found = None;
    Socket::new()?.ask(request, |body| found = interface(body))?;
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

/// A pair of virtual Ethernet interfaces to be made: one end in the name space of the socket
/// `here`, its peer in another one.
pub(crate) struct Pair<'a> {
    pub(crate) name: &'a str,
    pub(crate) mtu: u32,
    pub(crate) peer_name: &'a str,
    pub(crate) peer_mac: MacAddress,
    pub(crate) peer_network: BorrowedFd<'a>,
}

/// Makes a pair; both ends are down.
///
/// # Errors
/// `EEXIST` if there is an interface of the name, `EPERM` without `CAP_NET_ADMIN` in both name
/// spaces.
pub(crate) fn add_pair(here: &Socket, pair: &Pair<'_>) -> io::Result<()> {
    let mut request = Request::link(NEW_LINK, ACK | CREATE | EXCLUSIVE, 0, false);
    let mtu = pair.mtu.to_ne_bytes();
    let network = pair.peer_network.as_fd().as_raw_fd().to_ne_bytes();
    request.attribute(NAME, &zero_ended(pair.name)).attribute(MTU, &mtu);
    request.nested(LINK_INFO, |info| {
        info.attribute(INFO_KIND, b"veth");
        info.nested(INFO_DATA, |data| {
            data.nested(VETH_PEER, |peer| {
                peer.0.extend(link_message(0, false));
                peer.attribute(NAME, &zero_ended(pair.peer_name)).attribute(MTU, &mtu);
                peer.attribute(ADDRESS, &pair.peer_mac.0).attribute(NETNS_FD, &network);
            });
        });
    });
    here.tell(request)
}

/// Sets the alias of an interface.
pub(crate) fn set_alias(index: u32, alias: &str) -> io::Result<()> {
    let mut request = Request::link(NEW_LINK, ACK, index, false);
    request.attribute(ALIAS, alias.as_bytes());
    Socket::new()?.tell(request)
}

/// Sets an interface up.
pub(crate) fn set_up(index: u32) -> io::Result<()> {
    Socket::new()?.tell(Request::link(NEW_LINK, ACK, index, true))
}

/// Removes an interface, and its peer.
pub(crate) fn delete(index: u32) -> io::Result<()> {
    Socket::new()?.tell(Request::link(DEL_LINK, ACK, index, false))
}

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const DIRECT_ACTION: u32 = 1;
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const MINOR_INGRESS: u32 = 0xfff2;
const MINOR_EGRESS: u32 = 0xfff3;
/// The priority by which, with their name, the project's programs are recognised.
const PRIORITY: u32 = 0x50a;
const ALL_PROTOCOLS: u32 = 3;

/// Attaches a program the way of kernels before 6.6: to a queueing discipline, until it is detached
/// or the interface goes.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    name: &str,
    interface: u32,
    egress: bool,
) -> io::Result<()> {
    let socket = Socket::new()?;
    let flags = ACK | CREATE | EXCLUSIVE;
    let traffic = Traffic { interface, handle: CLSACT_HANDLE, parent: CLSACT, info: 0 };
    let mut queue = Request::traffic(NEW_QDISC, flags, &traffic);
    queue.attribute(KIND, &zero_ended("clsact"));
    match socket.tell(queue) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut filter = filter(NEW_FILTER, flags, interface, egress);
    filter.attribute(KIND, &zero_ended("bpf"));
    filter.nested(OPTIONS, |options| {
        options.attribute(BPF_FD, &program.as_raw_fd().to_ne_bytes());
        options.attribute(BPF_NAME, &zero_ended(name));
        options.attribute(BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes());
    });
    socket.tell(filter)
}

/// Detaches a program that [`attach`] attached.
pub(crate) fn detach(interface: u32, egress: bool) -> io::Result<()> {
    Socket::new()?.tell(filter(DEL_FILTER, ACK, interface, egress))
}

fn filter(kind: u16, flags: u16, interface: u32, egress: bool) -> Request {
    let minor = if egress { MINOR_EGRESS } else { MINOR_INGRESS };
    let info = (PRIORITY << 16) | u32::from((ALL_PROTOCOLS as u16).to_be());
    let parent = CLSACT_HANDLE | minor;
    Request::traffic(kind, flags, &Traffic { interface, handle: 0, parent, info })
}
