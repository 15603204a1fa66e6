use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn span(start: u64, end: u64) -> Span {
    Span::new(start, end)
}

fn blocks(assembler: &mut Assembler, next: u64) -> Vec<(u64, u64)> {
    let mut blocks = [Span::default(); SACK_BLOCKS_MAX];
    let count = assembler.sack_blocks(next, &mut blocks);
    blocks[..count].iter().map(|block| (block.start, block.end)).collect()
}

#[test]
fn a_segment_in_order_joins_what_waits() {
    let mut assembler = Assembler::new(4);
    assert_eq!(assembler.insert(100, span(110, 120)), Inserted::Kept);
    assert_eq!(assembler.insert(100, span(100, 110)), Inserted::Advanced(120));
    assert!(assembler.is_empty());
}

/// RFC 2018, section 4, case 2: the first of eight segments of 500 bytes is lost.
#[test]
fn rfc_2018_first_segment_dropped() {
    let mut assembler = Assembler::new(8);
    for end in (6_000..=9_000).step_by(500) {
        assert_eq!(assembler.insert(5_000, span(end - 500, end)), Inserted::Kept);
        assert_eq!(blocks(&mut assembler, 5_000), [(5_500, end)]);
    }
}

/// RFC 2018, section 4, case 3: the second, fourth, sixth and eighth are lost, then the fourth and
/// the second arrive.
#[test]
fn rfc_2018_every_second_segment_dropped() {
    let mut assembler = Assembler::new(8);
    assert_eq!(assembler.insert(5_000, span(5_000, 5_500)), Inserted::Advanced(5_500));
    let next = 5_500;
    assembler.insert(next, span(6_000, 6_500));
    assert_eq!(blocks(&mut assembler, next), [(6_000, 6_500)]);
    assembler.insert(next, span(7_000, 7_500));
    assert_eq!(blocks(&mut assembler, next), [(7_000, 7_500), (6_000, 6_500)]);
    assembler.insert(next, span(8_000, 8_500));
    assert_eq!(blocks(&mut assembler, next), [(8_000, 8_500), (7_000, 7_500), (6_000, 6_500)]);
    assembler.insert(next, span(6_500, 7_000));
    assert_eq!(blocks(&mut assembler, next), [(6_000, 7_500), (8_000, 8_500)]);
    assert_eq!(assembler.insert(next, span(5_500, 6_000)), Inserted::Advanced(7_500));
    assert_eq!(blocks(&mut assembler, 7_500), [(8_000, 8_500)]);
}

/// RFC 2883, 4.1.1: a duplicate of acknowledged bytes.
#[test]
fn rfc_2883_a_duplicate_below_the_acknowledgement() {
    let mut assembler = Assembler::new(8);
    assert_eq!(assembler.insert(4_000, span(3_000, 3_500)), Inserted::Duplicate);
    assert!(assembler.duplicate_is_owed());
    assert_eq!(blocks(&mut assembler, 4_000), [(3_000, 3_500)]);
    assert!(blocks(&mut assembler, 4_000).is_empty(), "told once");
}

/// RFC 2883, 4.1.2: a duplicate below, and a waiting range.
#[test]
fn rfc_2883_a_duplicate_below_and_a_range_above() {
    let mut assembler = Assembler::new(8);
    assembler.insert(4_000, span(4_500, 5_000));
    assert_eq!(assembler.insert(4_000, span(3_000, 3_500)), Inserted::Duplicate);
    assert_eq!(blocks(&mut assembler, 4_000), [(3_000, 3_500), (4_500, 5_000)]);
}

/// RFC 2883, 4.1.3: a duplicate of waiting bytes is followed by the range that contains it.
#[test]
fn rfc_2883_a_duplicate_within_a_range() {
    let mut assembler = Assembler::new(8);
    assembler.insert(4_000, span(4_500, 5_500));
    assembler.insert(4_000, span(6_000, 6_500));
    assert_eq!(assembler.insert(4_000, span(5_000, 5_500)), Inserted::Duplicate);
    assert_eq!(blocks(&mut assembler, 4_000), [(5_000, 5_500), (4_500, 5_500), (6_000, 6_500)]);
}

/// RFC 2883, 4.2.1: a part of the segment is a duplicate.
#[test]
fn rfc_2883_a_part_is_a_duplicate() {
    let mut assembler = Assembler::new(8);
    assert_eq!(assembler.insert(1_500, span(1_000, 2_000)), Inserted::Advanced(2_000));
    assert_eq!(blocks(&mut assembler, 2_000), [(1_000, 1_500)]);
}

#[test]
fn without_room_only_what_joins_is_taken() {
    let mut assembler = Assembler::new(2);
    assert_eq!(assembler.insert(0, span(10, 20)), Inserted::Kept);
    assert_eq!(assembler.insert(0, span(30, 40)), Inserted::Kept);
    assert_eq!(assembler.insert(0, span(50, 60)), Inserted::Full);
    assert_eq!(assembler.insert(0, span(20, 25)), Inserted::Kept);
    assert_eq!(assembler.insert(0, span(25, 30)), Inserted::Kept);
    assert_eq!(assembler.insert(0, span(50, 60)), Inserted::Kept);
    assert_eq!((assembler.len(), assembler.bytes(), assembler.highest()), (2, 40, Some(60)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Compares with a flag for every byte. With enough room nothing is refused; with too little
    /// the flags of refused bytes stay unset.
    #[test]
    fn the_ranges_are_the_bitmap(
        segments in prop::collection::vec((0u64..300, 1u64..40), 1..150),
        capacity in prop_oneof![Just(1usize), Just(3), Just(200)],
    ) {
        let mut assembler = Assembler::new(capacity);
        let memory = assembler.ranges.capacity();
        let mut bitmap = [false; 400];
        let mut next = 0u64;
        for (start, length) in segments {
            let segment = span(start, start + length);
            let bits = &mut bitmap[start as usize..(start + length) as usize];
            let known = bits.iter().all(|bit| *bit);
            let any_known = bits.iter().any(|bit| *bit);
            let inserted = assembler.insert(next, segment);
            if inserted == Inserted::Full {
                prop_assert!(capacity < 200 && assembler.len() == capacity);
            } else {
                bits.fill(true);
            }
            let reached = bitmap.iter().position(|bit| !bit).unwrap() as u64;
            match inserted {
                Inserted::Advanced(end) => { prop_assert!(end == reached && end > next); next = end; }
                Inserted::Duplicate => prop_assert!(known),
                Inserted::Kept => prop_assert!(!known && reached == next),
                Inserted::Full => {}
            }
            prop_assert_eq!(assembler.duplicate_is_owed(), any_known);
            let mut blocks = [Span::default(); SACK_BLOCKS_MAX];
            let count = assembler.sack_blocks(next, &mut blocks);
            let first = usize::from(any_known);
            for block in &blocks[..count] {
                prop_assert!(bitmap[block.start as usize..block.end as usize].iter().all(|bit| *bit));
            }
            if inserted == Inserted::Kept {
                prop_assert!(blocks[first..count].iter().any(|block| block.covers(segment)));
            }
            // The waiting ranges are the bytes set beyond the next expected one, with a gap on
            // either side of each.
            let waiting = bitmap[next as usize..].iter().filter(|bit| **bit).count() as u64;
            prop_assert_eq!(assembler.bytes(), waiting);
            for range in &assembler.ranges {
                prop_assert!(!bitmap[range.span.start as usize - 1] && !bitmap[range.span.end as usize]);
            }
            prop_assert_eq!(assembler.ranges.capacity(), memory);
        }
    }
}
