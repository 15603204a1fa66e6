//! The stubs of both sides, which the build script generates, and conversions of their types.
//!
//! Not here: error numbers (`status`).

/// Defines conversions between the interface's types and those of packet interfaces.
macro_rules! conversions {
    () => {
        impl From<&sojourn_netif::Properties> for PropertiesT {
            fn from(from: &sojourn_netif::Properties) -> Self {
                Self {
                    index: from.index,
                    mtu: u32::try_from(from.mtu).unwrap_or(u32::MAX),
                    gso_max: u32::try_from(from.gso_max).unwrap_or(u32::MAX),
                    is_ethernet: from.link == sojourn_netif::LinkType::Ethernet,
                    has_address: from.address.is_some(),
                    address: from.address.map_or([0; 6], |address| address.0),
                    completes_checksums: from.checksum_offload,
                }
            }
        }

        impl From<&PropertiesT> for sojourn_netif::Properties {
            fn from(from: &PropertiesT) -> Self {
                let ethernet = sojourn_netif::LinkType::Ethernet;
                Self {
                    index: from.index,
                    mtu: from.mtu as usize,
                    link: if from.is_ethernet { ethernet } else { sojourn_netif::LinkType::Raw },
                    address: from.has_address.then_some(sojourn_wire::MacAddress(from.address)),
                    checksum_offload: from.completes_checksums,
                    gso_max: from.gso_max as usize,
                }
            }
        }

        impl From<&sojourn_netif::Received<'_>> for ArrivalT {
            fn from(from: &sojourn_netif::Received<'_>) -> Self {
                Self {
                    offload: OffloadT { bytes: from.vnet.to_bytes() },
                    has_tag: from.tag.is_some(),
                    tag_type: from.tag.map_or(0, |tag| tag.ether_type.0),
                    tag_control: from.tag.map_or(0, |tag| tag.control),
                    has_time: from.time_ns.is_some(),
                    time_ns: from.time_ns.unwrap_or(0),
                }
            }
        }

        impl ArrivalT {
            /// Returns the frame with what is known of it.
            #[allow(dead_code, reason = "only the client receives")]
            pub(crate) fn with<'f>(&self, frame: &'f [u8]) -> sojourn_netif::Received<'f> {
                let tag = sojourn_wire::ethernet::VlanTag {
                    ether_type: sojourn_wire::ethernet::EtherType(self.tag_type),
                    control: self.tag_control,
                };
                sojourn_netif::Received {
                    // As many bytes as a header has.
                    vnet: sojourn_netif::vnet::Header::parse(&self.offload.bytes)
                        .unwrap_or_default(),
                    frame,
                    tag: self.has_tag.then_some(tag),
                    time_ns: self.has_time.then_some(self.time_ns),
                }
            }
        }
    };
}

/// The driver's stubs: a receiver is answered later.
#[cfg(feature = "server")]
#[allow(unreachable_pub, reason = "generated from idl/device.idl")]
pub(crate) mod server {
    include!(concat!(env!("OUT_DIR"), "/server/device.rs"));
    conversions!();
}

/// The client's stubs: frames go into the client's own buffer.
#[allow(unreachable_pub, reason = "generated from idl/device.idl")]
pub(crate) mod client {
    include!(concat!(env!("OUT_DIR"), "/client/device.rs"));
    conversions!();
}
