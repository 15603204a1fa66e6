//! Which addresses of a text may be jumped to: those between instructions that would be moved
//! together.
//!
//! Every byte is taken for the beginning of a jump; where one would lead to such an address,
//! decoders look whether it is one. Jumps by tables are not seen; none leads between a system call
//! and what looks at its result.

use super::look::{Sight, look};
use super::text::Text;
use iced_x86::Instruction;
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
        let mut note = |at: usize, target: u64| {
            let is_asked = (lowest..=highest).contains(&target) && asked.contains(&target);
            if is_asked && !found.contains(&target) && leads_to(text, at, target) {
                found.insert(target);
            }
        };
        for (at, byte) in text.bytes.iter().enumerate() {
            match *byte {
                // jcc, loop, jrcxz, jmp: one byte. Few are near enough.
                0x70..=0x7f | 0xe0..=0xe3 | 0xeb => near(text, at, &mut note),
                // call, jmp: four.
                0xe8 | 0xe9 => far(text, at, at + 1, &mut note),
                // jcc: a byte before, four.
                0x80..=0x8f if at > 0 && text.bytes[at - 1] == 0x0f => {
                    far(text, at - 1, at + 1, &mut note);
                }
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

/// Whether the byte is in a jump to `target`, as far as decoders can tell; it may have prefixes.
#[cold]
fn leads_to(text: Text<'_>, at: usize, target: u64) -> bool {
    let is_it = |one: &Instruction| one.near_branch_target() == target;
    !matches!(look(text, at, is_it), Sight::Nothing)
}

/// A jump at `at` whose distance is in the byte behind.
#[inline]
fn near(text: Text<'_>, at: usize, note: &mut impl FnMut(usize, u64)) {
    if let Some(by) = text.bytes.get(at + 1) {
        let next = text.address + at as u64 + 2;
        note(at, next.wrapping_add_signed(i64::from(by.cast_signed())));
    }
}

/// A jump at `at` whose distance is in four bytes.
#[inline]
fn far(text: Text<'_>, at: usize, distance: usize, note: &mut impl FnMut(usize, u64)) {
    if let Some(by) = text.bytes.get(distance..distance + 4).and_then(|four| four.try_into().ok()) {
        let next = text.address + distance as u64 + 4;
        note(at, next.wrapping_add_signed(i64::from(i32::from_le_bytes(by))));
    }
}
