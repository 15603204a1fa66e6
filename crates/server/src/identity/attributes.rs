//! The attributes of netlink messages (`struct nlattr`, netlink(7)). Pure.
//!
//! Not here: the messages and their attributes' meaning (`diag`, `keys`).

/// Set in the types of attributes that contain attributes (`NLA_F_NESTED`).
const NESTED: u16 = 1 << 15;

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute<'a> {
    pub(super) kind: u16,
    /// Empty if the attribute is longer than what there is.
    pub(super) value: &'a [u8],
}

/// Iterates over the attributes in `bytes`; it ends whatever their lengths say.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    core::iter::from_fn(move || {
        let [a, b, c, d] = *bytes.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([a, b])).max(4);
        let value = bytes.get(4..len).unwrap_or_default();
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind: u16::from_ne_bytes([c, d]) & !NESTED, value })
    })
}
