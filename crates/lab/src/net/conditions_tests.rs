//! Tests of `conditions`, with invented times.

use super::*;
use sojourn_wire::{FlowKey, MacAddress, Protocol, frame};

const MS: Duration = Duration::from_millis(1);

fn frame(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    bytes[96..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[96], bytes[97], bytes[98], bytes[99]])
}

/// Offers `count` frames, one per millisecond. Returns the frames that arrive, in the order of
/// arrival, with the time since the start.
fn pass(channel: &mut Channel, count: u32, conditions: &Conditions) -> Vec<(u32, Duration)> {
    let start = Instant::now();
    let mut seen = Vec::new();
    for tick in 0..count + 1000 {
        let now = start + MS * tick;
        if tick < count {
            channel.offer(now, &frame(tick), conditions);
        }
        while let Some(bytes) = channel.arrived(now) {
            seen.push((number(&bytes), now - start));
        }
    }
    assert_eq!(channel.next_due(), None);
    seen
}

#[test]
fn nothing_is_done_by_default() {
    let mut channel = Channel::new(1);
    let seen = pass(&mut channel, 50, &Conditions::default());
    let expected: Vec<_> = (0..50).map(|number| (number, MS * number)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn chances_are_what_was_asked_for_and_the_same_every_time() {
    let conditions =
        Conditions { loss: 0.1, duplicate: 0.05, corrupt: 0.02, ..Conditions::default() };
    let run = |seed| {
        let mut channel = Channel::new(seed);
        let seen = pass(&mut channel, 10_000, &conditions);
        (seen, channel.counts)
    };
    let (seen, counts) = run(7);
    assert_eq!(run(7), (seen.clone(), counts));
    assert_ne!(run(8).0, seen);
    assert!((900..1100).contains(&counts.lost), "{counts:?}");
    assert!((350..550).contains(&counts.duplicated), "{counts:?}");
    assert!((120..240).contains(&counts.corrupted), "{counts:?}");
    assert_eq!(seen.len() as u64, counts.offered - counts.lost + counts.duplicated);
}

#[test]
fn one_bit_is_changed_and_never_in_the_link_header() {
    let conditions = Conditions { corrupt: 1.0, ..Conditions::default() };
    let mut channel = Channel::new(3);
    let now = Instant::now();
    for _ in 0..2000 {
        channel.offer(now, &[0; 60], &conditions);
        let bytes = channel.arrived(now).unwrap();
        assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        assert!(bytes[..14].iter().all(|byte| *byte == 0));
    }
    channel.offer(now, &[0; 14], &conditions);
    assert_eq!(channel.arrived(now), Some(vec![0; 14]));
}

#[test]
fn delay_and_jitter_keep_the_order() {
    let (delay, jitter) = (MS * 20, MS * 10);
    let conditions = Conditions { delay, jitter, ..Conditions::default() };
    let seen = pass(&mut Channel::new(4), 500, &conditions);
    assert!(seen.iter().map(|(number, _)| *number).eq(0..500));
    let late = |(number, at): &(u32, Duration)| *at - MS * *number;
    assert!(seen.iter().all(|one| (delay..=delay + jitter + MS).contains(&late(one))));
    assert!(seen.iter().any(|one| late(one) > delay + jitter / 2));
}

#[test]
fn reordered_frames_come_later_and_hold_nobody_up() {
    let conditions = Conditions { reorder: 0.1, reorder_by: MS * 5, ..Conditions::default() };
    let mut channel = Channel::new(5);
    let seen = pass(&mut channel, 1000, &conditions);
    assert_eq!(seen.len(), 1000);
    let late = seen.iter().filter(|(number, at)| *at == MS * *number + MS * 5).count();
    assert_eq!(late as u64, channel.counts.reordered);
    assert!((60..150).contains(&late), "{late}");
    assert!(seen.iter().all(|(number, at)| *at == MS * *number || *at == MS * *number + MS * 5));
}

#[test]
fn a_rate_spaces_frames_and_a_full_queue_loses_them() {
    // 100 bytes take a millisecond; the queue holds ten frames; all frames come at once.
    let conditions = Conditions { rate: Some(800_000), queue_bytes: 1000, ..Conditions::default() };
    let mut channel = Channel::new(6);
    let start = Instant::now();
    for number in 0..30 {
        channel.offer(start, &frame(number), &conditions);
    }
    for number in 0..10 {
        let due = start + MS * (number + 1);
        assert_eq!(channel.arrived(due - MS / 2), None);
        assert_eq!(
            channel.arrived(due).map(|bytes| crate::net::conditions::tests::number(&bytes)),
            Some(number)
        );
    }
    assert_eq!(channel.arrived(start + MS * 100), None);
    assert_eq!(channel.counts.overflowed, 20);
    // The link is idle again: even a frame longer than the queue passes through an empty queue.
    channel.offer(start + MS * 100, &[0; 2000], &conditions);
    assert_eq!(channel.next_due(), Some(start + MS * 120));
}

#[test]
fn only_capable_packets_are_marked_and_stay_whole() {
    let all = Conditions { mark: 1.0, ..Conditions::default() };
    let mut channel = Channel::new(9);
    let now = Instant::now();
    for (source, target) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
        let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
        let flow = FlowKey { protocol: Protocol::Udp, source, target };
        let link =
            ethernet::Header::new(MacAddress::default(), MacAddress::default(), EtherType::IPV4);
        let header = frame::Header::new(Some(link), flow, frame::Fields::default()).unwrap();
        for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congestion] {
            let mut bytes = [0; 80];
            let emitted = header
                .emit_udp(
                    &[],
                    frame::PacketFields {
                        ecn,
                        identification: 7,
                        offload: frame::Offload::Nothing,
                    },
                    &mut bytes,
                )
                .unwrap();
            channel.offer(now, &bytes[..emitted.len], &all);
            let seen = channel.arrived(now).unwrap();
            let seen = frame::parse(&seen, frame::LinkType::Ethernet).unwrap();
            assert!(seen.checksum_is_right());
            let expected = if ecn == Ecn::NotCapable { ecn } else { Ecn::Congestion };
            assert_eq!(seen.traffic_class.ecn(), expected);
        }
    }
    assert_eq!(channel.counts.marked, 4);
    channel.offer(now, &[0; 14], &all);
    assert_eq!(channel.arrived(now), Some(vec![0; 14]));
}
