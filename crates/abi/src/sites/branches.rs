//! The addresses between movable instructions that are targets of jumps.
//!
//! Every byte is taken for the beginning of a jump. If that jump would lead to one of the addresses
//! in question, decoders decide if it is a jump (`look`). Jumps through tables are not noticed;
//! none leads between a system call and the instructions that check its result.

use super::look::{Sight, look};
use super::text::Text;
use iced_x86::Instruction;
use std::collections::BTreeSet;

/// A jump with a distance of one byte has two bytes. The first one is at most this far before its
/// target, and less than this far behind it.
const NEAR_BEFORE: usize = 2 + i8::MAX as usize;
const NEAR_BEHIND: usize = 127;

/// The addresses in question that are targets of jumps.
#[derive(Debug, Default)]
pub(crate) struct Targets(BTreeSet<u64>);

impl Targets {
    /// Searches for jumps to any of `asked`.
    pub(crate) fn find(text: Text<'_>, asked: impl Iterator<Item = u64>) -> Self {
        let asked: BTreeSet<u64> = asked.collect();
        if asked.is_empty() {
            return Self::default();
        }
        let filter = Filter::of(&asked);
        let mut found = BTreeSet::new();
        let mut note = |at: usize, target: u64| {
            let is_asked = filter.may_have(target) && asked.contains(&target);
            if is_asked && !found.contains(&target) && leads_to(text, at, target) {
                found.insert(target);
            }
        };
        // `jcc`, `loop`, `jrcxz` and `jmp` with a distance of one byte: few bytes are near enough.
        let mut searched = 0;
        for target in &asked {
            let place = target.wrapping_sub(text.address) as usize;
            let range = place.saturating_sub(NEAR_BEFORE).max(searched)
                ..place.saturating_add(NEAR_BEHIND).min(text.bytes.len());
            searched = range.end.max(searched);
            for at in range {
                if matches!(text.bytes[at], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb) {
                    near(text, at, &mut note);
                }
            }
        }
        // `call` and `jmp` with a distance of four bytes.
        for at in memchr::memchr2_iter(0xe8, 0xe9, text.bytes) {
            far(text, at, at + 1, &mut note);
        }
        // `jcc` with a prefix byte and a distance of four bytes.
        for at in memchr::memchr_iter(0x0f, text.bytes) {
            if matches!(text.bytes.get(at + 1), Some(0x80..=0x8f)) {
                far(text, at, at + 2, &mut note);
            }
        }
        Self(found)
    }

    /// Returns true if an address in question is the target of a jump.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.0.contains(&address)
    }
}

/// A bit for the lowest bits of each address in question: a long text has thousands of jumps for
/// each of them, and a look into the set for each jump would take most of the search.
struct Filter([u64; Filter::WORDS]);

impl Filter {
    const WORDS: usize = 512;

    fn of(asked: &BTreeSet<u64>) -> Self {
        let mut words = [0; Self::WORDS];
        for address in asked {
            words[Self::word(*address)] |= 1 << (address % 64);
        }
        Self(words)
    }

    /// Returns false if the address is not in question.
    #[inline]
    fn may_have(&self, address: u64) -> bool {
        self.0[Self::word(address)] >> (address % 64) & 1 != 0
    }

    const fn word(address: u64) -> usize {
        (address / 64) as usize % Self::WORDS
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
