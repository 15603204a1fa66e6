//! Frames of sessions, for tests: one session of each kind, and their packets.

use crate::oracle::Outgoing;
use crate::rule::Key;
use sojourn_wire::{MacAddress, Protocol};
use std::net::{IpAddr, SocketAddr};

/// The host's link-layer address.
pub const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// Another host's link-layer address.
pub const OTHER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

/// Returns keys of TCP and UDP, of IPv4 and IPv6, and of datagram sockets that receive from any
/// peer.
pub fn keys() -> Vec<Key> {
    let key = |protocol, local: &str, remote: Option<&str>| {
        let end = |text: &str| text.parse::<SocketAddr>();
        let remote = remote.map(end).transpose();
        Key::new(protocol, end(local).ok()?, remote.ok()?).ok()
    };
    [
        key(Protocol::Tcp, "10.0.0.1:80", Some("10.0.0.2:40000")),
        key(Protocol::Udp, "10.0.0.1:53", Some("10.0.0.2:40000")),
        key(Protocol::Udp, "10.0.0.1:54", None),
        key(Protocol::Tcp, "[fd00::1]:80", Some("[fd00::2]:40000")),
        key(Protocol::Udp, "[fd00::1]:53", Some("[fd00::2]:40000")),
        key(Protocol::Udp, "[fd00::1]:54", None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a packet of the session, with twenty bytes of payload, to this host or from it.
pub fn frame(key: &Key, sent: bool) -> Vec<u8> {
    let local = key.local();
    let anyone = SocketAddr::new(local.ip(), 9);
    let remote = key.remote().unwrap_or(anyone);
    let (source, target) = if sent { (local, remote) } else { (remote, local) };
    let (from, to) = if sent { (MAC, OTHER_MAC) } else { (OTHER_MAC, MAC) };
    let mut bytes = [to.0, from.0].concat();
    let transport = transport(key.protocol(), source.port(), target.port());
    match (source.ip(), target.ip()) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            bytes.extend([8, 0, 0x45, 0, 0, 20 + transport.len() as u8, 0, 0, 0, 0, 64]);
            bytes.extend([key.protocol().number(), 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(target.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, transport.len() as u8]);
            bytes.extend([key.protocol().number(), 64]);
            bytes.extend(source.octets());
            bytes.extend(target.octets());
        }
        _ => {}
    }
    bytes.extend(transport);
    bytes
}

fn transport(protocol: Protocol, source: u16, target: u16) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), target.to_be_bytes()].concat();
    match protocol {
        Protocol::Tcp => bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]),
        Protocol::Udp => bytes.extend([0, 28, 0, 0]),
    }
    bytes.extend([b'x'; 20]);
    bytes
}

/// Returns the frame in the form in which a program should send it: the checksum is left to the
/// device.
pub fn outgoing<'f>(frame: &'f [u8], key: &Key) -> Outgoing<'f> {
    let network = if key.local().is_ipv4() { 20 } else { 40 };
    let checksum = if key.protocol() == Protocol::Tcp { 18 } else { 8 };
    Outgoing { frame, checksum_end: Some(14 + network + checksum), ..Outgoing::default() }
}
