//! The next hop towards a session's peer: interface, link address, the largest packet.
//!
//! This is the part of the protocols' state that belongs to no single session. The kernel has it
//! and maintains it; this file asks the kernel about one destination, and learns when an answer may
//! have changed. ARP and neighbour discovery stay the kernel's: a neighbour that the kernel does
//! not know yet keeps a session there, where the next packet finds the neighbour. Not here: the
//! questions as messages (`netlink`). Read rtnetlink(7) and `docs/understand/moves.md`.

use crate::netlink::{Asker, Changes};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType,
};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use sojourn_pump::LinkAddresses;
use sojourn_wire::FlowKey;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address on an Ethernet.
pub type Mac = [u8; 6];

/// The reason why no packet can be sent to a destination from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopError {
    /// The destination is this host, or no single other one.
    #[error("the destination is not another host")]
    NotRemote,
    /// The interface is of a kind that is not served.
    #[error("the interface is neither Ethernet nor without link addresses, or part of another one")]
    Link,
    /// The kernel does not know the next hop's link address at the moment.
    #[error("the next hop's link address is not known at the moment")]
    Neighbour,
    /// The path, or an administrator, asks for packets that may be fragmented: only the kernel
    /// sends such.
    #[error("packets there are cut on the way")]
    Cut,
    /// The kernel does not answer.
    #[error("{0}: {1}")]
    System(&'static str, Errno),
}

fn step(name: &'static str) -> impl Fn(Errno) -> NextHopError {
    move |error| NextHopError::System(name, error)
}

/// The bit of a route's `RTAX_LOCK` that forbids path MTU discovery, so that packets go without
/// "don't fragment" (`linux/rtnetlink.h`). The kernel sets it where a router has asked for less
/// than `net.ipv4.route.min_pmtu`.
const MTU_IS_LOCKED: u32 = 1 << 2;

/// The way of packets to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The number of the interface.
    pub interface: u32,
    /// The name of the interface.
    pub name: String,
    /// The addresses in frames; `None` on a link without such addresses.
    pub link: Option<LinkAddresses>,
    /// The largest IP packet (bytes), of the route or else of the interface.
    pub mtu: u32,
}

/// The kernel's knowledge, in the network namespace of the thread that made this.
#[derive(Debug)]
pub struct Metastate {
    asker: Asker,
    changes: Changes,
}

impl Metastate {
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Self, Errno> {
        // The notices are subscribed first, so that a change after a question is noticed.
        let changes = Changes::new()?;
        Ok(Self { asker: Asker::new()?, changes })
    }

    /// Returns the descriptor that is readable when an answer of [`Metastate::next_hop`] may have
    /// changed.
    #[must_use]
    pub fn changes_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Returns true if an answer may have changed since the last call.
    pub fn has_changed(&self) -> bool {
        self.changes.take()
    }

    /// Asks for the next hop of packets with these addresses and ports. Routing rules may go by
    /// protocol and ports; a port of 0 stands for any.
    ///
    /// # Errors
    /// [`NextHopError`].
    pub fn next_hop(&mut self, flow: &FlowKey) -> Result<NextHop, NextHopError> {
        let (from, to) = (flow.source.ip(), flow.target.ip());
        let port = |end: SocketAddr| Some(end.port()).filter(|port| *port > 0);
        let mut of_flow = vec![RouteAttribute::IpProto(flow.protocol.number())];
        of_flow.extend(port(flow.source).map(RouteAttribute::Sport));
        of_flow.extend(port(flow.target).map(RouteAttribute::Dport));
        let route = self.route(from, to, of_flow)?;
        if route.is_locked {
            return Err(NextHopError::Cut);
        }
        let link = self.link(route.interface)?;
        let mtu = route.mtu.unwrap_or(u32::MAX).min(link.mtu);
        let macs = match link.mac {
            Some(own) => {
                let next = self.neighbour(route.interface, route.gateway.unwrap_or(to))?;
                Some(LinkAddresses { own, next })
            }
            None => None,
        };
        Ok(NextHop { interface: route.interface, name: link.name, link: macs, mtu })
    }

    /// Asks for the address from which the kernel would send to `to`.
    ///
    /// # Errors
    /// [`NextHopError`].
    pub fn source(&mut self, to: IpAddr) -> Result<IpAddr, NextHopError> {
        let any = if to.is_ipv4() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        self.route(any, to, Vec::new())?.source.ok_or(NextHopError::NotRemote)
    }

    /// Asks for the interface by which the kernel would send to `to`.
    ///
    /// # Errors
    /// [`NextHopError`].
    pub fn interface(&mut self, from: IpAddr, to: IpAddr) -> Result<u32, NextHopError> {
        Ok(self.route(from, to, Vec::new())?.interface)
    }

