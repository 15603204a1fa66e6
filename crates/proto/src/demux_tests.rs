//! Tests of the table of sessions: what was registered is found, by the rules of who comes first.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn flow(protocol: Protocol, source: &str, target: &str) -> FlowKey {
    FlowKey { protocol, source: address(source), target: address(target) }
}

#[test]
fn the_connected_come_before_the_unconnected() {
    let mut demux = Demux::new(4, 1);
    let local = address("192.0.2.1:53");
    let peer = address("192.0.2.9:1000");
    demux.insert(Protocol::Udp, address("0.0.0.0:53"), None, 1);
    let packet = flow(Protocol::Udp, "192.0.2.9:1000", "192.0.2.1:53");
    assert_eq!(demux.find(&packet), Some(1));
    demux.insert(Protocol::Udp, local, None, 2);
    assert_eq!(demux.find(&packet), Some(2));
    demux.insert(Protocol::Udp, local, Some(peer), 3);
    assert_eq!(demux.find(&packet), Some(3));
    assert_eq!(demux.find(&flow(Protocol::Udp, "192.0.2.9:1001", "192.0.2.1:53")), Some(2));
    assert_eq!(demux.find(&flow(Protocol::Udp, "192.0.2.9:1001", "192.0.2.2:53")), Some(1));
    assert_eq!(demux.find(&flow(Protocol::Tcp, "192.0.2.9:1000", "192.0.2.1:53")), None);
    assert_eq!(demux.remove(Protocol::Udp, local, Some(peer)), Some(3));
    assert_eq!(demux.remove(Protocol::Udp, local, Some(peer)), None);
    assert_eq!(demux.find(&packet), Some(2));
    assert_eq!(demux.len(), 2);
}

#[test]
fn an_ipv6_socket_without_address_takes_both() {
    let mut demux = Demux::new(4, 1);
    demux.insert(Protocol::Udp, address("[::]:53"), None, 1);
    assert_eq!(demux.find(&flow(Protocol::Udp, "192.0.2.9:1", "192.0.2.1:53")), Some(1));
    assert_eq!(demux.find(&flow(Protocol::Udp, "[2001:db8::9]:1", "[2001:db8::1]:53")), Some(1));
    demux.insert(Protocol::Udp, address("0.0.0.0:53"), None, 2);
    assert_eq!(demux.find(&flow(Protocol::Udp, "192.0.2.9:1", "192.0.2.1:53")), Some(2));
    assert_eq!(demux.find(&flow(Protocol::Udp, "[2001:db8::9]:1", "[2001:db8::1]:53")), Some(1));
}

proptest! {
    #[test]
    fn the_table_is_a_map(
        seed in any::<u64>(),
        steps in prop::collection::vec((0u8..12, 0u16..12, any::<bool>(), 0u32..99), 1..200),
    ) {
        let mut demux = Demux::new(0, seed);
        let mut model = BTreeMap::new();
        for (host, port, remove, slot) in steps {
            let remote = SocketAddr::new(Ipv4Addr::new(192, 0, 2, host).into(), port);
            let local = address("192.0.2.200:80");
            let key = (host, port);
            if remove {
                prop_assert_eq!(demux.remove(Protocol::Tcp, local, Some(remote)), model.remove(&key));
            } else {
                let before = demux.insert(Protocol::Tcp, local, Some(remote), slot);
                prop_assert_eq!(before, model.insert(key, slot));
            }
            prop_assert_eq!(demux.len(), model.len());
            for (host, port) in (0..12).flat_map(|host| (0..12).map(move |port| (host, port))) {
                let source = SocketAddr::new(Ipv4Addr::new(192, 0, 2, host).into(), port);
                let flow = FlowKey { protocol: Protocol::Tcp, source, target: local };
                prop_assert_eq!(demux.find(&flow), model.get(&(host, port)).copied());
            }
        }
    }
}
