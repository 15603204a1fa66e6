//! A connection allocates its memory at import and none later, even for lost and reordered
//! segments.
//!
//! Alone in its file, and without the test harness: the counting allocator counts for the whole
//! process, and the harness has a thread that may allocate at any moment.

use sojourn_proto::record::*;
use sojourn_proto::tcp::{Arrival, Connection, Limits};
use sojourn_proto::time::{Duration, Instant};
use sojourn_proto::udp;
use sojourn_wire::tcp::{Flags, Header, Options, SackBlock, SeqNum};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::net::SocketAddr;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn session(kind: Kind) -> SessionRecord {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    SessionRecord {
        local: address("192.0.2.1:1000"),
        remote: Some(address("192.0.2.2:2000")),
        ip: IpOptions::default(),
        kind,
    }
}

/// Exchanges data with a peer that loses every seventh segment, and sends every fifth of its own
/// twice and every third late.
fn converse(connection: &mut Connection, payload: &[u8], buffer: &mut [u8]) {
    let mut now = Instant::ZERO + Duration::from_secs(10);
    let (mut sent, mut acked) = (0u32, 0u32);
    for round in 0..3_000u32 {
        now += Duration::from_millis(3);
        connection.send(&[payload], round % 4 == 0);
        if connection.next_timeout().is_some_and(|at| at <= now) {
            connection.on_timeout(now);
        }
        let mut missing = None;
        while let Some(transmit) = connection.poll_transmit(now) {
            let end = transmit.header.seq.0.wrapping_add(transmit.payload_len() as u32);
            if round % 7 == 3 && missing.is_none() {
                missing = Some(transmit.header.seq.0);
            } else if transmit.header.seq.0 <= acked {
                acked = acked.max(end);
            }
            sent = sent.max(end);
        }
        let mut options = Options::NONE;
        if acked + 100 < sent && round % 3 == 0 {
            options.sack.push(SackBlock { start: SeqNum(sent - 100), end: SeqNum(sent) });
        }
        let place = round / 5 * 4 + round % 3;
        let header = Header {
            source_port: 2_000,
            target_port: 1_000,
            seq: SeqNum(place * 100),
            ack: SeqNum(acked),
            flags: Flags::ACK,
            window: 60_000,
            urgent: 0,
            options,
        };
        connection.on_segment(now, &Arrival::new(&header, &payload[..100]));
        connection.recv(&mut [&mut buffer[..]]);
        connection.info(now);
    }
    assert!(acked > 10_000, "the connection has sent something");
    assert!(connection.info(now).total_retrans > 0, "and something again");
}

fn main() {
    let tcp = TcpRecord { sack: true, ..TcpRecord::default() };
    let mut connection =
        Connection::import(&session(Kind::Tcp(tcp)), &Limits::default(), Instant::ZERO)
            .expect("imports");
    let mut socket =
        udp::Socket::import(&session(Kind::Udp(UdpRecord::default())), &udp::Limits::default())
            .expect("imports");
    let (payload, mut buffer) = (vec![7; 1_000], vec![0; 10_000]);
    let source = socket.peer().expect("connected");
    let envelope =
        udp::Envelope { target: socket.local().ip(), traffic_class: 0, hop_limit: 64, time_ns: 0 };
    let region = Region::new(ALLOCATOR);
    converse(&mut connection, &payload, &mut buffer);
    for round in 0..5_000 {
        socket.on_datagram(source, &envelope, &payload, 0);
        if round % 3 != 0 {
            socket.recv(&mut [&mut buffer[..]]);
        }
        let _ = socket.prepare(None, 1_000, None);
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
    println!("test result: ok. 1 passed; 0 failed");
}
