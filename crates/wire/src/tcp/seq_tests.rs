//! Tests of `seq`: order and distance around the wrap.

use super::*;

#[test]
fn order_goes_around() {
    let last = SeqNum(u32::MAX);
    assert!(last < last + 1);
    assert!(SeqNum(0) > last);
    assert!(last + 1 == SeqNum(0) && SeqNum(0) - 1 == last);
    assert_eq!((last + 6).ahead_of(last), 6);
    assert_eq!(last.ahead_of(last + 6), -6);
    assert_eq!((last + 6).since(last), 6);
    assert_eq!((last.max(SeqNum(3)), last.min(SeqNum(3))), (SeqNum(3), last));
    let mut moving = last;
    moving += 11;
    moving -= 1;
    assert_eq!(moving, SeqNum(9));
}

#[test]
fn ranges_go_around() {
    let start = SeqNum(u32::MAX - 1);
    assert!(start.is_in(start, 1) && !start.is_in(start, 0));
    assert!((start + 3).is_in(start, 4) && !(start + 4).is_in(start, 4));
    assert!(!(start - 1).is_in(start, 4));
}

#[test]
fn of_two_different_numbers_one_is_greater() {
    let far = 1_u32 << 31;
    for start in [0, 1, far - 1, far, far + 1, u32::MAX] {
        for distance in [1, 2, far - 1, far, far + 1, u32::MAX] {
            let (a, b) = (SeqNum(start), SeqNum(start) + distance);
            assert!((a < b) != (b < a), "{a} {b}");
            assert_eq!(a < b, b > a);
        }
    }
}
