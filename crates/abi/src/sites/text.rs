//! Executable bytes, and pairs of bytes in them.

/// Executable bytes of a program.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The address of the first.
    pub address: u64,
    /// All of them.
    pub bytes: &'a [u8],
}

/// Where two bytes follow one another. Texts are long, and the first of them is rare.
pub(super) fn pairs(bytes: &[u8], [first, second]: [u8; 2]) -> impl Iterator<Item = usize> + '_ {
    memchr::memchr_iter(first, bytes).filter(move |at| bytes.get(at + 1) == Some(&second))
}
