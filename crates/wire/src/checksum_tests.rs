//! Tests of `checksum` with numbers from RFCs; `tests/properties.rs` has its general properties.

use super::*;

#[test]
fn the_example_of_rfc_1071() {
    // Section 3: the sum of these is ddf2.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(sum(&bytes).value(), 0xddf2);
    assert_eq!(sum(&bytes).finish(), 0x220d);
}

#[test]
fn the_example_of_rfc_1624() {
    // Section 4: a field changes from 5555 to 3285 under the checksum dd2f; the new one is 0000.
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn nothing_and_everything() {
    assert_eq!(Sum::new().finish(), 0xffff);
    assert_eq!(sum(&[0xff; 65_535]).value(), sum(&[0xff; 3]).value());
    let mut many = Sum::new();
    for _ in 0..100_000 {
        many.add(&[0xff; 2]);
        many.add_word(0xffff);
    }
    assert!(many.is_valid());
}

#[test]
fn words_count_as_their_bytes() {
    let mut words = Sum::new();
    words.add_word(0x1234);
    words.add_word(0xfedc);
    assert_eq!(words.value(), sum(&[0x12, 0x34, 0xfe, 0xdc]).value());
}

#[test]
fn pseudo_headers_byte_by_byte() {
    let (a, b) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let header = [192, 0, 2, 1, 192, 0, 2, 2, 0, 6, 0x12, 0x34];
    assert_eq!(pseudo_v4(a.into(), b.into(), 6, 0x1234).value(), sum(&header).value());
    let (a, b) = ([0x20; 16], [0x31; 16]);
    let mut header = [0; 40];
    header[..16].copy_from_slice(&a);
    header[16..32].copy_from_slice(&b);
    header[32..36].copy_from_slice(&0x1_0203_u32.to_be_bytes());
    header[39] = 17;
    assert_eq!(pseudo_v6(a.into(), b.into(), 17, 0x1_0203).value(), sum(&header).value());
    let (a, b) = (IpAddr::from(a), IpAddr::from(b));
    assert_eq!(pseudo(a, b, 17, 0x1_0203).value(), sum(&header).value());
}
