//! The interface of a session's frames, and the part of the next hop that is in their headers.
//!
//! Not here: how the next hop is found (`sojourn_carrier`).

use sojourn_proto::record::IpOptions;
use sojourn_wire::frame::{Fields, Header};
use sojourn_wire::{FlowKey, MacAddress, ethernet};

/// The name of an interface of a pump. The session server gives these names, and never one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u64);

/// The addresses in the frames to a next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAddresses {
    /// The interface's own.
    pub own: [u8; 6],
    /// The next hop's.
    pub next: [u8; 6],
}

/// The part of the next hop towards the peer that is in the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHop {
    /// The addresses in frames; `None` on a link without such addresses.
    pub link: Option<LinkAddresses>,
    /// The largest IP packet (bytes).
    pub mtu: u32,
    /// There is no route for the moment: frames are lost, as the kernel's would be.
    pub is_cut: bool,
}

/// Makes the headers of a session's frames to a next hop.
pub(crate) fn header_for(flow: FlowKey, ip: IpOptions, hop: &LinkHop) -> Option<Header> {
    let link = hop.link.map(|LinkAddresses { own, next }| {
        let ether_type = ethernet::EtherType::IPV4;
        ethernet::Header::new(MacAddress(own), MacAddress(next), ether_type)
    });
    let fields = Fields {
        dscp: ip.traffic_class >> 2,
        hop_limit: ip.hop_limit,
        flow_label: ip.flow_label,
        dont_fragment: ip.dont_fragment,
    };
    Header::new(link, flow, fields).ok()
}
