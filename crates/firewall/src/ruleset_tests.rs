//! Tests of rule sets against sessions.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use super::*;
use crate::samples::{
    chain, compare, element, expression, interface, load_port, lookup, number, port, protocol, put,
    rule, session, set, set_of, state, to_verdict, verdict,
};
use proptest::prelude::*;
use sojourn_wire::netlink::RequestSeq;

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
        (expression("lookup", &[]), true),
        (expression("unheard-of", &[]), true),
    ] {
        assert_eq!(is_concerned(&drops(condition.clone()), &session()), concerns, "{condition:?}");
    }
}

#[test]
fn an_accept_that_may_not_be_reached_is_none() {
    // The lookup may match, and then the return skips the accept.
    let perhaps = expression("lookup", &[]);
    let rules =
        input(true, &[vec![perhaps, verdict(RETURN, "")], vec![state(2), verdict(ACCEPT, "")]]);
    assert!(is_concerned(&rules, &session()));
}

/// Makes a rule set that drops unless `condition` holds for a packet to port 4000.
fn accepting(condition: &[Vec<u8>]) -> Ruleset {
    input(true, &[[condition, &[verdict(ACCEPT, "")]].concat()])
}

#[test]
fn expressions_that_load_and_compare() {
    let data = |value: &[u8]| put(1, value);
    let range = |from: u16, to: u16, operation| {
        let ends = [put(3, &data(&from.to_be_bytes())), put(4, &data(&to.to_be_bytes()))];
        expression("range", &[vec![number(1, 1), number(2, operation)], ends.to_vec()].concat())
    };
    let swap = {
        let (sreg, dreg, operation) = (number(1, 1), number(2, 1), number(3, 0));
        expression("byteorder", &[sreg, dreg, operation, number(4, 2), number(5, 2)])
    };
    let immediate = expression("immediate", &[number(1, 1), put(2, &data(&[7]))]);
    let xt = |name: &str, info: &[u8]| {
        expression("match", &[put(1, name.as_bytes()), number(2, 0), put(3, info)])
    };
    let fib =
        |result, flags| expression("fib", &[number(1, 1), number(2, result), number(3, flags)]);
    let way = number(3, 0);
    for (condition, passes) in [
        (vec![load_port(), range(3999, 4000, 0)], true),
        (vec![load_port(), range(4001, 9999, 0)], false),
        (vec![load_port(), range(4001, 9999, 1)], true),
        (
            vec![load_port(), swap, compare(&4000_u16.to_le_bytes(), 0)],
            cfg!(target_endian = "little"),
        ),
        (vec![immediate.clone(), compare(&[7], 0)], true),
        (vec![immediate, compare(&[8], 0)], false),
        (vec![xt("comment", &[0; 256])], true),
        (vec![xt("tcp", &[0, 0, 255, 255, 160, 15, 160, 15, 0, 0, 0, 0])], true),
        (vec![xt("tcp", &[0, 0, 255, 255, 161, 15, 161, 15, 0, 0, 0, 0])], false),
        (vec![xt("mark", &[0; 12])], false),
        // A route may be missing, and then the rule does not match.
        (vec![fib(1, 1 << 5)], false),
        (vec![expression("ct", &[number(1, 1), number(2, 0)])], true),
        (vec![expression("ct", &[number(1, 1), number(2, 3)])], false),
        (vec![expression("ct", &[number(1, 1), number(2, 0), way])], false),
        (vec![expression("counter", &[])], true),
    ] {
        // Ports in iptables' matches are in the host's byte order.
        if cfg!(target_endian = "big") && condition.len() == 1 {
            continue;
        }
        assert_eq!(is_concerned(&accepting(&condition), &session()), !passes, "{condition:02x?}");
    }
}

#[test]
fn a_lookup_in_a_set() {
    let port = |port: u16| element(&port.to_be_bytes(), &[]);
    let timed = |port: u16| element(&port.to_be_bytes(), &[put(4, &[0; 8])]);
    let counted = |port: u16| element(&port.to_be_bytes(), &[put(7, &[])]);
    let (inverted, eval) = (1, 0x20);
    for (elements, set_flags, flags, passes) in [
        (vec![port(22), port(4000)], 0, 0, true),
        (vec![port(22)], 0, 0, false),
        (vec![port(22)], 0, inverted, true),
        (vec![port(4000)], 0, inverted, false),
        (vec![timed(4000)], 0x10, 0, false),
        (vec![timed(4000)], 0x10, inverted, false),
        (vec![port(4000)], eval, 0, false),
        (vec![counted(4000)], 0, 0, false),
        (vec![counted(22), port(4000)], 0, 0, true),
        (vec![], 0, inverted, true),
    ] {
        let mut rules = accepting(&[load_port(), lookup("s", None, flags)]);
        set(&mut rules, "s", &set_of(set_flags, 2, &[]), &elements);
        assert_eq!(is_concerned(&rules, &session()), !passes, "{elements:02x?} {flags}");
    }
    // A set that is not known.
    assert!(is_concerned(&accepting(&[load_port(), lookup("s", None, 1)]), &session()));
}

