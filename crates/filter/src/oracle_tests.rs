//! Tests of the oracle: against frames written by `sojourn-wire`, and of each reason.

use super::*;
use crate::samples::{self, MAC, frame};

fn oracle(rules: &[(Key, Target)]) -> Oracle {
    let rule = |target| {
        let (fragment_seen, is_new, is_held) = (false, false, false);
        Rule { owner: OwnerId(7), target, fragment_seen, is_new, is_held }
    };
    let rules = rules.iter().map(|(key, target)| (*key, rule(*target))).collect();
    Oracle { link: LinkType::Ethernet, mac: MAC, mtu: 1500, rules }
}

fn received(frame: &[u8]) -> Received<'_> {
    Received { frame, tag: None }
}

#[test]
fn a_sessions_packets_are_its_owners_and_nobody_elses() {
    for key in samples::keys() {
        let direct = oracle(&[(key, Target::Direct)]);
        let port = oracle(&[(key, Target::Port { interface: 9 })]);
        let bytes = frame(&key, false);
        assert_eq!(direct.reader(&received(&bytes)), Some(OwnerId(7)), "{key}");
        assert_eq!(direct.ingress(&received(&bytes)), Ingress::Drop(Reason::TakenDirect));
        assert_eq!(port.ingress(&received(&bytes)), Ingress::Port(9));
        assert_eq!(port.reader(&received(&bytes)), None);
        assert_eq!(oracle(&[]).ingress(&received(&bytes)), Ingress::Pass);
    }
}

#[test]
fn frames_for_other_hosts_and_other_vlans_pass() {
    let key = samples::keys()[0];
    let oracle = oracle(&[(key, Target::Direct)]);
    let mut bytes = frame(&key, false);
    assert_eq!(oracle.ingress(&Received { frame: &bytes, tag: Some(0x2005) }), Ingress::Pass);
    let priority_only = Received { frame: &bytes, tag: Some(0x2000) };
    assert_eq!(oracle.ingress(&priority_only), Ingress::Drop(Reason::TakenDirect));
    bytes[5] ^= 1;
    assert_eq!(oracle.ingress(&received(&bytes)), Ingress::Pass);
}

#[test]
fn of_fragments_only_the_first_of_a_segment_is_dropped() {
    for key in samples::keys().into_iter().filter(|key| key.local().is_ipv4()) {
        let oracle = oracle(&[(key, Target::Direct)]);
        let mut bytes = frame(&key, false);
        bytes[20] = 0x20;
        let first = match key.protocol() {
            Protocol::Tcp => Ingress::Drop(Reason::Fragmented),
            Protocol::Udp => Ingress::Pass,
        };
        assert_eq!(oracle.ingress(&received(&bytes)), first, "{key}");
        assert_eq!(oracle.reader(&received(&bytes)), None);
        bytes[21] = 1;
        assert_eq!(oracle.ingress(&received(&bytes)), Ingress::Pass, "{key}");
    }
}

#[test]
fn links_without_header_begin_with_the_packet() {
    let key = samples::keys()[0];
    let mut oracle = oracle(&[(key, Target::Direct)]);
    oracle.link = LinkType::Raw;
    let bytes = frame(&key, false);
    assert_eq!(oracle.ingress(&received(&bytes)), Ingress::Pass);
    assert_eq!(oracle.reader(&received(&bytes[14..])), Some(OwnerId(7)));
}

#[test]
fn a_port_sends_its_own_sessions_packets() {
    for key in samples::keys() {
        let oracle = oracle(&[(key, Target::Port { interface: 9 })]);
        let bytes = frame(&key, true);
        let outgoing = samples::outgoing(&bytes, &key);
        assert_eq!(oracle.outgoing(9, &outgoing), Reason::Sent, "{key}");
        assert_eq!(oracle.outgoing(8, &outgoing), Reason::NotOwned, "{key}");
        let earlier = outgoing.checksum_end.map(|end| end - 1);
        let over_a_port = Outgoing { checksum_end: earlier, ..outgoing };
        assert_eq!(oracle.outgoing(9, &over_a_port), Reason::Checksum, "{key}");
        let long = Outgoing { gso_size: 1500, ..outgoing };
        assert_eq!(oracle.outgoing(9, &long), Reason::TooLong, "{key}");
    }
}

#[test]
fn each_reason_has_its_frame() {
    let key = samples::keys()[0];
    let oracle = oracle(&[(key, Target::Port { interface: 9 })]);
    let changed = |at: usize, to: u8| {
        let mut bytes = frame(&key, true);
        bytes[at] = to;
        oracle.outgoing(9, &samples::outgoing(&bytes, &key))
    };
    assert_eq!(changed(0, 1), Reason::GroupTarget);
    assert_eq!(changed(11, 0x77), Reason::WrongSourceMac);
    assert_eq!(changed(13, 0x06), Reason::NotIp);
    assert_eq!(changed(14, 0x46), Reason::Extended);
    assert_eq!(changed(14, 0x65), Reason::Malformed);
    assert_eq!(changed(17, 0xff), Reason::Malformed);
    assert_eq!(changed(20, 0x20), Reason::SentFragment);
    assert_eq!(changed(23, 1), Reason::OtherProtocol);
    assert_eq!(changed(29, 77), Reason::NotOwned);
    assert_eq!(changed(30, 224), Reason::GroupTarget);
    assert_eq!(changed(35, 77), Reason::NotOwned);
    assert_eq!(changed(46, 0x40), Reason::Malformed);
}
