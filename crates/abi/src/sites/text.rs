//! Executable bytes, and a search for pairs of bytes in them.

/// Executable bytes of a program.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Returns the places at which the two bytes follow one another. Texts are long; the fast search
/// for the first byte suffices, because that byte is rare.
pub(super) fn pairs(bytes: &[u8], [first, second]: [u8; 2]) -> impl Iterator<Item = usize> + '_ {
    memchr::memchr_iter(first, bytes).filter(move |at| bytes.get(at + 1) == Some(&second))
}
