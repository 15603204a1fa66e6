//! Netlink messages and their attributes, parsed from bytes (netlink(7)).
//!
//! Not here: the meaning of attributes (`ruleset`, `rule`).

/// Bytes of a netlink header (`struct nlmsghdr`).
const HEADER: usize = 16;
/// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const FLAGS: u16 = 0xc000;

/// A netlink message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'b> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) body: &'b [u8],
}

/// Returns the messages of a datagram, up to the first that is malformed.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    core::iter::from_fn(move || {
        let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        let word = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let (kind, flags) = (word(4)?, word(6)?);
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, flags, body })
    })
}

/// A netlink attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'b> {
    pub(crate) kind: u16,
    pub(crate) value: &'b [u8],
}

/// Returns the attributes in `bytes`, up to the first that is malformed.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    core::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & !FLAGS;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind, value })
    })
}

/// Returns the value of the first attribute of a kind.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|one| one.kind == kind).map(|one| one.value)
}

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
