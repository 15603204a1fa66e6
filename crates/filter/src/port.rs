//! Ports: how a program that may not be given the interface gets its sessions' packets and sends
//! theirs.
//!
//! # Theory of operation
//! A port is a pair of virtual Ethernet interfaces. One end is here, the server's side; the other
//! is in a network name space of its own, in which there is nothing else, and the program gets a
//! packet socket bound to it. Whatever the program does with the socket, it reaches that end only:
//! it can neither bind to nor send from an interface of this name space.
//!
//! * In: the program on the real interface hands a session's frame to the far end directly
//!   (`bpf_redirect_peer`).
//! * Out: `sojourn_portout`, at the server's side, checks every frame and puts it on the real
//!   interface's egress, or drops it.
//! * `sojourn_closed` drops what this host's stack would send into the port, and what would reach
//!   the other name space's stack.
//!
//! The programs hang on the interfaces, not on a descriptor: as long as there is a port it is
//! guarded, whoever has died. The name space lives as long as the program's socket, and the pair as
//! long as the name space.

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

/// The name of the program's end, in its own name space.
const PEER_NAME: &str = "sojourn";
/// The pair lets everything pass that a packet can be; the interface's own limit is checked.
const PAIR_MTU: u32 = 65535;
/// The programs' link-layer address on links that have none.
const RAW_MAC: MacAddress = MacAddress([2, 0, 0x73, 0x6a, 0, 1]);
/// What stands beside a port's interface, before the index of the real one.
const ALIAS: &str = "sojourn port of interface ";

/// A way to packets for a program that may not be given the interface.
#[derive(Debug)]
pub struct Port {
    /// Whose sessions' packets come here; for `add_flow`.
    pub owner: OwnerId,
    /// The server's side.
    pub interface: u32,
    /// The program's side: a packet socket (`SOCK_RAW`), to be handed over. When its last copy is
    /// closed the port is gone.
    pub descriptor: OwnedFd,
    /// The link-layer source address that frames sent into the port must have.
    pub mac: MacAddress,
}

/// The link-layer address that programs behind ports of this interface send from.
pub(crate) fn mac_of(interface: &Interface) -> MacAddress {
    match interface.link {
        LinkType::Ethernet => interface.mac,
        LinkType::Raw => RAW_MAC,
    }
}

fn name_of(owner: OwnerId) -> String {
    format!("sojourn{:x}", owner.0)
}

/// The port that an interface is the server's side of: its owner, and the index of the real
/// interface.
pub(crate) fn recognise(interface: &Interface) -> Option<(OwnerId, u32)> {
    let real = interface.alias.strip_prefix(ALIAS)?.parse().ok()?;
    let owner = u32::from_str_radix(interface.name.strip_prefix("sojourn")?, 16).ok()?;
    Some((OwnerId(owner), real))
}

/// What opening a port came to.
pub(crate) enum Opened {
    Port(Port),
    /// Another filter's port has the name: try with the next number.
    NameTaken,
}

/// Opens the port of `owner`, guarded before the first frame can pass.
///
/// The far end is set up last. An interface that has its carrier when it is set up can send at
/// once; otherwise the kernel sees to it some time later, and drops what is sent until then.
pub(crate) fn open(
    loaded: &Loaded,
    real: &Interface,
    owner: OwnerId,
    method: Method,
) -> Result<Opened, Failed> {
    let name = name_of(owner);
    let far = FarEnd { name: &name, mac: mac_of(real), closed: loaded.program(CLOSED)?, method };
    let here = netlink::Socket::new().map_err(Failed::at("opening a netlink socket"))?;
    let (go, is_ready) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let opened = std::thread::scope(|scope| {
        // A thread of its own: it leaves this name space for good. With its end, and without a
        // socket, the pair is gone.
        scope.spawn(|| far.make(&here, tell, is_ready));
        let silent = |_| Failed::missing("the thread that makes a port");
        told.recv().map_err(silent)??;
        let interface = near_end(loaded, real, &name, method)?;
        // If it has ended, its answer says why.
        let _ = go.send(());
        drop(go);
        let descriptor = told.recv().map_err(silent)??;
        Ok((interface, descriptor))
    });
    let (interface, descriptor) = match opened {
        Err(Failed { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(Opened::NameTaken);
        }
        opened => opened?,
    };
    let descriptor = descriptor.ok_or_else(|| Failed::missing("a port's packet socket"))?;
    Ok(Opened::Port(Port { owner, interface, descriptor, mac: far.mac }))
}

/// The program's side of a pair that is to be made.
struct FarEnd<'a> {
    name: &'a str,
    mac: MacAddress,
    closed: BorrowedFd<'a>,
    method: Method,
}

/// What the far end's thread tells: that the pair is there, and then the program's socket.
type Progress = Result<Option<OwnedFd>, Failed>;

impl FarEnd<'_> {
    /// Makes the pair, tells, and waits until the near end is guarded and up; then sets the far end
    /// up, and tells its socket.
    fn make(&self, here: &netlink::Socket, tell: Sender<Progress>, is_ready: Receiver<()>) {
        let paired = self.pair(here);
        let index = paired.as_ref().ok().copied();
        // Nobody listens any more if the near end failed.
        let _ = tell.send(paired.map(|_| None));
        if let (Some(index), Ok(())) = (index, is_ready.recv()) {
            let _ = tell.send(socket_on(index).map(Some));
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
        hook::attach_for_good(self.closed, CLOSED, peer.index, place, self.method)?;
        Ok(peer.index)
    }
}

/// The program's socket. First up: a socket bound to an interface that is down starts with an
/// error.
fn socket_on(far_end: u32) -> Result<OwnedFd, Failed> {
    netlink::set_up(far_end).map_err(Failed::at("setting a port up"))?;
    group::port_socket(far_end).map_err(Failed::at("making a port's packet socket"))
}

/// Guards the server's side, and sets it up. Returns its index.
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

/// Spares the kernel its own announcements, which would only be dropped and counted. Not needed
/// where it cannot be done.
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
        assert_eq!(recognise(&interface), Some((OwnerId(0x2f), 12)));
        assert!(name_of(OwnerId(u32::MAX)).len() <= 15, "the kernel has room for 15 bytes");
        interface.alias.clear();
        assert_eq!(recognise(&interface), None);
    }
}