#[test]
fn a_lookup_in_a_map_of_verdicts() {
    let to = |port: u16, code| element(&port.to_be_bytes(), &[put(2, &to_verdict(code, "side"))]);
    let unknown_port = Session { remote: None, protocol: Protocol::Udp, ..session() };
    for (elements, passes) in [
        (vec![to(22, DROP), to(4000, ACCEPT)], true),
        (vec![to(22, ACCEPT), to(4000, DROP)], false),
        (vec![to(22, ACCEPT)], false),
        (vec![to(4000, JUMP)], true),
        (vec![element(&4000_u16.to_be_bytes(), &[])], false),
    ] {
        let mut rules = input(true, &[vec![load_port(), lookup("m", Some(0), 0)]]);
        rule(&mut rules, "side", &[state(2), verdict(ACCEPT, "")]);
        set(&mut rules, "m", &set_of(8, 2, &[]), &elements);
        assert_eq!(is_concerned(&rules, &session()), !passes, "{elements:02x?}");
    }
    // The source port of this session's packets is any: they may have each of the verdicts.
    let load = expression("payload", &[number(1, 1), number(2, 2), number(3, 0), number(4, 2)]);
    for (second, passes) in [(ACCEPT, true), (DROP, false)] {
        let mut rules = input(false, &[vec![load.clone(), lookup("m", Some(0), 0)]]);
        set(&mut rules, "m", &set_of(8, 2, &[]), &[to(22, ACCEPT), to(23, second)]);
        assert_eq!(is_concerned(&rules, &unknown_port), !passes);
    }
}

#[test]
fn a_map_that_packets_change_may_have_any_verdict() {
    let mut rules = input(false, &[vec![load_port(), lookup("m", Some(0), 0)]]);
    rule(&mut rules, "other", &[expression("dynset", &[put(1, b"m\0")])]);
    set(&mut rules, "m", &set_of(8, 2, &[]), &[]);
    assert!(is_concerned(&rules, &session()));
}

#[test]
fn a_rule_that_only_counts_is_there_for_its_number() {
    let counter = expression("counter", &[]);
    for (rest, concerns) in [(vec![], true), (vec![verdict(ACCEPT, "")], false)] {
        let counts = [vec![port(4000), counter.clone()], rest].concat();
        assert_eq!(is_concerned(&input(false, &[counts]), &session()), concerns);
    }
    let others = vec![port(22), counter];
    assert!(!is_concerned(&input(false, &[others]), &session()));
}

#[test]
fn the_rule_is_named() {
    let mut rules = input(false, &[vec![verdict(JUMP, "side")]]);
    rule(&mut rules, "side", &[port(4000), verdict(DROP, "")]);
    let named = rules.concerning(&session()).unwrap();
    assert_eq!(named, "nftables chain inet t side, rule with handle 0");
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

/// Returns a rule that no packet of the session ends at.
fn passed_by() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop_oneof![
        Just(vec![port(22), verdict(DROP, "")]),
        Just(vec![protocol(17), verdict(DROP, "")]),
        Just(vec![state(1), verdict(DROP, "")]),
        Just(vec![port(4000)]),
        Just(vec![port(4000), verdict(JUMP, "empty")]),
        Just(vec![load_port(), lookup("none", None, 0), verdict(JUMP, "empty")]),
        Just(vec![expression("meta", &[number(1, 1), number(2, 3)]), verdict(RETURN, "")]),
    ]
}

/// Returns expressions of which the session's packets pass all.
fn holding() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(port(4000)),
        Just(protocol(6)),
        Just(state(2)),
        Just(expression("counter", &[])),
        Just(expression("meta", &[number(1, 2), number(2, 3)])),
    ]
}

/// The expressions that this crate understands.
const UNDERSTOOD: [&str; 12] = [
    "counter",
    "meta",
    "ct",
    "payload",
    "fib",
    "bitwise",
    "byteorder",
    "cmp",
    "range",
    "lookup",
    "match",
    "immediate",
];

proptest! {
    /// Whatever comes before it, and however deep: a rule with an unknown expression that packets
    /// may reach keeps the session.
    #[test]
    fn an_unknown_expression_on_the_way_concerns(
        before in proptest::collection::vec(passed_by(), 0..6),
        holds in proptest::collection::vec(holding(), 0..4),
        name in "[a-z_]{1,12}",
        data in proptest::collection::vec(any::<u8>(), 0..64),
        after in proptest::collection::vec(passed_by(), 0..3),
        depth in 0_usize..8,
        drops: bool,
    ) {
        prop_assume!(!UNDERSTOOD.contains(&name.as_str()));
        let unknown = expression(&name, &[data]);
        let ends = vec![verdict(ACCEPT, "")];
        let own = [holds, vec![unknown], ends].concat();
        let mut rules = input(drops, &before);
        let mut place = "in".to_owned();
        for level in 0..depth {
            let next = format!("level{level}");
            rule(&mut rules, &place, &[verdict(JUMP, &next)]);
            place = next;
        }
        rule(&mut rules, &place, &own);
        after.iter().for_each(|after| rule(&mut rules, &place, after));
        prop_assert!(is_concerned(&rules, &session()));
    }

    /// The same of a match of iptables that is not understood.
    #[test]
    fn an_unknown_match_on_the_way_concerns(
        before in proptest::collection::vec(passed_by(), 0..6),
        name in "(recent|hashlimit|quota|nfacct|statistic|connlimit|limit|[a-z]{20})",
        revision in 0_u32..4,
        info in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let unknown =
            expression("match", &[put(1, name.as_bytes()), number(2, revision), put(3, &info)]);
        let mut rules = input(false, &before);
        rule(&mut rules, "in", &[unknown, verdict(ACCEPT, "")]);
        prop_assert!(is_concerned(&rules, &session()));
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let mut rules = input(false, &[]);
        for kind in [CHAIN, RULE] {
            rules.add(Message { kind, flags: 0, sequence: RequestSeq(0), body: &bytes });
        }
        rule(&mut rules, "in", core::slice::from_ref(&bytes));
        let _ = rules.concerning(&session());
        let _ = crate::policies::selects(&bytes, &session());
        let listing = crate::tables::Listing { info: &bytes, entries: &bytes };
        let table = crate::tables::Table::new(Family::V4, "filter", Some(listing));
        let _ = table.concerning(&session());
        let _ = crate::attributes::messages(&bytes).count();
    }
}
