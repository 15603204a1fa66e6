//! Tests of legacy tables on the bytes that the kernel tells. Whole tables that iptables makes are
//! in `tests/rules.rs`.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use super::*;
use crate::samples::session;

/// Bytes of `struct ipt_entry`, of one with a standard target, and of one with an error's.
const ENTRY: usize = 112;
const STANDARD: usize = ENTRY + 40;
const ERROR: usize = ENTRY + 64;
const DROP: i32 = -1;
const RETURN: i32 = -5;

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Makes an entry that matches packets of that protocol, or all if it is 0.
fn entry(protocol: u16, verdict: i32) -> Vec<u8> {
    let mut bytes = vec![0; STANDARD];
    put(&mut bytes, 80, &protocol.to_ne_bytes());
    put(&mut bytes, 88, &(ENTRY as u16).to_ne_bytes());
    put(&mut bytes, 90, &(STANDARD as u16).to_ne_bytes());
    // Counters.
    put(&mut bytes, 96, &[7; 16]);
    put(&mut bytes, ENTRY, &40_u16.to_ne_bytes());
    put(&mut bytes, ENTRY + 32, &verdict.to_ne_bytes());
    bytes
}

/// Makes the entry before a user's chain.
fn header(chain: &str) -> Vec<u8> {
    let mut bytes = vec![0; ERROR];
    put(&mut bytes, 88, &(ENTRY as u16).to_ne_bytes());
    put(&mut bytes, 90, &(ERROR as u16).to_ne_bytes());
    put(&mut bytes, ENTRY + 2, b"ERROR");
    put(&mut bytes, ENTRY + 32, chain.as_bytes());
    bytes
}

/// Makes a table with one hook, INPUT, whose chain has so many rules before its policy.
fn table(entries: &[Vec<u8>], rules: usize) -> Table {
    let mut info = vec![0; INFO_LEN];
    put(&mut info, HOOKS, &2_u32.to_ne_bytes());
    put(&mut info, POLICIES + 4, &((rules * STANDARD) as u32).to_ne_bytes());
    let listing = Listing { info: &info, entries: &entries.concat() };
    Table::new(Family::V4, "filter", Some(listing))
}

fn named(entries: &[Vec<u8>], rules: usize) -> Option<String> {
    table(entries, rules).concerning(&session())
}

#[test]
fn a_policy_and_rules_for_others() {
    assert!(table(&[entry(0, ACCEPT)], 0).is_empty());
    assert!(!table(&[entry(0, DROP)], 0).is_empty());
    assert_eq!(named(&[entry(0, ACCEPT)], 0), None);
    let place = "iptables-legacy table filter chain INPUT, ";
    assert_eq!(named(&[entry(0, DROP)], 0), Some(format!("{place}policy")));
    assert_eq!(named(&[entry(17, DROP), entry(0, ACCEPT)], 1), None);
    assert_eq!(named(&[entry(6, ACCEPT), entry(0, DROP)], 1), None);
    assert_eq!(named(&[entry(6, DROP), entry(0, ACCEPT)], 1), Some(format!("{place}rule 1")));
    // A return from the hook's chain is its policy.
    assert_eq!(named(&[entry(6, RETURN), entry(0, DROP)], 1), Some(format!("{place}policy")));
    // A rule whose verdict is the next rule only counts.
    let counts = entry(6, STANDARD as i32);
    assert_eq!(named(&[counts, entry(0, ACCEPT)], 1), Some(format!("{place}rule 1")));
}

#[test]
fn chains_of_users() {
    let side = (2 * STANDARD + ERROR) as i32;
    let of = |verdict| {
        [entry(6, side), entry(0, DROP), header("side"), entry(6, verdict), entry(0, RETURN)]
    };
    assert_eq!(named(&of(ACCEPT), 1), None);
    let dropped = named(&of(DROP), 1).unwrap();
    assert_eq!(dropped, "iptables-legacy table filter chain side, rule 1");
    // A jump to where no chain begins.
    let astray = [entry(6, side + 8), entry(0, ACCEPT), header("side"), entry(0, RETURN)];
    assert!(named(&astray, 1).is_some());
}

#[test]
fn a_table_is_the_same_whatever_it_counts() {
    let mut counted = entry(6, ACCEPT);
    put(&mut counted, 96, &[9; 16]);
    let one = table(&[entry(6, ACCEPT), entry(0, ACCEPT)], 1);
    assert!(one.is_same(&table(&[counted, entry(0, ACCEPT)], 1)));
    assert!(!one.is_same(&table(&[entry(6, DROP), entry(0, ACCEPT)], 1)));
}

#[test]
fn a_table_that_cannot_be_read_concerns_its_family() {
    let short = &entry(0, ACCEPT)[..ENTRY];
    assert!(named(&[short.to_vec()], 0).unwrap().contains("cannot be read"));
    let twice = [entry(0, ACCEPT), header("x"), header("x"), entry(0, RETURN)];
    assert!(named(&twice, 0).is_some());
    let unread = Table::new(Family::V6, "filter", None);
    assert!(!unread.is_empty());
    assert_eq!(unread.concerning(&session()), None);
}
