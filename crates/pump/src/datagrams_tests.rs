//! UDP sockets of two pumps at the ends of a link in memory: the datagrams that are sent, the data
//! that come with each, and the time.

use crate::datagrams::lock;
use crate::figures::BEAT;
use crate::{Counts, Datagrams, LinkHop, LinkId, Pump, Sent, SessionNumber, Source, Waiting};
use rustix::event::{EventfdFlags, eventfd};
use sojourn_netif::sim;
use sojourn_proto::record::{IpOptions, Kind, SessionRecord, UdpOptions, UdpRecord};
use sojourn_proto::time::Instant;
use sojourn_proto::udp::{Envelope, Limits, Socket};
use sojourn_shm::{Access, NewSegment, Segment};
use sojourn_stream::{Inbox, Layout, SlotNumber, Stream};
use sojourn_wire::{FlowKey, Protocol};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const LINK: LinkId = LinkId(1);
const NUMBER: SessionNumber = SessionNumber::new(9);
const CLASS: u8 = 0xb9;

/// A stream of which only the bells and the ledger are used.
fn stream() -> Stream {
    let layout = Layout::new([4096; 2]).unwrap();
    let NewSegment { mapping, .. } =
        Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
    let NewSegment { mapping: inbox, .. } =
        Segment::create("test", Inbox::LEN, Access::ReadWrite).unwrap();
    let event = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let inbox = Arc::new(Inbox::new(inbox, event(), event()).unwrap());
    Stream::new(mapping, layout, 1, inbox, SlotNumber(0)).unwrap()
}

/// One end: its pump with one socket.
struct End {
    pump: Pump,
    socket: Waiting,
    /// As the server has it.
    local: SocketAddr,
}

impl End {
    fn new(packets: sim::Endpoint, local: &str, peer: &str) -> Self {
        let local = local.parse().unwrap();
        let mut pump = Pump::default();
        pump.add_link(LINK, Box::new(packets), at(0));
        let socket = insert(&mut pump, NUMBER, local, Some(peer.parse().unwrap()), false);
        Self { pump, socket, local }
    }

    fn send(&mut self, bytes: &[u8], segment: Option<u16>, us: u64) -> Sent {
        self.pump.send_datagram(NUMBER, None, &[IoSlice::new(bytes)], segment, at(us))
    }

    fn published(&mut self) -> Counts {
        let one = self.pump.sockets.all.get(&NUMBER).unwrap();
        Counts::from_words(&one.stream.ledger().published())
    }
}

/// Gives a pump one more socket.
fn insert(
    pump: &mut Pump,
    number: SessionNumber,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    v6_only: bool,
) -> Waiting {
    let udp = UdpRecord { options: UdpOptions::default(), interface: 3, receive_queue: vec![] };
    let ip = IpOptions { traffic_class: CLASS, ..IpOptions::default() };
    let record = SessionRecord { local, remote, ip, kind: Kind::Udp(udp) };
    let socket = Socket::import(&record, &Limits::default()).unwrap();
    let socket = Arc::new(Mutex::new(socket));
    let one = Datagrams::new(Arc::clone(&socket), stream(), LINK, v6_only);
    pump.insert_datagrams(number, one, at(0));
    socket
}

fn at(us: u64) -> Instant {
    Instant::from_micros(us)
}

/// Two ends; the first knows the route to the second.
fn ends() -> [End; 2] {
    let options =
        sim::Options { link: sojourn_wire::frame::LinkType::Raw, ..sim::Options::default() };
    let sim::Link { near: one, far: other, .. } = sim::pair(&options);
    let addresses = ["192.0.2.1:1000", "192.0.2.2:2000"];
    let mut one = End::new(one, addresses[0], addresses[1]);
    let other = End::new(other, addresses[1], addresses[0]);
    assert_eq!(one.send(b"lost", None, 0), Sent::Ask(other.local.ip()));
    let hop = LinkHop { link: None, mtu: 1500, is_cut: false };
    one.pump.set_route(NUMBER, other.local.ip(), Some(Source { from: one.local.ip(), hop }));
    [one, other]
}

#[test]
fn what_comes_is_told_with_what_came_with_it() {
    let [mut one, mut other] = ends();
    assert_eq!(one.send(b"text", None, 10), Sent::Done(None));
    other.pump.turn(false, at(20));
    let got = lock(&other.socket).recv(&mut [&mut [0; 9]]).unwrap();
    assert_eq!((got.source, got.len), (one.local, 4));
    let envelope = got.envelope;
    assert_eq!(envelope.target, other.local.ip());
    // The congestion bits, too.
    assert_eq!((envelope.traffic_class, envelope.hop_limit), (CLASS, 64));
}

/// Inserts sockets (each as its address, and its peer's, nothing, or `v6only`) in this order, and
/// returns the index of the one that a datagram from `from` to `to` comes to.
fn taker(sockets: &[[&str; 2]], from: &str, to: &str) -> Option<usize> {
    let mut pump = Pump::default();
    let mut number = 0;
    let all: Vec<Waiting> = sockets
        .iter()
        .map(|[local, peer]| {
            number += 1;
            let (local, remote) = (local.parse().unwrap(), peer.parse().ok());
            insert(&mut pump, SessionNumber::new(number), local, remote, *peer == "v6only")
        })
        .collect();
    let (source, target): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let key = FlowKey { protocol: Protocol::Udp, source, target };
    let envelope = Envelope { target: target.ip(), traffic_class: 0, hop_limit: 64, time_ns: 0 };
    pump.sockets.arrived(key, &envelope, b"x", 0, at(1));
    all.iter().position(|socket| lock(socket).recv(&mut [&mut [0; 9]]).is_some())
}

