//! A short run of this crate's fuzz targets with the same bytes every time.
//!
//! `cargo xtask fuzz proto_segments` (and `proto_record`) runs them for longer.
#![cfg(debug_assertions)]

use sojourn_proto::fuzz;
use sojourn_proto::record::{
    IpOptions, Kind, SessionRecord, TcpRecord, TimestampUnit, TimestampsRecord,
};
use sojourn_proto::time::Duration;

/// A small deterministic generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[test]
fn sequences_of_segments() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let length = 20 + random.below(600);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        if std::panic::catch_unwind(|| fuzz::segments(&bytes)).is_err() {
            panic!("with seed {seed}");
        }
    }
}

/// A record that can be imported, without its header.
fn body() -> Vec<u8> {
    let mut tcp = TcpRecord {
        snd_una: 77,
        snd_nxt: 80,
        snd_wl2: 77,
        snd_wnd: 1_000,
        max_window: 2_000,
        rcv_wnd: 5_000,
        sack: true,
        timestamps: Some(TimestampsRecord {
            unit: TimestampUnit::Milliseconds,
            value: 5,
            recent: 6,
            recent_age: Duration::ZERO,
            recent_valid: true,
        }),
        ..TcpRecord::default()
    };
    tcp.send_queue = vec![1; 30];
    tcp.receive_queue = vec![2; 20];
    let record = SessionRecord {
        local: "192.0.2.1:4000".parse().expect("an address"),
        remote: Some("192.0.2.2:80".parse().expect("an address")),
        ip: IpOptions::default(),
        kind: Kind::Tcp(tcp),
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes.split_off(sojourn_proto::record::HEADER_LEN)
}

#[test]
fn records() {
    let good = body();
    let mut random = Random(3);
    for _ in 0..3_000 {
        let mut bytes = vec![6];
        bytes.extend_from_slice(&good);
        for _ in 0..random.below(6) {
            let at = 1 + random.below(bytes.len() - 1);
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                _ => bytes[at] = [0, 1, 127, 128, 255][random.below(5)],
            }
        }
        fuzz::record(&bytes);
    }
}
