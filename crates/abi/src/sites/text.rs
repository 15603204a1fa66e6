//! Executable bytes, and a search for pairs of bytes in them.

/// Executable bytes of a program.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Returns the places at which these two bytes follow one another, the second of which differs from
/// the first. Texts are long, and each byte alone is too frequent to be searched for.
pub(super) fn pairs<'t>(
    bytes: &'t [u8],
    pair: &'static [u8; 2],
) -> impl Iterator<Item = usize> + 't {
    memchr::memmem::find_iter(bytes, pair)
}
