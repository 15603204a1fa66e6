//! The UDP part of a session record: options and datagrams not yet read. Endpoints are in the
//! envelope (`record`).

use crate::record_codec::{Field, Output, Reader, put_list, record, take_list};
use crate::record_error::RecordError;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// A UDP socket's state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UdpRecord {
    /// Options of `udp(7)` and `socket(7)`.
    pub options: UdpOptions,
    /// The index of the interface by which the engine receives the session's datagrams; 0 if it is
    /// not known.
    pub interface: u32,
    /// Datagrams received and not yet read, oldest first.
    pub receive_queue: Vec<Datagram>,
}

record! {
    /// Socket options of a UDP session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UdpOptions {
        /// `UDP_SEGMENT`: bytes of payload per datagram when one send makes several; 0 if that is
        /// off.
        pub gso_size: u16,
        /// `UDP_GRO`: the program takes merged datagrams.
        pub gro: bool,
        /// `SO_NO_CHECK`: IPv4 datagrams leave without checksum.
        pub no_checksum: bool,
        /// `SO_BROADCAST`.
        pub broadcast: bool,
        /// Path MTU in bytes.
        pub path_mtu: u32,
        /// `SO_RCVBUF` as `getsockopt` gives it, bytes.
        pub rcvbuf: u32,
        /// `SO_SNDBUF` as `getsockopt` gives it, bytes.
        pub sndbuf: u32,
    }
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions {
            gso_size: 0,
            gro: false,
            no_checksum: false,
            broadcast: false,
            path_mtu: 1500,
            rcvbuf: 212_992,
            sndbuf: 212_992,
        }
    }
}

record! {
    /// A datagram waiting to be read.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Datagram {
        /// The sender.
        pub source: SocketAddr,
        /// The local address to which the datagram was sent.
        pub target: IpAddr,
        /// The traffic class of the IP header: differentiated services and congestion bits.
        pub traffic_class: u8,
        /// The hop limit of the IP header.
        pub hop_limit: u8,
        /// Size of each merged datagram in `payload`; 0 if it is a single one.
        pub segment_size: u16,
        /// The payload.
        pub payload: Vec<u8>,
    }
}

impl Field for UdpRecord {
    fn put(&self, out: &mut Output<'_>) {
        self.options.put(out);
        self.interface.put(out);
        put_list(&self.receive_queue, out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let (options, interface) = (Field::take(reader)?, Field::take(reader)?);
        Ok(UdpRecord { options, interface, receive_queue: take_list(reader)? })
    }
}

impl UdpRecord {
    /// Checks the UDP part for [`SessionRecord::check`](crate::record::SessionRecord::check).
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        if self.receive_queue.iter().any(|datagram| datagram.payload.len() > 65_535) {
            return Err(RecordError::Value("a datagram is longer than 65535 bytes"));
        }
        let is_mixed = |one: &Datagram| one.source.is_ipv4() != one.target.is_ipv4();
        if self.receive_queue.iter().any(is_mixed) {
            return Err(RecordError::Value("a datagram's addresses are of two families"));
        }
        if self.options.path_mtu < 68 {
            return Err(RecordError::Value("the path MTU is below 68"));
        }
        Ok(())
    }
}
