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

/// Elements of a message's body whose words are to be counted.
pub(super) struct Elements<'b> {
    /// The words of each.
    pub(super) slots: &'b [Slot],
    /// The bytes of all.
    pub(super) bytes: &'b [u8],
    /// The first byte within the body.
    pub(super) offset: usize,
    pub(super) count: usize,
    /// Bytes of each.
    pub(super) stride: usize,
}

impl Elements<'_> {
    /// Counts the words at `slots` of the structure that begins at byte `at`.
    fn scan(
        &self,
        slots: &[Slot],
        at: usize,
        taken: &mut Taken,
        objects: &mut LazyObjects,
    ) -> Result<(), DecodeError> {
        let word = |at: usize| load::<u32>(self.bytes, at).unwrap_or(0);
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
                    objects.get().scan(word(at), self.offset + at)?;
                }
                Slot::Run { at: first, count, stride, slots } => {
                    for index in 0..count {
                        self.scan(slots, at + first + index * stride, taken, objects)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Counts the words of `elements`; returns what is taken once theirs has been, given what is taken
/// before.
#[cold]
pub(super) fn count_words(
    elements: &Elements<'_>,
    mut taken: Taken,
    objects: &mut LazyObjects,
) -> Result<Taken, DecodeError> {
    for index in 0..elements.count {
        let at = index * elements.stride;
        elements.scan(elements.slots, at, &mut taken, objects)?;
    }
    Ok(taken)
}

/// Counts like [`count_words`] where no `ptr` pointers are.
#[cold]
pub(super) fn count_items(elements: &Elements<'_>, taken: Taken) -> Taken {
    // Only words of `ptr` pointers can be wrong.
    count_words(elements, taken, &mut LazyObjects::default()).unwrap_or(taken)
}
