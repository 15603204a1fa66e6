//! Ports: the way to packets for a program that may not have access to the interface.
//!
//! # Theory of operation
//! A port is a pair of virtual Ethernet interfaces. One end, the server's side, is in this name
//! space; the other end is in an otherwise empty network name space, and the program gets a packet
//! socket bound to it. The socket reaches only that end: the program can neither bind to nor send
//! from an interface of this name space.
//!
//! * In: the program on the real interface hands a session's frame to the far end directly
//!   (`bpf_redirect_peer`).
//! * Out: `sojourn_portout`, at the server's side, checks every frame and puts it on the real
//!   interface's egress, or drops it.
//! * `sojourn_closed` drops packets that this host's stack would send into the port, and packets
//!   that would reach the other name space's stack.
//!
//! The programs are attached to the interfaces, not held by a descriptor: a port is guarded as long
//! as it exists, even if the server has died. The name space lives as long as the program's socket,
//! and the pair as long as the name space.

use crate::error::Failed;
use crate::group;
use crate::hook::{self, Method};
use crate::loader::{CLOSED, Loaded, PORT_OUT};
use crate::netlink::{self, Interface, Pair};
use crate::rule::OwnerId;
use crate::sys::{self, AttachPoint};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_wire::MacAddress;
use sojourn_wire::frame::LinkType;
use std::fs::File;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};

/// The name of the program's end in its name space.
const PEER_NAME: &str = "sojourn";
/// The pair's MTU, which every packet fits; the programs check the real interface's MTU.
const PAIR_MTU: u32 = 65535;
/// The programs' link-layer address on links that have none.
const RAW_MAC: MacAddress = MacAddress([2, 0, 0x73, 0x6a, 0, 1]);
/// The alias of a port's interface, before the index of the real one.
const ALIAS: &str = "sojourn port of interface ";

/// The options of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortOptions {
    /// The way in which its programs are attached.
    pub(crate) method: Method,
    /// The program also gets an AF_XDP socket.
    pub(crate) has_xdp: bool,
}

/// A way to packets for a program that may not have access to the interface.
#[derive(Debug)]
pub struct Port {
    /// The owner whose sessions' packets come to the port; for `add_flow`.
    pub owner: OwnerId,
    /// The index of the server's side.
    pub interface: u32,
    /// The program's side: a packet socket (`SOCK_RAW`), to be handed over. When its last copy is
    /// closed the port is gone.
    pub descriptor: OwnedFd,
    /// An AF_XDP socket of the program's side that is bound to nothing, if it was asked for and can
    /// be had. The port lasts as long as the last of both sockets.
    pub xdp: Option<OwnedFd>,
    /// The link-layer source address that frames sent into the port must have.
    pub mac: MacAddress,
}

/// Returns the link-layer source address for programs behind ports of this interface.
pub(crate) fn mac_of(interface: &Interface) -> MacAddress {
    match interface.link {
        LinkType::Ethernet => interface.mac,
        LinkType::Raw => RAW_MAC,
    }
}

fn name_of(owner: OwnerId) -> String {
    format!("sojourn{:x}", owner.0)
}

/// The marks by which the server's side of a port is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortMarks {
    pub(crate) owner: OwnerId,
    /// The index of the real interface.
    pub(crate) real: u32,
}

/// Recognises the server's side of a port.
pub(crate) fn recognise(interface: &Interface) -> Option<PortMarks> {
    let real = interface.alias.strip_prefix(ALIAS)?.parse().ok()?;
    let owner = u32::from_str_radix(interface.name.strip_prefix("sojourn")?, 16).ok()?;
    Some(PortMarks { owner: OwnerId(owner), real })
}

/// The result of opening a port.
pub(crate) enum Opened {
    Port(Port),
    /// Another filter's port has the name: the caller tries the next number.
    NameTaken,
}

/// Opens the port of `owner`. The guards are attached before the first frame can pass.
///
/// The far end is set up last. An interface that has its carrier when it is set up can send at
/// once; otherwise the kernel activates it some time later and drops frames until then.
pub(crate) fn open(
    loaded: &Loaded,
    real: &Interface,
    owner: OwnerId,
    how: &PortOptions,
) -> Result<Opened, Failed> {
    let (name, closed) = (name_of(owner), loaded.program(CLOSED)?);
    let far = FarEnd { name: &name, mac: mac_of(real), closed, how };
    let here = netlink::Socket::new().map_err(Failed::at("opening a netlink socket"))?;
    let (go, is_ready) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let opened = std::thread::scope(|scope| {
        // A separate thread is needed, because it leaves this name space for good. If the thread
        // ends without a socket, the pair is gone.
        scope.spawn(|| far.make(&here, tell, is_ready));
        let silent = |_| Failed::missing("the thread that makes a port");
        told.recv().map_err(silent)??;
        let interface = near_end(loaded, real, &name, how.method)?;
        // If the thread has ended, its answer has the reason.
        let _ = go.send(());
        drop(go);
        let sockets = told.recv().map_err(silent)??;
        Ok((interface, sockets))
    });
    let (interface, sockets) = match opened {
        Err(Failed { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(Opened::NameTaken);
        }
        opened => opened?,
    };
    let FarSockets { descriptor, xdp } =
        sockets.ok_or_else(|| Failed::missing("a port's packet socket"))?;
    Ok(Opened::Port(Port { owner, interface, descriptor, xdp, mac: far.mac }))
}

/// The program's side of a pair to be made.
struct FarEnd<'a> {
    name: &'a str,
    mac: MacAddress,
    closed: BorrowedFd<'a>,
    how: &'a PortOptions,
}

