//! Words of routers, right ones and forged ones.

use super::*;
use sojourn_pump::position::UnderWay;
use sojourn_wire::frame::{Fields, HEADERS_BYTES_MAX, Header, Offload, PacketFields};
use sojourn_wire::icmp::{emit_v4, emit_v6};
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const UNA: SeqNum = SeqNum(u32::MAX - 99);
const NXT: SeqNum = SeqNum(5000);
const UNDER_WAY: UnderWay = UnderWay { una: UNA, nxt: NXT };
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const BOTH: [bool; 2] = [true, false];

fn ends(is_v4: bool) -> (SocketAddr, SocketAddr) {
    let ends = match is_v4 {
        true => ("192.0.2.1:41000", "203.0.113.2:80"),
        false => ("[2001:db8::1]:41000", "[2001:db8:1::2]:80"),
    };
    (ends.0.parse().unwrap(), ends.1.parse().unwrap())
}

fn key(is_v4: bool) -> Key {
    let (own, peer) = ends(is_v4);
    Key::new(Protocol::Tcp, own, Some(peer)).unwrap()
}

/// A packet of 1500 bytes.
fn sent((source, target): (SocketAddr, SocketAddr), seq: SeqNum) -> Vec<u8> {
    let flow = FlowKey { protocol: Protocol::Tcp, source, target };
    let header = Header::new(None, flow, Fields { dont_fragment: true, ..Fields::default() });
    let (source_port, target_port) = (source.port(), target.port());
    let tcp = tcp::Header { source_port, target_port, seq, ..tcp::Header::default() };
    let payload = vec![7; 1500 - if source.is_ipv4() { 40 } else { 60 }];
    let mut packet = vec![0; HEADERS_BYTES_MAX];
    let emitted = header.unwrap().emit_tcp(
        &tcp,
        &[&payload],
        PacketFields { ecn: Ecn::NotCapable, identification: 0, offload: Offload::Nothing },
        &mut packet,
    );
    packet.truncate(emitted.unwrap().len);
    packet.extend(payload);
    packet
}

/// Returns a router's message about a packet, as a raw socket receives it.
fn said(reason: Reason, packet: &[u8], to: IpAddr) -> Vec<u8> {
    let mut message = vec![0; 1500];
    match to {
        IpAddr::V4(to) => {
            let len = emit_v4(reason, packet, &mut message[20..]).unwrap() + 20;
            message.truncate(len);
            let [high, low] = (len as u16).to_be_bytes();
            message[..10].copy_from_slice(&[0x45, 0, high, low, 0, 0, 0, 0, 64, 1]);
            message[12..16].copy_from_slice(&ROUTER_V4.octets());
            message[16..20].copy_from_slice(&to.octets());
        }
        IpAddr::V6(to) => {
            let len = emit_v6(reason, packet, ROUTER_V6, to, &mut message).unwrap();
            message.truncate(len);
        }
    }
    message
}

fn read(message: &[u8], is_v4: bool) -> Option<Notice> {
    if is_v4 { Notice::read_v4(message) } else { Notice::read_v6(message, ROUTER_V6) }
}

/// Returns the verdict on a router's message about a packet of the session with that number.
fn told(is_v4: bool, seq: SeqNum, mtu: u32) -> Option<Verdict> {
    let ends = ends(is_v4);
    let message = said(Reason::TooBig { mtu }, &sent(ends, seq), ends.0.ip());
    judge(&read(&message, is_v4).unwrap(), &key(is_v4), UNDER_WAY, 1500)
}

#[test]
fn a_router_is_believed() {
    for is_v4 in BOTH {
        for seq in [UNA, UNA + 50, SeqNum(0), NXT - 1] {
            assert_eq!(told(is_v4, seq, 1300), Some(Verdict::Narrow(1300)), "{seq:?}");
        }
    }
    assert_eq!(told(true, UNA, 552), Some(Verdict::Narrow(552)));
    assert_eq!(told(false, UNA, 1280), Some(Verdict::Narrow(1280)));
}

#[test]
fn what_was_never_sent_or_has_arrived_is_forged() {
    for is_v4 in BOTH {
        for seq in [UNA - 1, NXT, NXT + 1, UNA - 1_000_000, UNA + (1 << 31)] {
            assert_eq!(told(is_v4, seq, 1300), None, "{seq:?}");
        }
        let ends = ends(is_v4);
        let message = said(Reason::TooBig { mtu: 1300 }, &sent(ends, UNA), ends.0.ip());
        let notice = read(&message, is_v4).unwrap();
        assert_eq!(
            judge(&notice, &key(is_v4), UnderWay { una: UNA, nxt: UNA }, 1500),
            None,
            "nothing is under way"
        );
        // The other way round than it can be.
        assert_eq!(
            judge(&notice, &key(is_v4), UnderWay { una: UNA + 1, nxt: UNA + 9 }, 1500),
            None
        );
    }
}

