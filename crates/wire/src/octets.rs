//! Numbers in network byte order at constant offsets of arrays of constant size, so that the
//! compiler checks the bounds.
//!
//! This is not a reader with a cursor: headers have fixed fields, and the code for variable parts
//! (options, extension headers) walks over slices itself.

/// Returns the 16 bits at `AT`.
pub(crate) const fn u16_at<const AT: usize, const N: usize>(bytes: &[u8; N]) -> u16 {
    const { assert!(AT + 2 <= N) }
    u16::from_be_bytes([bytes[AT], bytes[AT + 1]])
}

/// Returns the 32 bits at `AT`.
pub(crate) const fn u32_at<const AT: usize, const N: usize>(bytes: &[u8; N]) -> u32 {
    const { assert!(AT + 4 <= N) }
    u32::from_be_bytes([bytes[AT], bytes[AT + 1], bytes[AT + 2], bytes[AT + 3]])
}

/// Returns the `M` bytes at `AT`.
pub(crate) fn array_at<const AT: usize, const M: usize, const N: usize>(
    bytes: &[u8; N],
) -> [u8; M] {
    const { assert!(AT + M <= N) }
    let mut taken = [0; M];
    taken.copy_from_slice(&bytes[AT..AT + M]);
    taken
}

/// Writes `part` at `AT`.
pub(crate) fn put<const AT: usize, const M: usize, const N: usize>(
    bytes: &mut [u8; N],
    part: [u8; M],
) {
    const { assert!(AT + M <= N) }
    bytes[AT..AT + M].copy_from_slice(&part);
}
