//! A piece of memory that is lent: bytes that another process may be able to write.
//!
//! Not here: which memory that is (`incoming`, `outgoing`).

use core::marker::PhantomData;
use sojourn_lending::RawPiece;
use sojourn_shm::copy;

/// Bytes that are looked at in one go by [`find`].
const BLOCK: usize = 256;

/// Bytes that follow one another in memory, lent for the lifetime `'a`.
///
/// The peer of a local session has the same memory mapped. An honest peer leaves bytes alone that
/// are lent; a hostile one may change them at any time. So the safe methods copy: what has been
/// copied can be checked, and then stays as it is.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    raw: RawPiece,
    lent: PhantomData<&'a [u8]>,
}

// SAFETY: a piece is memory that stays mapped for `'a`, and is reached through racy copies only;
// any thread may do so.
unsafe impl Send for Piece<'_> {}
// SAFETY: every method reaches the mapped memory through racy copies.
unsafe impl Sync for Piece<'_> {}

impl<'a> Piece<'a> {
    /// Makes a piece of that memory.
    ///
    /// # Safety
    /// The memory stays mapped, readable and writable for `'a`, and no reference points to it
    /// meanwhile.
    pub(crate) unsafe fn new(raw: RawPiece) -> Self {
        Self { raw, lent: PhantomData }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.raw.len
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.raw.len == 0
    }

    /// Returns the address of the first byte; null if there is none.
    pub fn as_ptr(&self) -> *mut u8 {
        self.raw.at
    }

    /// Returns the part from byte `from` on; nothing behind the end.
    #[must_use]
    pub fn from(&self, from: usize) -> Piece<'a> {
        let from = from.min(self.raw.len);
        // SAFETY: within the piece, or just behind it.
        let at = unsafe { self.raw.at.add(from) };
        Piece { raw: RawPiece { at, len: self.raw.len - from }, lent: PhantomData }
    }

    /// Copies the first bytes to `target`, and returns their number: the shorter length.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        let len = self.raw.len.min(target.len());
        if len > 0 {
            // SAFETY: both have `len` bytes; a mutable slice overlaps nothing.
            unsafe { copy::racy(self.raw.at, target.as_mut_ptr(), len) };
        }
        len
    }

    /// Copies `source` to the first bytes, and returns their number: the shorter length.
    pub(crate) fn copy_from(&self, source: &[u8]) -> usize {
        let len = self.raw.len.min(source.len());
        if len > 0 {
            // SAFETY: both have `len` bytes; no reference points to the piece (`new`).
            unsafe { copy::racy(source.as_ptr(), self.raw.at, len) };
        }
        len
    }

    /// Returns the bytes where they lie.
    ///
    /// # Safety
    /// Nobody writes to them while the answer is in use: the peer is trusted, or is no process of
    /// this host.
    pub unsafe fn as_slice(&self) -> &'a [u8] {
        if self.raw.len == 0 {
            return &[];
        }
        // SAFETY: mapped for `'a` (`new`), and the caller's promise.
        unsafe { core::slice::from_raw_parts(self.raw.at, self.raw.len) }
    }

    /// Returns the bytes where they lie, to be written.
    ///
    /// # Safety
    /// The piece is of a reservation, and nobody else reads or writes it while the answer is in
    /// use, in this process or another.
    pub unsafe fn as_mut_slice(&self) -> &'a mut [u8] {
        if self.raw.len == 0 {
            return &mut [];
        }
        // SAFETY: mapped for `'a` and writable (`new`), and the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.raw.at, self.raw.len) }
    }
}

/// Copies bytes from byte `from` of the pieces on to `target`; returns their number.
pub(crate) fn copy_to(pieces: &[Piece<'_>; 2], from: usize, target: &mut [u8]) -> usize {
    let copied = pieces[0].from(from).copy_to(target);
    let from = from.saturating_sub(pieces[0].len());
    copied + pieces[1].from(from).copy_to(&mut target[copied..])
}

/// Copies `source` to the pieces from their byte `from` on; returns the number of bytes.
pub(crate) fn copy_from(pieces: &[Piece<'_>; 2], from: usize, source: &[u8]) -> usize {
    let copied = pieces[0].from(from).copy_from(source);
    let from = from.saturating_sub(pieces[0].len());
    copied + pieces[1].from(from).copy_from(&source[copied..])
}

/// Returns the place of the first such byte from byte `from` of the pieces on.
pub(crate) fn find(pieces: &[Piece<'_>; 2], byte: u8, from: usize) -> Option<usize> {
    let mut block = [0; BLOCK];
    let mut at = from;
    loop {
        let copied = copy_to(pieces, at, &mut block);
        if let Some(place) = block[..copied].iter().position(|other| *other == byte) {
            return Some(at + place);
        }
        if copied < BLOCK {
            return None;
        }
        at += copied;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_are_one_row_of_bytes() {
        let (mut first, mut second) = ([0; 300], [0; 300]);
        let of = |bytes: &mut [u8]| RawPiece { at: bytes.as_mut_ptr(), len: bytes.len() };
        let raw = [of(&mut first), of(&mut second)];
        // SAFETY: the arrays outlive the pieces, and are not used meanwhile.
        let pieces = raw.map(|raw| unsafe { Piece::new(raw) });
        assert_eq!(copy_from(&pieces, 298, b"abcdef"), 6);
        let mut seen = [0; 6];
        assert_eq!(copy_to(&pieces, 298, &mut seen), 6);
        assert_eq!(&seen, b"abcdef");
        assert_eq!(find(&pieces, b'e', 0), Some(302));
        assert_eq!(find(&pieces, b'a', 299), None);
        assert_eq!(copy_from(&pieces, 599, b"xyz"), 1, "no more than there is room for");
        assert_eq!(copy_from(&pieces, 600, b"x") + copy_to(&pieces, 700, &mut seen), 0);
    }
}
