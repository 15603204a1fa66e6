//! Where the words of an object are that name something beside or behind it.
//!
//! Constant tables in generated code; walked only for messages that carry string items, grants or
//! descriptors, and for objects with `ptr` pointers. See the theory of operation in `decode`.

use super::DecodeError;
use super::pod::load;
use super::shared::LazyObjects;

/// A word, or a run of structures that hold some. Offsets are bytes within the object.
#[derive(Clone, Copy, Debug)]
pub enum Slot {
    /// Header of an array or string.
    Header(usize),
    /// Descriptor word; also the first word of an interface reference.
    Fd(usize),
    /// Word of a `ptr` pointer.
    Number(usize),
    /// First of a list that has such words somewhere and does not begin with one.
    Numbers,
    /// `count` structures of `stride` bytes from `at` on, each with `slots`.
    Run {
        /// First byte.
        at: usize,
        /// How many.
        count: usize,
        /// Bytes of each.
        stride: usize,
        /// Words of each.
        slots: &'static [Slot],
    },
}

/// Returns true if the list has words of `ptr` pointers. It is a constant, and so is the answer.
#[inline(always)]
pub(super) fn have_numbers(slots: &[Slot]) -> bool {
    matches!(slots.first(), Some(Slot::Numbers | Slot::Number(_)))
}

/// How many of each have been taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) items: u16,
    pub(super) grants: u16,
    pub(super) fds: u16,
}

/// Counts the words of one element at byte `at` of `bytes`, which begin at `offset` of the body.
pub(super) fn scan(
    slots: &[Slot],
    bytes: &[u8],
    at: usize,
    offset: usize,
    taken: &mut Taken,
    objects: &mut LazyObjects,
) -> Result<(), DecodeError> {
    let word = |at: usize| load::<u32>(bytes, at).unwrap_or(0);
    for slot in slots {
        match *slot {
            Slot::Header(header) => match word(at + header + 4) {
                2 => taken.items = taken.items.saturating_add(1),
                3 => taken.grants = taken.grants.saturating_add(1),
                _ => {}
            },
            Slot::Fd(fd) => {
                taken.fds = taken.fds.saturating_add(u16::from(word(at + fd) == 1));
            }
            Slot::Numbers => {}
            Slot::Number(number) => {
                let at = at + number;
                objects.get().scan(word(at), offset + at)?;
            }
            Slot::Run { at: first, count, stride, slots } => {
                for index in 0..count {
                    let at = at + first + index * stride;
                    scan(slots, bytes, at, offset, taken, objects)?;
                }
            }
        }
    }
    Ok(())
}
