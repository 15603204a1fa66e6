//! Tests of keys and rules: encodings, and refused keys.

use super::*;
use proptest::prelude::*;

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_key_is_drawn_as_documented() {
    let key = Key::new(Protocol::Tcp, end("10.0.0.1:80"), Some(end("10.0.0.2:40000"))).unwrap();
    let bytes = key.encode();
    assert_eq!(bytes[..8], [6, 4, 0, 0, 0, 80, 0x9c, 0x40]);
    assert_eq!(bytes[8..24], [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[24..28], [10, 0, 0, 2]);
    assert_eq!(key.to_string(), "tcp 10.0.0.1:80 10.0.0.2:40000");
}

#[test]
fn what_is_no_session_is_refused() {
    let key =
        |protocol, local, remote: Option<&str>| Key::new(protocol, end(local), remote.map(end));
    let local = "10.0.0.1:80";
    assert_eq!(key(Protocol::Tcp, local, None), Err(KeyError::NoRemote));
    assert_eq!(key(Protocol::Udp, local, Some("10.0.0.2:0")), Err(KeyError::NoRemote));
    assert_eq!(key(Protocol::Udp, "0.0.0.0:80", None), Err(KeyError::NoLocal));
    assert_eq!(key(Protocol::Udp, "10.0.0.1:0", None), Err(KeyError::NoLocal));
    assert_eq!(key(Protocol::Tcp, local, Some("[fe80::1]:9")), Err(KeyError::Families));
    assert_eq!(key(Protocol::Udp, local, Some("239.1.1.1:9")), Err(KeyError::Group));
    assert_eq!(key(Protocol::Udp, "[ff02::1]:9", None), Err(KeyError::Group));
}

#[test]
fn an_ipv4_address_in_the_dress_of_ipv6_is_ipv4() {
    let plain = Key::new(Protocol::Tcp, end("10.0.0.1:80"), Some(end("10.0.0.2:9")));
    let dressed =
        Key::new(Protocol::Tcp, end("[::ffff:10.0.0.1]:80"), Some(end("[::ffff:10.0.0.2]:9")));
    assert_eq!(plain, dressed);
}

proptest! {
    #[test]
    fn bytes_that_are_a_key_are_that_keys_bytes(bytes: [u8; 32], tcp: bool, four: bool, ports: [u8; 4]) {
        let mut raw = [0; KEY_LEN];
        raw[0] = if tcp { 6 } else { 17 };
        raw[1] = if four { 4 } else { 6 };
        raw[4..8].copy_from_slice(&ports);
        raw[8..].copy_from_slice(&bytes);
        if four {
            raw[12..24].fill(0);
            raw[28..].fill(0);
        }
        if let Some(key) = Key::decode(&raw) {
            prop_assert_eq!(key.encode(), raw);
        }
    }

    #[test]
    fn a_rule_comes_back(
        owner: u32, mode in 0..3, interface: u32, fragment_seen: bool, is_new: bool, is_held: bool,
    ) {
        let target = match mode {
            0 => Target::Direct,
            1 => Target::Port { interface },
            _ => Target::Xsk,
        };
        let rule = Rule { owner: OwnerId(owner), target, fragment_seen, is_new, is_held };
        prop_assert_eq!(Rule::decode(&rule.encode()), Some(rule));
    }
}
