//! Netlink messages for tests, as the kernel writes them.
//!
//! Not here: the parser (`attributes`).

use crate::attributes::Message;
use crate::ruleset::Ruleset;
use crate::session::{Interface, Session};
use sojourn_wire::Protocol;
use sojourn_wire::netlink::RequestSeq;

/// Makes an attribute.
pub(crate) fn put(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(crate) fn number(kind: u16, value: u32) -> Vec<u8> {
    put(kind, &value.to_be_bytes())
}

/// Makes an expression with these attributes.
pub(crate) fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    put(1, &[put(1, name.as_bytes()), put(2, &data.concat())].concat())
}

/// Makes `meta l4proto PROTOCOL`.
pub(crate) fn protocol(protocol: u8) -> Vec<u8> {
    let load = expression("meta", &[number(1, 1), number(2, 16)]);
    [load, compare(&[protocol], 0)].concat()
}

/// Makes `iifname NAME`.
pub(crate) fn interface(name: &[u8; 16]) -> Vec<u8> {
    [expression("meta", &[number(1, 1), number(2, 6)]), compare(name, 0)].concat()
}

/// Makes a comparison of register 1.
pub(crate) fn compare(value: &[u8], operation: u32) -> Vec<u8> {
    expression("cmp", &[number(1, 1), number(2, operation), put(3, &put(1, value))])
}

/// Makes `ct state BITS`.
pub(crate) fn state(bits: u32) -> Vec<u8> {
    let masks = [put(4, &put(1, &bits.to_ne_bytes())), put(5, &put(1, &[0; 4]))];
    let [mask, xor] = masks;
    [
        expression("ct", &[number(1, 1), number(2, 0)]),
        expression("bitwise", &[number(1, 1), number(2, 1), number(3, 4), mask, xor]),
        compare(&[0; 4], 1),
    ]
    .concat()
}

/// Makes a match of the destination port.
pub(crate) fn port(port: u16) -> Vec<u8> {
    [load_port(), compare(&port.to_be_bytes(), 0)].concat()
}

/// Makes a verdict, with the chain of a jump.
pub(crate) fn verdict(code: i32, chain: &str) -> Vec<u8> {
    expression("immediate", &[number(1, 0), put(2, &to_verdict(code, chain))])
}

/// Makes the data of a verdict.
pub(crate) fn to_verdict(code: i32, chain: &str) -> Vec<u8> {
    put(2, &[number(1, code.cast_unsigned()), put(2, chain.as_bytes())].concat())
}

/// Makes a lookup of register 1 in a set, or in a map to the register `target`.
pub(crate) fn lookup(set: &str, target: Option<u32>, flags: u32) -> Vec<u8> {
    let target = target.map_or_else(Vec::new, |target| number(3, target));
    expression("lookup", &[put(1, set.as_bytes()), number(2, 1), target, number(5, flags)])
}

/// Makes a load of the destination port.
pub(crate) fn load_port() -> Vec<u8> {
    expression("payload", &[number(1, 1), number(2, 2), number(3, 2), number(4, 2)])
}

/// Makes an element: its key, and other attributes.
pub(crate) fn element(key: &[u8], rest: &[Vec<u8>]) -> Vec<u8> {
    put(1, &[put(1, &put(1, key)), rest.concat()].concat())
}

/// Makes the attributes of a set with these flags, and keys and data of so many bytes.
pub(crate) fn set_of(flags: u32, key_len: u32, rest: &[Vec<u8>]) -> Vec<u8> {
    [number(3, flags), number(5, key_len), rest.concat()].concat()
}

/// Adds a set of `table inet t` with its elements.
pub(crate) fn set(rules: &mut Ruleset, name: &str, attributes: &[u8], elements: &[Vec<u8>]) {
    let head = [vec![1, 0, 0, 0], put(1, b"t\0"), put(2, name.as_bytes())].concat();
    let body = [&head[..], attributes].concat();
    rules.add(Message { kind: 10 << 8 | 9, flags: 0, sequence: RequestSeq(0), body: &body });
    rules.begin_sets();
    let body = [head, put(3, &elements.concat())].concat();
    rules.add(Message { kind: 10 << 8 | 12, flags: 0, sequence: RequestSeq(0), body: &body });
    let name = crate::chains::Name { family: 1, table: "t".into(), name: name.into() };
    rules.end_set(&name, true);
}

/// Adds a base chain of `table inet t` at a hook.
pub(crate) fn chain(rules: &mut Ruleset, name: &str, hook: u32, drops: bool) {
    let hook = [number(1, hook), number(2, 0)].concat();
    let parts = [
        vec![1, 0, 0, 0],
        put(1, b"t\0"),
        put(3, name.as_bytes()),
        put(4, &hook),
        number(5, u32::from(!drops)),
        put(7, b"filter\0"),
    ];
    rules.add(Message {
        kind: 10 << 8 | 3,
        flags: 0,
        sequence: RequestSeq(0),
        body: &parts.concat(),
    });
}

/// Adds a rule to a chain of `table inet t`.
pub(crate) fn rule(rules: &mut Ruleset, chain: &str, expressions: &[Vec<u8>]) {
    let parts =
        [vec![1, 0, 0, 0], put(1, b"t\0"), put(2, chain.as_bytes()), put(4, &expressions.concat())];
    rules.add(Message {
        kind: 10 << 8 | 6,
        flags: 0,
        sequence: RequestSeq(0),
        body: &parts.concat(),
    });
}

/// Returns a TCP session of 10.0.0.1 port 4000 with 10.0.0.2 port 5000 by eth0.
pub(crate) fn session() -> Session {
    Session {
        protocol: Protocol::Tcp,
        local: ([10, 0, 0, 1], 4000).into(),
        remote: Some(([10, 0, 0, 2], 5000).into()),
        interface: Some(Interface { index: 2, name: "eth0".into() }),
        is_established: true,
    }
}
