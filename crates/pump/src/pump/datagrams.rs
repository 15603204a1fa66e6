//! A pump's UDP sockets: added, removed, sent from.
//!
//! Not here: the sockets themselves (`crate::datagrams`, which is to be read first).

use super::Pump;
use crate::datagrams::{Datagrams, KnownRoute, Sent, Sockets, Source, begin_beat, lock};
use crate::outgoing::{Frames, gather};
use crate::session_number::SessionNumber;
use sojourn_proto::record::IpOptions;
use sojourn_proto::time::Instant;
use sojourn_wire::ip::TrafficClass;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

impl Pump {
    /// Adds a UDP socket, under a number that no other session has.
    pub fn insert_datagrams(&mut self, number: SessionNumber, one: Datagrams, at: Instant) {
        if let Some(link) = self.links.iter_mut().find(|known| known.id == one.link) {
            link.sessions += 1;
        }
        self.sockets.insert(number, one, at);
    }

    /// Removes a socket, after giving it the datagrams that have arrived until now: no other
    /// process looks for those, and no peer repeats them.
    pub fn remove_datagrams(&mut self, number: SessionNumber, at: Instant) -> Option<Datagrams> {
        self.take_all(at);
        let one = self.sockets.remove(number)?;
        self.leave_link(one.link, at);
        Some(one)
    }

    /// Sets the route of a socket to a destination; `None` means that the kernel sends there.
    pub fn set_route(&mut self, number: SessionNumber, to: IpAddr, route: Option<Source>) {
        if let Some(one) = self.sockets.all.get_mut(&number) {
            one.last = None;
            if let Some(known) = one.routes.get_mut(&to) {
                known.route = route.filter(|route| !route.hop.is_cut);
            }
        }
    }

    /// Changes the options that go into the IP headers of a socket's datagrams.
    pub fn set_ip(&mut self, number: SessionNumber, ip: IpOptions) {
        if let Some(one) = self.sockets.all.get_mut(&number) {
            one.last = None;
            lock(&one.socket).set_ip(ip);
        }
    }

    /// Forgets a socket's routes, which may have changed: all are asked for again.
    pub fn forget_routes(&mut self, number: SessionNumber) {
        if let Some(one) = self.sockets.all.get_mut(&number) {
            one.routes.clear();
            one.last = None;
        }
    }

    /// Sends a datagram of a socket, or several of `segment` bytes each but the last; to the
    /// socket's peer if there is no target.
    pub fn send_datagram(
        &mut self,
        number: SessionNumber,
        target: Option<SocketAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
        at: Instant,
    ) -> Sent {
        let Self { sockets, links, scratch, .. } = self;
        let Sockets { all, beats, .. } = sockets;
        let Some(one) = all.get_mut(&number) else { return Sent::Kernel };
        let Some(target) = target.or(one.peer) else { return Sent::Kernel };
        let KnownRoute { route, asks } = one.route(target.ip(), at);
        let Some(route) = route else {
            return if asks { Sent::Ask(target.ip()) } else { Sent::Kernel };
        };
        let Some(link) = links.iter_mut().find(|link| link.id == one.link) else {
            return Sent::Kernel;
        };
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let (prepared, ip) = {
            let mut socket = lock(&one.socket);
            socket.set_path_mtu(route.hop.mtu);
            (socket.prepare(Some(target), length, segment), socket.ip())
        };
        let Ok(prepared) = prepared else { return Sent::Kernel };
        let Some(header) = one.header(target, &route, ip) else { return Sent::Kernel };
        // More bytes than any datagram has: the kernel refuses them (`udp_sendmsg`).
        let gathered = gather(parts, scratch);
        let Some(payload) = gathered else { return Sent::Kernel };
        let (ecn, has_checksum) = (TrafficClass(ip.traffic_class).ecn(), prepared.checksum);
        let frames = Frames { header, ecn, has_checksum, out: &mut *link.packets };
        let is_sent = frames.send(payload, prepared.segment_size, &mut one.identification);
        let _ = link.packets.flush();
        if !is_sent {
            return Sent::Kernel;
        }
        let size = usize::from(prepared.segment_size);
        one.sent += if size > 0 { length.div_ceil(size) as u64 } else { 1 };
        one.sent_bytes += length as u64;
        begin_beat(beats, number, one, at);
        Sent::Done(asks.then_some(target.ip()))
    }
}
