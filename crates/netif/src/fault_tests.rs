//! Tests of the fault injector: its rates and counters.

use super::*;
use crate::sim;

const FRAMES: u32 = 20_000;

/// Sends numbered frames through an injector at the sending end, and returns the numbers that
/// arrive.
fn sent_through(options: &FaultOptions) -> (Vec<u32>, FaultCounts) {
    let sim::Link { near, mut far, .. } = sim::pair(&sim::Options::default());
    let mut near = Fault::new(near, options);
    let mut arrived = Vec::new();
    for number in 0..FRAMES {
        near.send(&Outgoing::plain(&frame(number))).unwrap();
        // Several frames share a flush, as in the engine.
        if number % 16 == 15 {
            near.flush().unwrap();
            far.receive(usize::MAX, &mut |received| arrived.push(number_of(received.frame)))
                .unwrap();
        }
    }
    near.flush().unwrap();
    far.receive(usize::MAX, &mut |received| arrived.push(number_of(received.frame))).unwrap();
    (arrived, near.sent_counts())
}

/// Sends numbered frames through an injector at the receiving end, and returns the numbers that
/// arrive.
fn received_through(options: &FaultOptions) -> (Vec<u32>, FaultCounts) {
    let sim::Link { mut near, far, .. } = sim::pair(&sim::Options::default());
    let mut far = Fault::new(far, options);
    let mut arrived = Vec::new();
    let mut take = |far: &mut Fault<sim::Endpoint>| {
        far.receive(32, &mut |received| arrived.push(number_of(received.frame))).unwrap()
    };
    for number in 0..FRAMES {
        near.send(&Outgoing::plain(&frame(number))).unwrap();
        if number % 16 == 15 {
            take(&mut far);
        }
    }
    // Receives until nothing is left; the last call releases the frames held back.
    while take(&mut far) > 0 {}
    take(&mut far);
    (arrived, far.received_counts())
}

fn frame(number: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..4].copy_from_slice(&number.to_ne_bytes());
    bytes
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_ne_bytes(frame[..4].try_into().unwrap())
}

fn both(rates: Rates) -> [(Vec<u32>, FaultCounts); 2] {
    let send = FaultOptions { send: rates, ..FaultOptions::default() };
    let receive = FaultOptions { receive: rates, ..FaultOptions::default() };
    [sent_through(&send), received_through(&receive)]
}

/// Returns true if `count` is within a fifth of the expected number, which is more than five
/// standard deviations here.
fn is_about(count: u64, per_million: u32) -> bool {
    let expected = f64::from(FRAMES) * f64::from(per_million) / 1e6;
    (count as f64 - expected).abs() < expected / 5.0
}

#[test]
fn without_faults_everything_passes_in_order() {
    for (arrived, counts) in both(Rates::default()) {
        assert!(arrived.into_iter().eq(0..FRAMES));
        assert_eq!(counts, FaultCounts { frames: FRAMES.into(), ..FaultCounts::default() });
    }
}

#[test]
fn loss_is_as_often_as_told() {
    for (arrived, counts) in both(Rates { loss: 50_000, ..Rates::default() }) {
        assert!(is_about(counts.lost, 50_000), "{counts:?}");
        assert_eq!(arrived.len() as u64, u64::from(FRAMES) - counts.lost);
        assert!(arrived.is_sorted());
    }
}

#[test]
fn duplication_is_as_often_as_told() {
    for (arrived, counts) in both(Rates { duplication: 50_000, ..Rates::default() }) {
        assert!(is_about(counts.duplicated, 50_000), "{counts:?}");
        assert_eq!(arrived.len() as u64, u64::from(FRAMES) + counts.duplicated);
        let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(twice as u64, counts.duplicated);
    }
}

#[test]
fn reordering_loses_nothing_and_goes_no_further_than_told() {
    for (mut arrived, counts) in both(Rates { reordering: 50_000, ..Rates::default() }) {
        assert!(is_about(counts.reordered, 50_000), "{counts:?}");
        let late = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        // At the end of a batch there may be no frame that overtakes.
        assert!(late > counts.reordered / 2 && late <= counts.reordered, "{late} {counts:?}");
        for (at, number) in arrived.iter().enumerate() {
            let distance = (at as i64 - i64::from(*number)).abs();
            assert!(distance <= 3 + HELD_MAX as i64, "{number} at {at}");
        }
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..FRAMES));
    }
}

#[test]
fn the_same_seed_gives_the_same_faults_and_another_one_others() {
    let rates = Rates { loss: 20_000, duplication: 20_000, reordering: 20_000, corruption: 20_000 };
    let with = |seed| sent_through(&FaultOptions { seed, send: rates, ..FaultOptions::default() });
    assert_eq!(with(7), with(7));
    assert_ne!(with(7).0, with(8).0);
}

/// A frame with a transport checksum at 40, over everything from 34.
fn with_checksum(checksum: Checksum) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..200).collect();
    bytes[40..42].fill(0);
    if checksum == Checksum::Unknown {
        complete_checksum(&mut bytes, PARTIAL);
    }
    bytes
}

const PARTIAL: Checksum = Checksum::Partial { start: 34, offset: 6 };

#[test]
fn damage_is_one_bit_that_a_checksum_shows() {
    for checksum in [PARTIAL, Checksum::Unknown] {
        let sim::Link { mut near, far, .. } = sim::pair(&sim::Options::default());
        let rates = Rates { corruption: 1_000_000, ..Rates::default() };
        let mut far = Fault::new(far, &FaultOptions { receive: rates, ..FaultOptions::default() });
        let sound = with_checksum(Checksum::Unknown);
        let bytes = with_checksum(checksum);
        for _ in 0..200 {
            let mut outgoing = Outgoing::plain(&bytes);
            outgoing.vnet.checksum = checksum;
            near.send(&outgoing).unwrap();
        }
        let mut seen = 0;
        let mut check = |received: Received<'_>| {
            assert!(received.vnet.must_verify());
            let bits: u32 =
                received.frame.iter().zip(&sound).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(bits, 1);
            assert_eq!(received.frame[..14], sound[..14], "the link header is left alone");
            seen += 1;
        };
        far.receive(1000, &mut check).unwrap();
        assert_eq!(seen, 200);
    }
}

#[test]
fn a_damaged_frame_of_segments_is_lost_on_the_way_out() {
    let sim::Link { near, mut far, .. } = sim::pair(&sim::Options::default());
    let rates = Rates { corruption: 1_000_000, ..Rates::default() };
    let mut near = Fault::new(near, &FaultOptions { send: rates, ..FaultOptions::default() });
    let bytes = with_checksum(PARTIAL);
    let segments = vnet::Segments { kind: vnet::SegmentKind::Udp, size: 50, has_cwr: false };
    let vnet = vnet::Header { checksum: PARTIAL, segments: Some(segments), header_len: 42 };
    near.send(&Outgoing { vnet, parts: [&bytes, &[], &[]] }).unwrap();
    near.send(&Outgoing::plain(&bytes)).unwrap();
    assert_eq!(far.receive(9, &mut |_| ()), Ok(1));
    assert_eq!(near.sent_counts().corrupted, 2);
}
