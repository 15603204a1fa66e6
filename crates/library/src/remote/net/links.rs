//! The packet interfaces by which this process's sessions send and receive: opened when the session
//! server has sent their sockets.
//!
//! Not here: sleeping for packets (`crate::remote::watch`), and the interfaces (`sojourn_netif`,
//! `sojourn_driver`).

use super::Net;
use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::remote::delegation::LinkSockets;
use rustix::fd::AsRawFd;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain as domain_of;
use sojourn_driver::{Address, DriverInterface, Wait};
use sojourn_netif::{Interface, Message, Ring, RingLayout, WithXdp, XdpSender};
use sojourn_pump::{LinkId, Pump, now};
use sojourn_session::{DelegateT, RingT};
use sojourn_shm::MovableFd;

impl Net {
    /// Returns true if the pump has the session's interface, after adding the one that came with
    /// it.
    pub(super) fn has_link(
        &self,
        engine: &Engine,
        pump: &mut Pump,
        terms: &DelegateT,
        sockets: Option<LinkSockets>,
    ) -> bool {
        if pump.has_link(LinkId(terms.link)) {
            return true;
        }
        let opened = sockets.and_then(|sockets| self.open_link(engine, terms.ring, sockets));
        opened.map(|packets| pump.add_link(LinkId(terms.link), packets, now())).is_some()
    }

    fn open_link(
        &self,
        engine: &Engine,
        ring: RingT,
        sockets: LinkSockets,
    ) -> Option<Box<dyn Interface + Send>> {
        let RingT { slot_len, slots } = ring;
        let LinkSockets { packets: socket, xdp } = sockets;
        if domain_of(&socket) == Ok(AddressFamily::UNIX) {
            return self.open_driver(engine, socket);
        }
        let socket = socket.into_owned();
        let packets: Box<dyn Interface + Send> = match slots {
            0 => Box::new(Message::from_descriptor(socket).ok()?),
            _ => Box::new(Ring::map(socket, RingLayout { slot_len, slots }).ok()?),
        };
        self.watch.add(packets.wait_fd()?).ok()?;
        Some(match xdp {
            Some(xdp) => self.with_xdp(engine, packets, xdp),
            None => packets,
        })
    }

    /// Gives a packet socket an AF_XDP socket for its short frames. Where that cannot be had, as on
    /// an interface whose queues have owners, all frames go by the packet socket.
    fn with_xdp(
        &self,
        engine: &Engine,
        packets: Box<dyn Interface + Send>,
        socket: MovableFd,
    ) -> Box<dyn Interface + Send> {
        let (bell, number) = (packets.wait_fd().map(|bell| bell.as_raw_fd()), socket.number());
        match XdpSender::open(socket.into_owned(), packets.properties().index) {
            Ok(sender) => {
                bell.and_then(|bell| lock(&self.beside).insert(bell, number));
                Box::new(WithXdp::new(packets, sender))
            }
            Err(_) => {
                engine.own.forget(number);
                packets
            }
        }
    }

    /// Opens an interface that a driver has, of which `socket` is a connection.
    fn open_driver(&self, engine: &Engine, socket: MovableFd) -> Option<Box<dyn Interface + Send>> {
        let (own, number) = (&engine.own, socket.number());
        // The library knows the connection's number, since the server has sent it. The bell's has
        // to be known, too, and out of the program's way.
        let place = |bell| Ok(own.make(true, || Ok(bell))?.into_owned());
        let address = Address::Descriptor(socket.into_owned());
        let packets = DriverInterface::connect_with(address, Wait::Adaptive, place).ok()?;
        let bell = packets.wait_fd()?;
        self.watch.add(bell).ok()?;
        lock(&self.beside).insert(bell.as_raw_fd(), number);
        Some(Box::new(packets))
    }
}
