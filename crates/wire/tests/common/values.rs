//! Random values of the formats, for properties.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sojourn_wire::ethernet::{self, EtherType, VlanTag};
use sojourn_wire::frame::Fields;
use sojourn_wire::tcp::{self, Flags, Options, SackBlock, SackBlocks, Timestamps};
use sojourn_wire::{Ecn, FlowKey, MacAddress, Protocol, SeqNum};
use std::net::{IpAddr, SocketAddr};

pub(crate) fn mac() -> impl Strategy<Value = MacAddress> {
    any::<[u8; 6]>().prop_map(MacAddress)
}

fn tag() -> impl Strategy<Value = VlanTag> {
    let kind = prop_oneof![Just(EtherType::VLAN), Just(EtherType::SERVICE_VLAN)];
    (kind, any::<u16>()).prop_map(|(ether_type, control)| VlanTag { ether_type, control })
}

pub(crate) fn link() -> impl Strategy<Value = ethernet::Header> {
    (mac(), mac(), option::of(tag()), option::of(tag())).prop_map(|(source, target, a, b)| {
        // The second tag is present only if the first is.
        let tags = [a.or(b), a.and(b)];
        ethernet::Header { source, target, tags, ether_type: EtherType::IPV4 }
    })
}

pub(crate) fn ecn() -> impl Strategy<Value = Ecn> {
    prop_oneof![
        Just(Ecn::NotCapable),
        Just(Ecn::Capable0),
        Just(Ecn::Capable1),
        Just(Ecn::Congestion)
    ]
}

pub(crate) fn fields() -> impl Strategy<Value = Fields> {
    (0..64_u8, any::<u8>(), 0..1_u32 << 20, any::<bool>()).prop_map(
        |(dscp, hop_limit, flow_label, dont_fragment)| Fields {
            dscp,
            hop_limit,
            flow_label,
            dont_fragment,
        },
    )
}

pub(crate) fn flow(protocol: Protocol) -> impl Strategy<Value = FlowKey> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    (prop_oneof![v4, v6], any::<(u16, u16)>()).prop_map(move |((source, target), ports)| FlowKey {
        protocol,
        source: SocketAddr::new(source, ports.0),
        target: SocketAddr::new(target, ports.1),
    })
}

fn blocks(room: usize) -> impl Strategy<Value = SackBlocks> {
    vec(any::<(u32, u32)>(), 0..=room).prop_map(|pairs| {
        let mut blocks = SackBlocks::NONE;
        for (start, end) in pairs {
            assert!(blocks.push(SackBlock { start: SeqNum(start), end: SeqNum(end) }));
        }
        blocks
    })
}

/// Returns options that fit a header.
pub(crate) fn options() -> impl Strategy<Value = Options> {
    let timestamps = any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo });
    (option::of(any::<u16>()), option::of(any::<u8>()), any::<bool>(), option::of(timestamps))
        .prop_map(|(mss, window_scale, sack_permitted, timestamps)| Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            sack: SackBlocks::NONE,
        })
        .prop_flat_map(|options| {
            blocks(options.sack_room()).prop_map(move |sack| Options { sack, ..options })
        })
}

pub(crate) fn header() -> impl Strategy<Value = tcp::Header> {
    (any::<[u16; 4]>(), any::<[u32; 2]>(), any::<u8>(), options()).prop_map(
        |([source_port, target_port, window, urgent], [seq, ack], flags, options)| tcp::Header {
            source_port,
            target_port,
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags: Flags::from_bits_retain(flags),
            window,
            urgent,
            options,
        },
    )
}

pub(crate) fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 0..300), 1 => vec(any::<u8>(), 1400..9000)]
}
