//! Tests of `options`: the bytes that Linux writes, and lists that are damaged.

use super::*;

fn emitted(options: Options) -> ([u8; 40], usize) {
    let mut out = [0xee; 40];
    let len = options.emit(&mut out).unwrap();
    (out, len)
}

fn block(start: u32, end: u32) -> SackBlock {
    SackBlock { start: SeqNum(start), end: SeqNum(end) }
}

#[test]
fn acknowledgments_as_linux_writes_them() {
    let mut options = Options::NONE;
    options.sack.push(block(0x0102_0304, 0x0506_0708));
    let (out, len) = emitted(options);
    assert_eq!(&out[..len], [1, 1, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    options.timestamps = Some(Timestamps { value: 0x0a0b_0c0d, echo: 1 });
    let (out, len) = emitted(options);
    let expected = [1, 1, 8, 10, 10, 11, 12, 13, 0, 0, 0, 1, 1, 1, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(&out[..len], expected);
}

#[test]
fn syns_without_timestamps() {
    let options =
        Options { mss: Some(536), sack_permitted: true, window_scale: Some(7), ..Options::NONE };
    let (out, len) = emitted(options);
    assert_eq!(&out[..len], [2, 4, 2, 24, 1, 1, 4, 2, 1, 3, 3, 7]);
}

#[test]
fn four_blocks_fit_alone_and_three_beside_timestamps() {
    let timestamps = Some(Timestamps::default());
    assert_eq!(Options::NONE.sack_room(), 4);
    let mut options = Options { timestamps, ..Options::NONE };
    assert_eq!(options.sack_room(), 3);
    for start in 0..4 {
        assert!(options.sack.push(block(start, start + 1)));
    }
    assert!(!options.sack.push(block(9, 10)), "a fifth");
    assert_eq!(options.emit(&mut [0; 80]), Err(NoRoom));
    options.sack.truncate(options.sack_room());
    assert_eq!(options.emit(&mut [0; 40]), Ok(40));
    assert_eq!(options.emit(&mut [0; 39]), Err(NoRoom));
    let full = Options { mss: Some(1), window_scale: Some(2), sack_permitted: true, ..options };
    assert_eq!(full.sack_room(), 2);
}

#[test]
fn a_damaged_list_ends_where_the_damage_is() {
    for damaged in [&[8][..], &[8, 0], &[8, 1], &[8, 11, 0], &[254, 41]] {
        let mut bytes = [2, 4, 5, 0xb4, 0, 0, 0, 0];
        bytes[4..4 + damaged.len()].copy_from_slice(damaged);
        let bytes = &bytes[..4 + damaged.len()];
        let mut options = OptionIter::new(bytes);
        assert_eq!(options.next(), Some(Ok(TcpOption::Mss(1460))));
        assert_eq!(options.next(), Some(Err(Malformed::Options)), "{damaged:?}");
        assert_eq!(options.next(), None);
        assert_eq!(Options::parse(bytes), Options { mss: Some(1460), ..Options::NONE });
    }
}

#[test]
fn unknown_and_misshapen_options_are_passed_over() {
    let bytes = [254, 4, 1, 2, 3, 4, 7, 7, 5, 6, 0, 0, 0, 1, 4, 2, 0, 2, 4, 1, 1];
    let mut options = OptionIter::new(&bytes);
    assert_eq!(options.next(), Some(Ok(TcpOption::Other(254, &[1, 2]))));
    assert_eq!(options.next(), Some(Ok(TcpOption::Other(3, &[7, 7]))), "a scale of two bytes");
    assert_eq!(options.next(), Some(Ok(TcpOption::Other(5, &[0, 0, 0, 1]))), "half a block");
    assert_eq!(options.next(), Some(Ok(TcpOption::SackPermitted)));
    assert_eq!(options.next(), None, "nothing counts after the end");
    assert_eq!(Options::parse(&bytes), Options { sack_permitted: true, ..Options::NONE });
}

#[test]
fn timestamps_alone_take_the_short_way_to_the_same() {
    let bytes = [1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6];
    let expected = Options { timestamps: Some(Timestamps { value: 5, echo: 6 }), ..Options::NONE };
    assert_eq!(Options::parse(&bytes), expected);
    let mut longer = [0; 16];
    longer[..12].copy_from_slice(&bytes);
    assert_eq!(Options::parse(&longer), expected);
    longer[12..].copy_from_slice(&[4, 2, 1, 1]);
    assert_eq!(Options::parse(&longer), Options { sack_permitted: true, ..expected });
}
