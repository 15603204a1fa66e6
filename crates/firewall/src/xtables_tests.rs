//! Tests of iptables' matches on the bytes that the kernel tells.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use super::*;
use crate::samples::session;
use crate::session::Session;

fn packets(session: &Session) -> Packets<'_> {
    Packets { session, direction: Direction::In, is_at_interface: true, is_tracked: true }
}

fn says(name: &str, revision: u32, info: &[u8]) -> Option<Holds> {
    holds(name, revision, info, packets(&session()))
}

/// Makes `struct xt_conntrack_mtinfo3`.
fn states(asked: u16, inverted: u16, states: u16) -> Vec<u8> {
    let mut info = vec![0; 168];
    for (at, value) in [(146, asked), (148, inverted), (150, states)] {
        info[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
    info
}

#[test]
fn states_of_connections() {
    let (related, established, new, invalid, translated) = (4, 2, 8, 1, 128);
    for (asked, inverted, mask, expected) in [
        (1, 0, related | established, Holds::Always),
        (1, 0, new, Holds::Never),
        (1, 0, invalid, Holds::Never),
        (1, 1, established, Holds::Never),
        (1, 1, new | invalid, Holds::Always),
        (1, 0, translated, Holds::Maybe),
        (1, 0, translated | established, Holds::Always),
        // Also a direction.
        (1 | 1 << 12, 0, established, Holds::Maybe),
        (1 | 1 << 12, 0, new, Holds::Never),
        (2, 0, 0, Holds::Maybe),
    ] {
        let info = states(asked, inverted, mask);
        assert_eq!(says("conntrack", 3, &info), Some(expected), "{asked} {inverted} {mask}");
    }
    let info = states(1, 0, established);
    let fresh = Session { is_established: false, ..session() };
    assert_eq!(holds("conntrack", 3, &info, packets(&fresh)), Some(Holds::Maybe));
    let before = Packets { is_tracked: false, ..packets(&fresh) };
    assert_eq!(holds("conntrack", 3, &info, before), Some(Holds::Maybe));
    assert_eq!(says("conntrack", 0, &info), None);
    assert_eq!(says("conntrack", 3, &info[..100]), None);
    assert_eq!(says("state", 0, &6_u32.to_ne_bytes()), Some(Holds::Always));
}

/// Makes `struct xt_multiport_v1`; a pair is a range.
fn ports(which: u8, all: &[(u16, Option<u16>)], inverts: bool) -> Vec<u8> {
    let mut info = vec![0; 48];
    info[0] = which;
    let mut at = 0;
    for (from, to) in all {
        for port in [Some(*from), *to].into_iter().flatten() {
            info[2 + 2 * at..4 + 2 * at].copy_from_slice(&port.to_ne_bytes());
            at += 1;
        }
        info[32 + at - 1 - usize::from(to.is_some())] = u8::from(to.is_some());
    }
    info[1] = at as u8;
    info[47] = u8::from(inverts);
    info
}

#[test]
fn several_ports() {
    let (source, target, either) = (0, 1, 2);
    for (which, all, inverts, expected) in [
        (target, vec![(22, None), (4000, None)], false, Holds::Always),
        (target, vec![(22, None), (3999, Some(4001))], false, Holds::Always),
        (target, vec![(1, Some(3999)), (4001, None)], false, Holds::Never),
        (source, vec![(4000, None)], false, Holds::Never),
        (either, vec![(5000, None)], false, Holds::Always),
        (either, vec![(5000, None)], true, Holds::Never),
        (target, vec![(4000, None); 15], true, Holds::Never),
    ] {
        let info = ports(which, &all, inverts);
        assert_eq!(says("multiport", 1, &info), Some(expected), "{which} {all:?} {inverts}");
    }
    assert_eq!(says("multiport", 1, &[1, 16]), None);
    let mut info = ports(target, &[], false);
    info[1] = 16;
    assert_eq!(says("multiport", 1, &info), None);
    let unknown = Session { remote: None, protocol: Protocol::Udp, ..session() };
    let info = ports(source, &[(5000, None)], false);
    assert_eq!(holds("multiport", 1, &info, packets(&unknown)), Some(Holds::Maybe));
}

#[test]
fn only_matches_without_an_effect_are_understood() {
    for name in ["addrtype", "set", "mark", "owner", "rpfilter"] {
        assert_eq!(says(name, 1, &[0; 16]), Some(Holds::Maybe), "{name}");
    }
    for name in ["recent", "hashlimit", "limit", "quota", "connlimit", "nfacct", "unheard-of", ""] {
        assert_eq!(says(name, 1, &[0; 16]), None, "{name}");
    }
    assert_eq!(says("comment", 0, &[]), Some(Holds::Always));
}

#[test]
fn only_the_bits_of_a_mask_count() {
    let known = [Some(0b1010), None];
    assert_eq!(masked(&known, &[0b1011, 0], &[0b1110, 0]), Some(Holds::Always));
    assert_eq!(masked(&known, &[0b1011, 0], &[0b1111, 0]), Some(Holds::Never));
    assert_eq!(masked(&known, &[0b1010, 0], &[0xff, 1]), Some(Holds::Maybe));
    assert_eq!(masked(&known, &[0], &[0]), None);
}
