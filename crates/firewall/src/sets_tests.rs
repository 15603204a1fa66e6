//! Tests of sets: intervals, concatenations, elements that expire.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use super::*;
use crate::packets::known;
use crate::samples::{element, number, put, set_of};
use proptest::prelude::*;

/// Makes a set with elements.
fn set(attributes: &[u8], elements: &[Vec<u8>]) -> Set {
    let mut set = Set::new(attributes);
    assert!(set.begin());
    set.add(&elements.concat());
    set.finish();
    set
}

fn end(key: &[u8]) -> Vec<u8> {
    element(key, &[number(FLAGS, INTERVAL_END)])
}

fn holds(set: &Set, key: &[Option<u8>]) -> Holds {
    match set.look_up(key) {
        Found::One(_) => Holds::Always,
        Found::Nothing => Holds::Never,
        Found::Some(_) | Found::Unknown => Holds::Maybe,
    }
}

#[test]
fn intervals_are_told_by_their_beginnings_and_ends() {
    // 0 has no interval; 10-19, 20-29 (its end is the next one's beginning), and from 200 on.
    let elements = [
        element(&[200], &[]),
        end(&[30]),
        end(&[20]),
        element(&[20], &[]),
        element(&[10], &[]),
        end(&[0]),
    ];
    let set = set(&set_of(INTERVAL, 1, &[]), &elements);
    for (key, expected) in [
        (0, Holds::Never),
        (9, Holds::Never),
        (10, Holds::Always),
        (29, Holds::Always),
        (30, Holds::Never),
        (199, Holds::Never),
        (200, Holds::Always),
        (255, Holds::Always),
    ] {
        assert_eq!(holds(&set, &[Some(key)]), expected, "{key}");
    }
    assert_eq!(holds(&set, &[None]), Holds::Maybe);
}

#[test]
fn a_concatenation_is_compared_by_fields() {
    let field = |len| put(1, &number(1, len));
    let description = put(DESCRIPTION, &put(2, &[field(4), field(2)].concat()));
    let from = [10, 1, 0, 0, 19, 136, 0, 0];
    let to = [10, 1, 0, 255, 19, 146, 0, 0];
    let elements = [element(&from, &[put(KEY_END, &put(1, &to))])];
    let set = set(&set_of(INTERVAL | 0x80, 8, &[description]), &elements);
    assert_eq!(set.fields, [4, 4]);
    for (key, expected) in [
        ([10, 1, 0, 7, 19, 137, 0, 0], Holds::Always),
        ([10, 1, 0, 7, 19, 147, 0, 0], Holds::Never),
        ([10, 1, 1, 7, 19, 137, 0, 0], Holds::Never),
    ] {
        assert_eq!(holds(&set, &known(&key)), expected, "{key:?}");
    }
    let mut any_port = known(&[10, 1, 0, 7, 0, 0, 0, 0]);
    any_port[4..6].fill(None);
    assert_eq!(holds(&set, &any_port), Holds::Maybe);
}

#[test]
fn what_expires_and_what_catches_all() {
    let timed = element(&[1], &[put(TIMEOUT, &[0; 8])]);
    let rest = put(1, &number(FLAGS, CATCHALL));
    let only = set(&set_of(0x10, 1, &[]), core::slice::from_ref(&timed));
    assert_eq!(holds(&only, &[Some(1)]), Holds::Maybe);
    assert_eq!(holds(&only, &[Some(2)]), Holds::Never);
    let all = set(&set_of(0, 1, &[]), &[element(&[3], &[]), rest]);
    assert_eq!(holds(&all, &[Some(3)]), Holds::Always);
    assert_eq!(holds(&all, &[Some(4)]), Holds::Always);
    assert!(matches!(all.look_up(&[None]), Found::Some(both) if both.len() == 2));
}

#[test]
fn too_many_elements_and_malformed_ones_are_unknown() {
    let many = vec![element(&[0; 4], &[]); ELEMENTS_MAX + 1];
    assert_eq!(set(&set_of(0, 4, &[]), &many).look_up(&[Some(1); 4]), Found::Unknown);
    let short = [element(&[1, 2], &[])];
    assert_eq!(set(&set_of(0, 4, &[]), &short).look_up(&[Some(1); 4]), Found::Unknown);
    assert!(!Set::new(&set_of(EVAL, 4, &[])).begin());
}

proptest! {
    /// An unknown byte never makes certain what some value of it contradicts.
    #[test]
    fn an_unknown_byte_is_every_value(
        bounds in proptest::collection::btree_set(any::<[u8; 2]>(), 0..6),
        key: [u8; 2],
        unknown in 0_usize..2,
    ) {
        let elements: Vec<Vec<u8>> = bounds.iter().enumerate().map(|(index, bound)| {
            if index % 2 == 0 { element(bound, &[]) } else { end(bound) }
        }).collect();
        let set = set(&set_of(INTERVAL, 2, &[]), &elements);
        let mut partial = known(&key);
        partial[unknown] = None;
        let said = holds(&set, &partial);
        for value in 0..=255 {
            partial[unknown] = Some(value);
            let exact = holds(&set, &partial);
            let number = [partial[0].unwrap(), partial[1].unwrap()];
            // The last bound that is not above the key begins an interval, or ends one.
            let is_in = bounds.range(..=number).count() % 2 == 1;
            prop_assert_eq!(exact, Holds::from(is_in));
            prop_assert!(said == Holds::Maybe || said == exact);
        }
    }
}
