//! The values of netlink attributes, parsed from bytes (netlink(7)).
//!
//! Not here: messages and attributes themselves (`sojourn_wire::netlink`), and the meaning of
//! attributes (`ruleset`, `rule`).

pub(crate) use sojourn_wire::netlink::{Attribute, Message, attributes, find, messages};

/// Returns the value of an attribute as a number in network byte order.
pub(crate) fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    find(bytes, kind)?.try_into().ok().map(u32::from_be_bytes)
}

/// Returns the value of an attribute as text, without the zero byte at its end.
pub(crate) fn text(bytes: &[u8], kind: u16) -> Option<String> {
    let value = find(bytes, kind)?;
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    Some(String::from_utf8_lossy(&value[..end]).into_owned())
}