#[test]
fn packets_only_become_shorter() {
    for is_v4 in BOTH {
        for mtu in [1500, 1501, 9000, 65_535] {
            assert_eq!(told(is_v4, UNA, mtu), None, "{mtu}");
        }
    }
    assert_eq!(told(false, UNA, u32::MAX), None);
}

#[test]
fn packets_do_not_become_too_short() {
    for mtu in [0, 1, 68, 551] {
        assert_eq!(told(true, UNA, mtu), Some(Verdict::Home), "{mtu}");
    }
    for mtu in [0, 68, 1279] {
        assert_eq!(told(false, UNA, mtu), None, "{mtu}");
    }
}

#[test]
fn others_packets_are_not_ours() {
    for is_v4 in BOTH {
        let (own, peer) = ends(is_v4);
        let mut elsewhere = peer;
        elsewhere.set_port(81);
        let mut other = own;
        other.set_port(41001);
        for ends in [(own, elsewhere), (other, peer)] {
            let message = said(Reason::TooBig { mtu: 1300 }, &sent(ends, UNA), own.ip());
            let notice = read(&message, is_v4).unwrap();
            assert_eq!(judge(&notice, &key(is_v4), UNDER_WAY, 1500), None, "{ends:?}");
        }
    }
}

#[test]
fn other_messages_say_nothing() {
    for is_v4 in BOTH {
        let ends = ends(is_v4);
        let packet = sent(ends, UNA);
        let reasons = [
            Reason::Unreachable { code: 1 },
            Reason::TimeExceeded { code: 0 },
            Reason::ParameterProblem { code: 0 },
        ];
        for reason in reasons {
            assert_eq!(read(&said(reason, &packet, ends.0.ip()), is_v4), None, "{reason:?}");
        }
    }
}

#[test]
fn damaged_and_cut_messages_say_nothing() {
    for is_v4 in BOTH {
        let ends = ends(is_v4);
        let message = said(Reason::TooBig { mtu: 1300 }, &sent(ends, UNA), ends.0.ip());
        for len in 0..message.len() {
            assert_eq!(read(&message[..len], is_v4), None, "{len} bytes");
        }
        // The IPv4 header's own bytes are the kernel's to check.
        for at in if is_v4 { 20 } else { 0 }..message.len() {
            let mut damaged = message.clone();
            damaged[at] ^= 0x55;
            assert_eq!(read(&damaged, is_v4), None, "byte {at}");
        }
    }
}

#[test]
fn it_came_to_the_address_that_the_packet_came_from() {
    let ends = ends(false);
    let other = "2001:db8::99".parse().unwrap();
    let message = said(Reason::TooBig { mtu: 1300 }, &sent(ends, UNA), other);
    assert_eq!(read(&message, false), None);
}

#[test]
fn what_was_learnt_is_forgotten() {
    let start = Instant::from_micros(7);
    let mut path = PathMtu::new(start);
    assert_eq!((path.narrowed(1500), path.narrowed(600)), (1500, 600));
    path.learn(1300, later(start, 5));
    assert_eq!((path.narrowed(1500), path.narrowed(600)), (1300, 600));
    assert!(!path.expires(later(start, EXPIRES_US)));
    assert_eq!(path.narrowed(1500), 1300);
    assert!(path.expires(later(start, EXPIRES_US + 5)));
    assert_eq!(path.narrowed(1500), 1500);
    assert!(!path.expires(later(start, EXPIRES_US + 6)), "not again at once");
}

/// Nothing in a datagram tells if the socket has sent it, so there is no verdict: only the sockets
/// whose datagram it may be are known.
#[test]
fn of_datagrams_it_is_known_whose_they_may_be() {
    for is_v4 in BOTH {
        let (source, target) = ends(is_v4);
        let flow = FlowKey { protocol: Protocol::Udp, source, target };
        let header = Header::new(None, flow, Fields::default()).unwrap();
        let mut packet = vec![0; HEADERS_BYTES_MAX];
        let emitted = header.emit_udp(
            &[&[7; 50]],
            PacketFields { ecn: Ecn::NotCapable, identification: 0, offload: Offload::Nothing },
            &mut packet,
        );
        packet.truncate(emitted.unwrap().len);
        packet.extend([7; 50]);
        let notice =
            read(&said(Reason::TooBig { mtu: 1300 }, &packet, source.ip()), is_v4).unwrap();
        assert_eq!(notice.key, Key::new(Protocol::Udp, source, Some(target)).unwrap());
        assert_eq!(notice.unconnected(), Key::new(Protocol::Udp, source, None).ok());
        assert_eq!(judge(&notice, &notice.key, UNDER_WAY, 1500), None);
        let of_tcp =
            read(&said(Reason::TooBig { mtu: 1300 }, &sent(ends(is_v4), UNA), source.ip()), is_v4);
        assert_eq!(of_tcp.unwrap().unconnected(), None);
    }
}
