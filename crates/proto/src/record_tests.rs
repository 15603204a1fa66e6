//! Tests of session records: the round trip in every state, refusals with their reasons, and the
//! bytes that the documentation draws.

use crate::record::*;
use crate::time::Duration;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use proptest::prelude::*;

fn encoded(record: &SessionRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

fn endpoints(v4: bool) -> (SocketAddr, SocketAddr) {
    if v4 {
        let local = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 4000);
        (local.into(), SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 80).into())
    } else {
        let ip = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
        (SocketAddrV6::new(ip(1), 4000, 7, 3).into(), SocketAddrV6::new(ip(2), 80, 0, 0).into())
    }
}

pub(crate) fn plain() -> SessionRecord {
    let (local, remote) = endpoints(true);
    let kind = Kind::Tcp(TcpRecord { send_queue: vec![1, 2, 3], snd_nxt: 1_002, ..tcp() });
    SessionRecord { local, remote: Some(remote), ip: IpOptions::default(), kind }
}

fn tcp() -> TcpRecord {
    TcpRecord { snd_una: 1_000, snd_nxt: 1_000, rcv_nxt: 5_000, ..TcpRecord::default() }
}

prop_compose! {
    fn queues()(
        send in prop::collection::vec(any::<u8>(), 0..200),
        receive in prop::collection::vec(any::<u8>(), 0..200),
        sent in any::<prop::sample::Index>(),
        gaps in prop::collection::vec((1u32..100, prop::collection::vec(any::<u8>(), 1..50)), 0..4),
    ) -> (Vec<u8>, Vec<u8>, u32, Vec<(u32, Vec<u8>)>) {
        let sent = sent.index(send.len() + 1) as u32;
        (send, receive, sent, gaps)
    }
}

prop_compose! {
    fn any_tcp()(
        state in prop::sample::select(TcpState::ALL),
        (send, receive, sent, gaps) in queues(),
        (una, rcv_nxt, window, wup) in (any::<u32>(), any::<u32>(), 0u32..65_536, 0u32..10_000),
        (snd_wscale, rcv_wscale) in (0u8..15, 0u8..15),
        fin in any::<bool>(),
        flags in any::<[bool; 5]>(),
        times in any::<[u32; 6]>(),
        cwnd in 1u32..,
        counters in any::<[u64; 3]>(),
    ) -> TcpRecord {
        let acked = matches!(state, TcpState::FinWait2 | TcpState::TimeWait);
        let may_fin = matches!(state, TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck);
        let send = if acked { Vec::new() } else { send };
        let fin_sent = fin && may_fin;
        let sent = if acked { 0 } else if fin_sent { send.len() as u32 + 1 } else { sent };
        let mut end = rcv_nxt;
        let mut out_of_order = Vec::new();
        for (gap, bytes) in gaps.into_iter().filter(|_| !state.peer_closed()) {
            let sequence = end.wrapping_add(gap);
            end = sequence.wrapping_add(bytes.len() as u32);
            out_of_order.push(OutOfOrder { sequence, bytes });
        }
        let time = |index: usize| Duration::from_micros(u64::from(times[index]));
        TcpRecord {
            state,
            closed: (state == TcpState::Closed && flags[0]).then_some(CloseReason::Reset),
            receive_shutdown: flags[1],
            ack_pending: flags[2],
            snd_una: una,
            snd_nxt: una.wrapping_add(sent),
            snd_wnd: window << snd_wscale,
            rcv_nxt,
            rcv_wnd: window << rcv_wscale,
            rcv_wup: rcv_nxt.wrapping_sub(wup),
            window_scaling: true,
            snd_wscale,
            rcv_wscale,
            sack: flags[3],
            timestamps: flags[4].then_some(TimestampsRecord {
                unit: TimestampUnit::Microseconds,
                value: times[0],
                recent: times[1],
                recent_age: time(2),
                recent_valid: true,
            }),
            srtt: time(3),
            rttvar: time(4),
            min_rtt: time(5),
            cwnd,
            counters: TcpCounters {
                bytes_acked: counters[0],
                segs_in: counters[1],
                total_rto_recoveries: counters[2],
                ..TcpCounters::default()
            },
            receive_queue: receive,
            out_of_order,
            send_queue: send,
            ..TcpRecord::default()
        }
    }
}

prop_compose! {
    fn any_udp()(
        queue in prop::collection::vec(
            (any::<bool>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..100)), 0..5),
        gso_size in any::<u16>(),
        gro in any::<bool>(),
    ) -> UdpRecord {
        let receive_queue = queue
            .into_iter()
            .map(|(v4, segment_size, payload)| {
                let (target, source) = endpoints(v4);
                let [hop_limit, traffic_class] = segment_size.to_le_bytes();
                let target = target.ip();
                Datagram { source, target, traffic_class, hop_limit, segment_size, payload }
            })
            .collect();
        let options = UdpOptions { gso_size, gro, ..UdpOptions::default() };
        UdpRecord { options, interface: gso_size.into(), receive_queue }
    }
}