    fn route(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        mut attributes: Vec<RouteAttribute>,
    ) -> Result<Route, NextHopError> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(to);
        let bits = if to.is_ipv4() { 32 } else { 128 };
        question.header.destination_prefix_length = bits;
        attributes.push(RouteAttribute::Destination(to.into()));
        question.attributes = attributes;
        if !from.is_unspecified() {
            question.header.source_prefix_length = bits;
            question.attributes.push(RouteAttribute::Source(from.into()));
        }
        let answer = self.asker.ask(Message::GetRoute(question)).map_err(step("route"))?;
        let Message::NewRoute(answer) = answer else {
            return Err(NextHopError::System("route", Errno::BADMSG));
        };
        match answer.header.kind {
            RouteType::Unicast => {}
            // Of IPv4 these are told as errors.
            RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit => {
                return Err(NextHopError::System("route", Errno::HOSTUNREACH));
            }
            // This host, or several.
            _ => return Err(NextHopError::NotRemote),
        }
        let mut route = Route::default();
        for attribute in answer.attributes {
            match attribute {
                RouteAttribute::Oif(index) => route.interface = index,
                RouteAttribute::PrefSource(RouteAddress::Inet(ip)) => {
                    route.source = Some(ip.into());
                }
                RouteAttribute::PrefSource(RouteAddress::Inet6(ip)) => {
                    route.source = Some(ip.into());
                }
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => route.gateway = Some(ip.into()),
                RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => {
                    route.gateway = Some(ip.into());
                }
                RouteAttribute::Metrics(metrics) => route.measure(&metrics),
                _ => {}
            }
        }
        Ok(route)
    }

    fn link(&mut self, index: u32) -> Result<LinkInfo, NextHopError> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        let answer = self.asker.ask(Message::GetLink(question)).map_err(step("link"))?;
        let Message::NewLink(answer) = answer else {
            return Err(NextHopError::System("link", Errno::BADMSG));
        };
        let is_ethernet = match answer.header.link_layer_type {
            LinkLayerType::Ether => true,
            LinkLayerType::None | LinkLayerType::Rawip => false,
            _ => return Err(NextHopError::Link),
        };
        let mut link = LinkInfo { name: String::new(), mac: None, mtu: 0 };
        for attribute in answer.attributes {
            match attribute {
                // A port of a bridge, or of a virtual router: its packets come by that interface,
                // whose rules see them, but packet sockets have them before.
                LinkAttribute::Controller(_) => return Err(NextHopError::Link),
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Address(bytes) if is_ethernet => link.mac = bytes.try_into().ok(),
                _ => {}
            }
        }
        // An Ethernet without an address of six bytes is not served either.
        if link.mac.is_some() == is_ethernet { Ok(link) } else { Err(NextHopError::Link) }
    }

    fn neighbour(&mut self, interface: u32, of: IpAddr) -> Result<Mac, NextHopError> {
        let mut question = NeighbourMessage::default();
        question.header.family = family(of);
        question.header.ifindex = interface;
        question.attributes = vec![NeighbourAttribute::Destination(of.into())];
        let answer = match self.asker.ask(Message::GetNeighbour(question)) {
            Ok(answer) => answer,
            Err(Errno::NOENT) => return Err(NextHopError::Neighbour),
            Err(error) => return Err(NextHopError::System("neighbour", error)),
        };
        let Message::NewNeighbour(answer) = answer else {
            return Err(NextHopError::System("neighbour", Errno::BADMSG));
        };
        // In all other states the kernel itself would send to the address (`NUD_VALID`).
        let is_good = !matches!(
            answer.header.state,
            NeighbourState::None | NeighbourState::Incomplete | NeighbourState::Failed
        );
        let address = answer.attributes.into_iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => bytes.try_into().ok(),
            _ => None,
        });
        address.filter(|_| is_good).ok_or(NextHopError::Neighbour)
    }
}

#[derive(Default)]
struct Route {
    interface: u32,
    gateway: Option<IpAddr>,
    /// An administrator's MTU, or the one that the kernel has learnt of the path.
    mtu: Option<u32>,
    is_locked: bool,
    /// The source address of datagrams from sockets that are bound to none.
    source: Option<IpAddr>,
}

impl Route {
    fn measure(&mut self, metrics: &[RouteMetric]) {
        for metric in metrics {
            match metric {
                RouteMetric::Mtu(mtu) if *mtu > 0 => self.mtu = Some(*mtu),
                RouteMetric::Lock(locked) => self.is_locked = locked & MTU_IS_LOCKED != 0,
                _ => {}
            }
        }
    }
}

struct LinkInfo {
    name: String,
    mac: Option<Mac>,
    mtu: u32,
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::Protocol;

    #[test]
    fn this_host_is_not_remote() {
        let mut metastate = Metastate::new().unwrap();
        for ip in ["127.0.0.1", "::1"] {
            let end = SocketAddr::new(ip.parse().unwrap(), 1);
            let flow = FlowKey { protocol: Protocol::Tcp, source: end, target: end };
            assert_eq!(metastate.next_hop(&flow), Err(NextHopError::NotRemote));
        }
    }
}