/// The program's sockets at the far end.
struct FarSockets {
    descriptor: OwnedFd,
    xdp: Option<OwnedFd>,
}

/// The messages of the far end's thread: `None` when the pair exists, then the program's sockets.
type Progress = Result<Option<FarSockets>, Failed>;

impl FarEnd<'_> {
    /// Makes the pair, reports that, and waits until the near end is guarded and up; then sets the
    /// far end up and sends its sockets.
    fn make(&self, here: &netlink::Socket, tell: Sender<Progress>, is_ready: Receiver<()>) {
        let paired = self.pair(here);
        let index = paired.as_ref().ok().copied();
        // The send fails if the near end failed; then no thread waits for it.
        let _ = tell.send(paired.map(|_| None));
        if let (Some(index), Ok(())) = (index, is_ready.recv()) {
            let _ = tell.send(self.sockets_on(index).map(Some));
        }
    }

    /// Makes the pair, its far end in a new name space that becomes the calling thread's. Returns
    /// the far end's index.
    fn pair(&self, here: &netlink::Socket) -> Result<u32, Failed> {
        sys::leave_network().map_err(Failed::at("making a network name space"))?;
        let network = File::open("/proc/thread-self/ns/net")
            .map_err(Failed::at("finding the new network name space"))?;
        be_silent("default");
        let pair = Pair {
            name: self.name,
            mtu: PAIR_MTU,
            peer_name: PEER_NAME,
            peer_mac: self.mac,
            peer_network: network.as_fd(),
        };
        netlink::add_pair(here, &pair).map_err(Failed::at("making a port"))?;
        let peer = netlink::by_name(PEER_NAME).map_err(Failed::at("finding a port's far end"))?;
        let place = AttachPoint::TcxIngress;
        hook::attach_for_good(self.closed, CLOSED, peer.index, place, self.how.method)?;
        Ok(peer.index)
    }

    /// Creates the program's sockets. The interface is set up first, because a socket bound to an
    /// interface that is down starts with an error.
    fn sockets_on(&self, far_end: u32) -> Result<FarSockets, Failed> {
        netlink::set_up(far_end).map_err(Failed::at("setting a port up"))?;
        let packets = group::port_socket(far_end);
        let descriptor = packets.map_err(Failed::at("making a port's packet socket"))?;
        let xdp = self.how.has_xdp.then(|| group::xdp_socket().ok()).flatten();
        Ok(FarSockets { descriptor, xdp })
    }
}

/// Attaches the guards to the server's side, sets it up and returns its index.
fn near_end(loaded: &Loaded, real: &Interface, name: &str, method: Method) -> Result<u32, Failed> {
    let index = netlink::by_name(name).map_err(Failed::at("finding a port"))?.index;
    let (out, closed) = (loaded.program(PORT_OUT)?, loaded.program(CLOSED)?);
    hook::attach_for_good(out, PORT_OUT, index, AttachPoint::TcxIngress, method)?;
    hook::attach_for_good(closed, CLOSED, index, AttachPoint::TcxEgress, method)?;
    let alias = format!("{ALIAS}{}", real.index);
    netlink::set_alias(index, &alias).map_err(Failed::at("naming a port"))?;
    be_silent(name);
    netlink::set_up(index).map_err(Failed::at("setting a port up"))?;
    Ok(index)
}

/// Disables the kernel's own IPv6 announcements, which would only be dropped and counted. A failure
/// does no harm.
fn be_silent(name: &str) {
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_recognised_by_its_name_and_alias() {
        let mut interface = Interface {
            index: 5,
            name: name_of(OwnerId(0x2f)),
            alias: format!("{ALIAS}12"),
            link: LinkType::Ethernet,
            mac: MacAddress::default(),
            mtu: 0,
            is_up: true,
            xdp_program: None,
        };
        assert_eq!(recognise(&interface), Some(PortMarks { owner: OwnerId(0x2f), real: 12 }));
        assert!(name_of(OwnerId(u32::MAX)).len() <= 15, "the kernel has room for 15 bytes");
        interface.alias.clear();
        assert_eq!(recognise(&interface), None);
    }
}