#[test]
fn the_connected_come_before_the_unconnected() {
    let any = ["0.0.0.0:53", ""];
    let connected = ["192.0.2.1:53", "192.0.2.9:1000"];
    for sockets in [[any, connected], [connected, any]] {
        let taker = |from, to| taker(&sockets, from, to).map(|at| sockets[at]);
        assert_eq!(taker("192.0.2.9:1000", "192.0.2.1:53"), Some(connected));
        assert_eq!(taker("192.0.2.9:1001", "192.0.2.1:53"), Some(any));
        assert_eq!(taker("192.0.2.9:1000", "192.0.2.2:53"), Some(any));
        assert_eq!(taker("192.0.2.9:1000", "192.0.2.1:54"), None);
    }
}

/// A program that serves both families has often a socket of each, with the same port
/// (`IPV6_V6ONLY`).
#[test]
fn an_ipv6_socket_without_address_takes_both_unless_it_is_for_ipv6_alone() {
    let four = ["0.0.0.0:53", ""];
    let [six, both] = ["v6only", ""].map(|kind| ["[::]:53", kind]);
    let datagrams = [["192.0.2.9:1", "192.0.2.1:53"], ["[2001:db8::9]:1", "[2001:db8::1]:53"]];
    for sockets in [[four, six], [six, four]] {
        let takers = datagrams.map(|[from, to]| taker(&sockets, from, to).map(|at| sockets[at]));
        assert_eq!(takers, [Some(four), Some(six)]);
    }
    for (alone, takers) in [(four, [Some(0), None]), (six, [None, Some(0)]), (both, [Some(0); 2])] {
        assert_eq!(datagrams.map(|[from, to]| taker(&[alone], from, to)), takers, "{alone:?}");
    }
}

#[test]
fn what_goes_into_headers_may_change() {
    let [mut one, mut other] = ends();
    for (class, hop_limit) in [(0, 1), (0x21, 255)] {
        let ip = IpOptions { traffic_class: class, hop_limit, ..IpOptions::default() };
        one.pump.set_ip(NUMBER, ip);
        assert_eq!(one.send(b"x", None, 10), Sent::Done(None));
        other.pump.turn(false, at(20));
        let got = lock(&other.socket).recv(&mut [&mut [0; 9]]).unwrap();
        assert_eq!((got.envelope.traffic_class, got.envelope.hop_limit), (class, hop_limit));
    }
}

#[test]
fn counts_are_told_a_while_after_something_has_happened() {
    let [mut one, mut other] = ends();
    assert_eq!([one.pump.next_timeout(), other.pump.next_timeout()], [None; 2]);
    let beat = BEAT.as_micros();
    assert_eq!(one.send(b"text", None, 10), Sent::Done(None));
    // Three, in one frame.
    assert_eq!(one.send(b"aabbc", Some(2), 500), Sent::Done(None));
    other.pump.turn(false, at(1000));
    for end in [&mut one, &mut other] {
        end.pump.turn(false, at(beat - 1));
        assert_eq!(end.published(), Counts::default(), "too early");
    }
    assert_eq!(one.pump.next_timeout(), Some(at(10 + beat)));
    one.pump.turn(false, at(10 + beat));
    other.pump.turn(false, at(1000 + beat));
    assert_eq!(one.published(), Counts { sent: 4, sent_bytes: 9, ..Counts::default() });
    assert_eq!(other.published(), Counts { received: 4, received_bytes: 9, ..Counts::default() });
    // Idle ones cost nothing.
    assert_eq!([one.pump.next_timeout(), other.pump.next_timeout()], [None; 2]);
}

#[test]
fn the_last_counts_are_told_when_it_goes() {
    let [mut one, mut other] = ends();
    assert_eq!(one.send(b"text", None, 10), Sent::Done(None));
    other.pump.turn(false, at(20));
    for (end, expected) in [
        (&mut one, Counts { sent: 1, sent_bytes: 4, ..Counts::default() }),
        (&mut other, Counts { received: 1, received_bytes: 4, ..Counts::default() }),
    ] {
        let gone = end.pump.remove_datagrams(NUMBER, at(30)).unwrap();
        gone.leave().unwrap();
        assert_eq!(Counts::from_words(&gone.stream.ledger().published()), expected);
        assert_eq!(end.pump.next_timeout(), None);
    }
}

#[test]
fn what_has_arrived_goes_with_it_however_many_rounds_that_takes() {
    let [mut one, mut other] = ends();
    for number in 0..200_u64 {
        assert_eq!(one.send(&number.to_be_bytes(), None, 10), Sent::Done(None));
    }
    let gone = other.pump.remove_datagrams(NUMBER, at(20)).unwrap();
    let Kind::Udp(UdpRecord { receive_queue, .. }) = gone.leave().unwrap().kind else { panic!() };
    let found: Vec<_> = receive_queue.iter().map(|datagram| datagram.payload.clone()).collect();
    let expected: Vec<_> = (0..200_u64).map(|number| number.to_be_bytes().to_vec()).collect();
    assert_eq!(found, expected);
}
