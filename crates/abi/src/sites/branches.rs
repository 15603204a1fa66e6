//! The addresses between movable instructions that are targets of jumps.
//!
//! Every byte is taken for the beginning of a jump. If that jump would lead to one of the addresses
//! in question, decoders decide if it is a jump (`look`). Jumps through tables are not noticed;
//! none leads between a system call and the instructions that check its result.

use super::look::{Sight, look};
use super::text::Text;
use iced_x86::Instruction;
use std::collections::BTreeSet;

/// The addresses in question that are targets of jumps.
#[derive(Debug, Default)]
pub(crate) struct Targets(BTreeSet<u64>);

impl Targets {
    /// Searches for jumps to any of `asked`.
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
                // `jcc`, `loop`, `jrcxz` and `jmp` with a distance of one byte. Few are near
                // enough.
                0x70..=0x7f | 0xe0..=0xe3 | 0xeb => near(text, at, &mut note),
                // `call` and `jmp` with a distance of four bytes.
                0xe8 | 0xe9 => far(text, at, at + 1, &mut note),
                // `jcc` with a prefix byte and a distance of four bytes.
                0x80..=0x8f if at > 0 && text.bytes[at - 1] == 0x0f => {
                    far(text, at - 1, at + 1, &mut note);
                }
                _ => {}
            }
        }
        Self(found)
    }

    /// Returns true if an address in question is the target of a jump.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.0.contains(&address)
    }
}

/// Returns true if decoders find that the byte is within a jump to `target`, which may have
/// prefixes.
#[cold]
fn leads_to(text: Text<'_>, at: usize, target: u64) -> bool {
    let is_it = |one: &Instruction| one.near_branch_target() == target;
    !matches!(look(text, at, is_it), Sight::Nothing)
}

/// Takes a jump at `at` whose distance is in the next byte.
#[inline]
fn near(text: Text<'_>, at: usize, note: &mut impl FnMut(usize, u64)) {
    if let Some(by) = text.bytes.get(at + 1) {
        let next = text.address + at as u64 + 2;
        note(at, next.wrapping_add_signed(i64::from(by.cast_signed())));
    }
}

/// Takes a jump at `at` whose distance is in four bytes.
#[inline]
fn far(text: Text<'_>, at: usize, distance: usize, note: &mut impl FnMut(usize, u64)) {
    if let Some(by) = text.bytes.get(distance..distance + 4).and_then(|four| four.try_into().ok()) {
        let next = text.address + distance as u64 + 4;
        note(at, next.wrapping_add_signed(i64::from(i32::from_le_bytes(by))));
    }
}
