//! Which addresses of a text may be jumped to: those between instructions that would be moved
//! together.
//!
//! Every byte is taken for the beginning of a jump, so that more may be found than there are, and
//! none is missed. Jumps by tables are not seen; none leads between a system call and what looks
//! at its result.

use super::Text;
use std::collections::BTreeSet;

/// Addresses that were asked for and may be jumped to.
#[derive(Debug, Default)]
pub(crate) struct Targets(BTreeSet<u64>);

impl Targets {
    /// Looks for jumps to any of `asked`.
    pub(crate) fn find(text: Text<'_>, asked: impl Iterator<Item = u64>) -> Self {
        let asked: BTreeSet<u64> = asked.collect();
        let (Some(lowest), Some(highest)) = (asked.first(), asked.last()) else {
            return Self::default();
        };
        let (lowest, highest) = (*lowest, *highest);
        let mut found = BTreeSet::new();
        let mut note = |target: u64| {
            if (lowest..=highest).contains(&target) && asked.contains(&target) {
                found.insert(target);
            }
        };
        for (at, byte) in text.bytes.iter().enumerate() {
            match *byte {
                // jcc, loop, jrcxz, jmp: one byte. Few are near enough.
                0x70..=0x7f | 0xe0..=0xe3 | 0xeb => near(text, at + 1, &mut note),
                // call, jmp, and the second byte of jcc: four.
                0xe8 | 0xe9 | 0x80..=0x8f => far(text, at + 1, &mut note),
                _ => {}
            }
        }
        Self(found)
    }

    /// Whether an address that was asked for may be jumped to.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.0.contains(&address)
    }
}

/// A jump whose distance is in the byte `at`.
#[inline]
fn near(text: Text<'_>, at: usize, note: &mut impl FnMut(u64)) {
    if let Some(by) = text.bytes.get(at) {
        let next = text.address + at as u64 + 1;
        note(next.wrapping_add_signed(i64::from(by.cast_signed())));
    }
}

/// A jump whose distance is in the four bytes `at`.
#[inline]
fn far(text: Text<'_>, at: usize, note: &mut impl FnMut(u64)) {
    if let Some(by) = text.bytes.get(at..at + 4).and_then(|four| four.try_into().ok()) {
        let next = text.address + at as u64 + 4;
        note(next.wrapping_add_signed(i64::from(i32::from_le_bytes(by))));
    }
}
