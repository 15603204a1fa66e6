//! Frames between the two hosts, and their payloads.

use crate::common::{FAR, NEAR};
use sojourn_netif::{Interface, LinkType, Outgoing, SendError, vnet};
use sojourn_wire::ethernet::{self, EtherType};
use sojourn_wire::frame::{Fields, HEADERS_BYTES_MAX, Header, Offload, PacketFields};
use sojourn_wire::tcp::{self, Flags, SeqNum};
use sojourn_wire::{Ecn, FlowKey, MacAddress, Protocol};
use std::net::{IpAddr, SocketAddr};

/// A link address that no interface has: kernels ignore frames to it.
pub(crate) const NOBODY: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x99]);

/// Returns bytes that differ by position and by `mark`.
pub(crate) fn pattern(len: usize, mark: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8 ^ mark).collect()
}

/// Returns a flow between ports of the two hosts.
pub(crate) fn flow(protocol: Protocol, near: u16, far: u16) -> FlowKey {
    let address = |bytes, port| SocketAddr::new(IpAddr::from(bytes), port);
    FlowKey { protocol, source: address(NEAR, near), target: address(FAR, far) }
}

/// Returns the headers of a flow's frames, for an interface of this type of link.
pub(crate) fn headers(
    link: LinkType,
    source: MacAddress,
    target: MacAddress,
    flow: FlowKey,
) -> Header {
    let ethernet = (link == LinkType::Ethernet)
        .then(|| ethernet::Header::new(source, target, EtherType::IPV4));
    Header::new(ethernet, flow, Fields::default()).unwrap()
}

/// The headers and the offload header of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) bytes: Vec<u8>,
    pub(crate) vnet: vnet::Header,
}

impl Front {
    pub(crate) fn udp(headers: &Header, payload: &[&[u8]], offload: Offload) -> Self {
        let mut bytes = vec![0; HEADERS_BYTES_MAX];
        let emitted = headers
            .emit_udp(
                payload,
                PacketFields { ecn: Ecn::NotCapable, identification: 1, offload },
                &mut bytes,
            )
            .unwrap();
        bytes.truncate(emitted.len);
        Self { bytes, vnet: emitted.vnet }
    }

    pub(crate) fn tcp(
        headers: &Header,
        tcp: &tcp::Header,
        payload: &[&[u8]],
        offload: Offload,
    ) -> Self {
        let mut bytes = vec![0; HEADERS_BYTES_MAX];
        let emitted = headers
            .emit_tcp(
                tcp,
                payload,
                PacketFields { ecn: Ecn::NotCapable, identification: 1, offload },
                &mut bytes,
            )
            .unwrap();
        bytes.truncate(emitted.len);
        Self { bytes, vnet: emitted.vnet }
    }

    /// Returns the frame with a payload in two parts.
    pub(crate) fn with<'a>(&'a self, first: &'a [u8], second: &'a [u8]) -> Outgoing<'a> {
        Outgoing { vnet: self.vnet, parts: [&self.bytes, first, second] }
    }

    /// Returns the frame in one piece.
    pub(crate) fn joined(&self, payload: &[u8]) -> Vec<u8> {
        [&self.bytes, payload].concat()
    }
}

/// Makes a complete UDP frame of `len` bytes to an unused link address.
pub(crate) fn probe(link: LinkType, len: usize, mark: u8) -> Vec<u8> {
    let headers = headers(link, NOBODY, NOBODY, flow(Protocol::Udp, 1000, 2000));
    let payload = pattern(len - headers.transport_at() - 8, mark);
    Front::udp(&headers, &[&payload], Offload::Nothing).joined(&payload)
}

/// Returns a TCP header of the middle of a connection.
pub(crate) fn tcp_header(seq: u32, ack: u32, flags: Flags) -> tcp::Header {
    tcp::Header {
        source_port: 0,
        target_port: 0,
        seq: SeqNum(seq),
        ack: SeqNum(ack),
        flags,
        window: u16::MAX,
        urgent: 0,
        options: tcp::Options::NONE,
    }
}

/// Sends a frame and flushes.
pub(crate) fn send_now(
    interface: &mut dyn Interface,
    frame: &Outgoing<'_>,
) -> Result<(), SendError> {
    interface.send(frame)?;
    interface.flush()
}