fn any_record() -> impl Strategy<Value = SessionRecord> {
    let kind = prop_oneof![any_tcp().prop_map(Kind::Tcp), any_udp().prop_map(Kind::Udp)];
    (any::<bool>(), any::<bool>(), kind).prop_map(|(v4, connected, kind)| {
        let (local, remote) = endpoints(v4);
        let remote = (connected || matches!(kind, Kind::Tcp(_))).then_some(remote);
        SessionRecord { local, remote, ip: IpOptions::default(), kind }
    })
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(record in any_record()) {
        prop_assert_eq!(SessionRecord::decode(&encoded(&record)), Ok(record));
    }

    #[test]
    fn every_prefix_is_refused(record in any_record(), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&record);
        prop_assert!(SessionRecord::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn every_changed_bit_is_noticed(record in any_record(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = encoded(&record);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(SessionRecord::decode(&bytes).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
        valid_front in any::<bool>(),
    ) {
        if valid_front {
            let front = encoded(&plain());
            let count = bytes.len().min(crate::record::HEADER_LEN);
            bytes[..count].copy_from_slice(&front[..count]);
        }
        let _ = SessionRecord::decode(&bytes);
    }
}

#[test]
fn a_record_may_be_appended_to_other_bytes() {
    let mut bytes = vec![9; 3];
    plain().encode(&mut bytes);
    assert_eq!(SessionRecord::decode(&bytes[3..]), Ok(plain()));
}

#[test]
fn refusals_say_why() {
    let good = encoded(&plain());
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        SessionRecord::decode(&bytes)
    };
    assert_eq!(with(0, b'X'), Err(RecordError::NotARecord));
    assert_eq!(with(4, 2), Err(RecordError::Version(2)));
    assert_eq!(with(4, 0), Err(RecordError::Version(0)));
    assert_eq!(with(6, 1), Err(RecordError::Value("the protocol is neither TCP (6) nor UDP (17)")));
    assert_eq!(with(7, 1), Err(RecordError::Value("a reserved byte is not 0")));
    assert_eq!(with(30, 0xff), Err(RecordError::Damaged));
    let mut long = good.clone();
    long.push(0);
    assert_eq!(SessionRecord::decode(&long), Err(RecordError::Excess));
    assert_eq!(SessionRecord::decode(&good[..good.len() - 1]), Err(RecordError::Truncated));
}

#[test]
fn contradictions_are_refused() {
    let refused = |change: fn(&mut TcpRecord)| {
        let mut record = plain();
        let Kind::Tcp(tcp) = &mut record.kind else { unreachable!() };
        change(tcp);
        let error = record.check().expect_err("the record contradicts itself");
        assert_eq!(SessionRecord::decode(&encoded(&record)), Err(error));
    };
    refused(|tcp| tcp.snd_nxt = tcp.snd_una.wrapping_add(5));
    refused(|tcp| tcp.snd_nxt = tcp.snd_una.wrapping_sub(1));
    refused(|tcp| tcp.state = TcpState::FinWait2);
    refused(|tcp| tcp.snd_wscale = 3);
    refused(|tcp| tcp.snd_wnd = 65_536);
    refused(|tcp| tcp.cwnd = 0);
    refused(|tcp| tcp.path_mtu = 67);
    refused(|tcp| tcp.closed = Some(CloseReason::Reset));
    refused(|tcp| tcp.out_of_order.push(OutOfOrder { sequence: tcp.rcv_nxt, bytes: vec![1] }));
    refused(|tcp| tcp.tuning.retries2 = 0);
    let mut record = plain();
    record.remote = None;
    assert!(record.check().is_err());
    record.remote = Some(endpoints(false).1);
    assert!(record.check().is_err());
}

#[test]
fn the_bytes_are_those_that_the_page_draws() {
    let bytes = encoded(&plain());
    let u32_at =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    assert_eq!(&bytes[..8], b"SJSR\x01\x00\x06\x00");
    assert_eq!(u32_at(8) as usize, bytes.len());
    assert_eq!(bytes[20..22], [4, 0xa0]);
    assert_eq!(bytes[31..35], [192, 0, 2, 1]);
    assert_eq!((bytes[47], bytes[48]), (1, 4));
    assert_eq!((bytes[75], bytes[76], bytes[77]), (0, 64, 1));
    assert_eq!(bytes[86..90], [1, 0, 0, 0], "state, no reason, not shut, nothing owed");
    assert_eq!((u32_at(90), u32_at(94)), (1_000, 1_002));
    assert_eq!(u32_at(114), 5_000, "rcv_nxt");
    let queues = bytes.len() - (4 + 4 + 3 + 4);
    assert_eq!(bytes[queues..], [0, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0]);
    assert_eq!(queues, 559, "sizes of the fixed parts: see docs/reference/session-record.md");
}

proptest! {
    #[test]
    fn a_checksum_does_not_depend_on_the_pieces(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12)
    ) {
        let mut sum = Checksum::default();
        pieces.iter().for_each(|piece| sum.add(piece));
        prop_assert_eq!(sum.finish(), checksum(&pieces.concat()));
    }
}
