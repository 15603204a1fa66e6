//! Tests of the simulated link: times, rate, queue, order.

use super::*;

fn frame(len: usize, mark: u8) -> Vec<u8> {
    let mut bytes = vec![mark; len];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes
}

/// Receives the frames that arrive at `end` now and returns their times and marks.
fn arrivals(end: &mut Endpoint) -> Vec<(u64, u8)> {
    let mut found = Vec::new();
    let mut note = |received: Received<'_>| {
        found.push((received.time_ns.unwrap(), received.frame[0]));
    };
    end.receive(usize::MAX, &mut note).unwrap();
    found
}

#[test]
fn a_frame_arrives_after_its_own_time_and_the_latency() {
    let options = Options { latency_ns: 1000, rate: Some(1_000_000_000), ..Options::default() };
    let Link { mut near, mut far, clock } = pair(&options);
    near.send(&Outgoing::plain(&frame(100, 1))).unwrap();
    near.send(&Outgoing::plain(&frame(200, 2))).unwrap();
    assert_eq!(far.next_arrival_ns(), Some(1100));
    clock.advance_to(1099);
    assert_eq!(arrivals(&mut far), []);
    clock.advance_to(1100);
    assert_eq!(arrivals(&mut far), [(1100, 1)]);
    clock.advance_to(1_000_000);
    assert_eq!(arrivals(&mut far), [(1300, 2)]);
    assert_eq!((near.next_arrival_ns(), far.next_arrival_ns()), (None, None));
    assert_eq!((near.statistics().sent, far.statistics().received), (2, 2));
}

#[test]
fn a_queue_that_is_full_drops_the_newest() {
    let options = Options { rate: Some(1_000_000), queue_bytes: 1000, ..Options::default() };
    let Link { mut near, mut far, clock } = pair(&options);
    for mark in 0..6 {
        near.send(&Outgoing::plain(&frame(300, mark))).unwrap();
    }
    assert_eq!(near.dropped(), 3);
    // Half of the queue has left by then.
    clock.advance_to(500_000);
    near.send(&Outgoing::plain(&frame(300, 9))).unwrap();
    clock.advance_to(10_000_000);
    let expected = [(300_000, 0), (600_000, 1), (900_000, 2), (1_200_000, 9)];
    assert_eq!(arrivals(&mut far), expected);
}

#[test]
fn what_is_too_long_is_refused() {
    let options = Options { mtu: 1000, gso_max: 0, ..Options::default() };
    let Link { mut near, far: _far, .. } = pair(&options);
    near.send(&Outgoing::plain(&frame(1014, 0))).unwrap();
    assert_eq!(near.send(&Outgoing::plain(&frame(1015, 0))), Err(SendError::TooLong));
    let mut tagged = frame(1018, 0);
    tagged[12..18].copy_from_slice(&[0x81, 0, 0, 5, 8, 0]);
    near.send(&Outgoing::plain(&tagged)).unwrap();
    let segments = vnet::Segments { kind: vnet::SegmentKind::TcpV4, size: 100, has_cwr: false };
    let long = frame(5000, 0);
    let mut outgoing = Outgoing::plain(&long);
    outgoing.vnet.segments = Some(segments);
    assert_eq!(near.send(&outgoing), Err(SendError::NoOffload));
    near.change(&Options { gso_max: 5000, ..options });
    near.send(&outgoing).unwrap();
    near.change(&Options { gso_max: 4900, ..options });
    assert_eq!(near.send(&outgoing), Err(SendError::TooLong));
}

#[test]
fn a_link_that_changes_does_not_reorder() {
    let options = Options { latency_ns: 1000, ..Options::default() };
    let Link { mut near, mut far, clock } = pair(&options);
    near.send(&Outgoing::plain(&frame(100, 1))).unwrap();
    near.change(&Options { latency_ns: 0, ..options });
    near.send(&Outgoing::plain(&frame(100, 2))).unwrap();
    clock.advance_to(1000);
    assert_eq!(arrivals(&mut far), [(1000, 1), (1000, 2)]);
}

#[test]
fn the_other_end_may_send_during_the_callback() {
    let Link { mut near, mut far, .. } = pair(&Options::default());
    near.send(&Outgoing::plain(&frame(60, 1))).unwrap();
    near.send(&Outgoing::plain(&frame(60, 2))).unwrap();
    let mut count = 0;
    // For each frame taken another one arrives, up to the budget.
    let mut echo = |received: Received<'_>| {
        near.send(&Outgoing::plain(received.frame)).unwrap();
        count += 1;
    };
    assert_eq!(far.receive(10, &mut echo), Ok(10));
    assert_eq!(count, 10);
}
