//! Tests of rule sets against sessions.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use super::*;
use crate::samples::{chain, interface, port, protocol, rule, session, state, verdict};
use proptest::prelude::*;

const INPUT: u32 = 1;
const ACCEPT: i32 = 1;
const DROP: i32 = 0;
const JUMP: i32 = -3;
const RETURN: i32 = -5;

/// Makes a rule set with one chain, at the input hook, with these rules.
fn input(drops: bool, all: &[Vec<Vec<u8>>]) -> Ruleset {
    let mut rules = Ruleset::default();
    chain(&mut rules, "in", INPUT, drops);
    all.iter().for_each(|expressions| rule(&mut rules, "in", expressions));
    rules
}

fn is_concerned(rules: &Ruleset, session: &Session) -> bool {
    rules.concerning(session).is_some()
}

#[test]
fn no_rules_and_empty_chains_say_nothing() {
    assert!(!is_concerned(&Ruleset::default(), &session()));
    assert!(!is_concerned(&input(false, &[]), &session()));
    let named = input(true, &[]).concerning(&session()).unwrap();
    assert_eq!(named, "nftables chain inet t in, policy");
}

#[test]
fn what_lets_established_sessions_pass_says_nothing_of_them() {
    let rules =
        input(true, &[vec![state(1), verdict(DROP, "")], vec![state(2 | 4), verdict(ACCEPT, "")]]);
    assert!(!is_concerned(&rules, &session()));
    assert!(is_concerned(&rules, &Session { is_established: false, ..session() }));
}

#[test]
fn rules_for_other_packets_say_nothing() {
    let other = *b"eth1\0\0\0\0\0\0\0\0\0\0\0\0";
    let own = *b"eth0\0\0\0\0\0\0\0\0\0\0\0\0";
    let drops = |condition: Vec<u8>| input(false, &[vec![condition, verdict(DROP, "")]]);
    for (condition, concerns) in [
        (protocol(17), false),
        (protocol(6), true),
        (port(22), false),
        (port(4000), true),
        (interface(&other), false),
        (interface(&own), true),
        (crate::samples::expression("lookup", &[]), true),
        (crate::samples::expression("unheard-of", &[]), true),
    ] {
        assert_eq!(is_concerned(&drops(condition.clone()), &session()), concerns, "{condition:?}");
    }
}

#[test]
fn an_accept_that_may_not_be_reached_is_none() {
    // The lookup may match, and then the return skips the accept.
    let perhaps = crate::samples::expression("lookup", &[]);
    let rules =
        input(true, &[vec![perhaps, verdict(RETURN, "")], vec![state(2), verdict(ACCEPT, "")]]);
    assert!(is_concerned(&rules, &session()));
}

#[test]
fn jumps_are_followed_and_come_to_an_end() {
    let mut rules = input(true, &[vec![verdict(JUMP, "side")]]);
    assert!(is_concerned(&rules, &session()));
    rule(&mut rules, "side", &[state(2), verdict(ACCEPT, "")]);
    assert!(!is_concerned(&rules, &session()));
    // The kernel rejects loops of jumps; the limit of depth ends the evaluation all the same.
    let rules = input(false, &[vec![verdict(JUMP, "in")], vec![verdict(JUMP, "in")]]);
    assert!(is_concerned(&rules, &session()));
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let mut rules = input(false, &[]);
        for kind in [CHAIN, RULE] {
            rules.add(Message { kind, flags: 0, body: &bytes });
        }
        rule(&mut rules, "in", core::slice::from_ref(&bytes));
        let _ = rules.concerning(&session());
        let _ = crate::policies::selects(&bytes, &session());
        let table = crate::tables::Table::new(Family::V4, "filter", Some((&bytes, &bytes)));
        let _ = table.concerning(&session());
        let _ = crate::attributes::messages(&bytes).count();
    }
}
