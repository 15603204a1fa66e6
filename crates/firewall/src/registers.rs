//! The registers of the nftables machine. Their bytes are known only as far as they are the same
//! for every packet of a session.
//!
//! Not here: expressions (`rule`).

use core::cmp::Ordering;

/// Bytes of all registers: four of 16 bytes, or 16 of 4 bytes.
const BYTES: usize = 64;

/// Bytes of a packet; `None` for a byte that may have any value.
pub(crate) type Known = Vec<Option<u8>>;

/// The result of a comparison, over all packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Always,
    Maybe,
    Never,
}

/// The registers. At first no byte is known.
#[derive(Debug)]
pub(crate) struct Registers([Option<u8>; BYTES]);

/// Returns the offset of a register (`enum nft_registers`).
fn start(register: u32) -> Option<usize> {
    match register {
        1..=4 => Some((register as usize - 1) * 16),
        8..=23 => Some((register as usize - 8) * 4),
        _ => None,
    }
}

impl Registers {
    pub(crate) fn new() -> Self {
        Self([None; BYTES])
    }

    /// Stores bytes, and zeroes the rest of the last four, as the kernel does: keys of sets contain
    /// them. Returns `None` if there is no such register, or it is too short.
    pub(crate) fn store(&mut self, register: u32, value: &[Option<u8>]) -> Option<()> {
        let at = start(register)?;
        let end = at.checked_add(value.len())?;
        self.0.get_mut(at..end)?.copy_from_slice(value);
        self.0.get_mut(end..end.next_multiple_of(4))?.fill(Some(0));
        Some(())
    }

    pub(crate) fn load(&self, register: u32, len: usize) -> Option<Known> {
        let at = start(register)?;
        Some(self.0.get(at..at.checked_add(len)?)?.to_vec())
    }
}

/// Compares `known` with `value`, which has the same length. Returns `None` if unknown bytes leave
/// the order open.
pub(crate) fn order(known: &[Option<u8>], value: &[u8]) -> Option<Ordering> {
    let all: Option<Vec<u8>> = known.iter().copied().collect();
    Some(all?.as_slice().cmp(value))
}

/// Compares `known` with `value`, which has the same length, for equality.
pub(crate) fn equals(known: &[Option<u8>], value: &[u8]) -> Holds {
    if known.iter().zip(value).any(|(known, value)| known.is_some_and(|known| known != *value)) {
        return Holds::Never;
    }
    if known.iter().all(Option::is_some) { Holds::Always } else { Holds::Maybe }
}

/// Tells whether `known` lies between two values of the same length, which belong to the range.
pub(crate) fn within(known: &[Option<u8>], from: &[u8], to: &[u8]) -> Holds {
    if from == to {
        return equals(known, from);
    }
    let filled = |byte: u8| known.iter().map(|known| known.unwrap_or(byte)).collect::<Vec<u8>>();
    let (least, most) = (filled(0), filled(0xff));
    if most.as_slice() < from || least.as_slice() > to {
        Holds::Never
    } else if least.as_slice() >= from && most.as_slice() <= to {
        Holds::Always
    } else {
        Holds::Maybe
    }
}

impl Holds {
    /// Returns the result of two comparisons that both have to hold.
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Always, Self::Always) => Self::Always,
            _ => Self::Maybe,
        }
    }

    /// Returns the result of two comparisons of which one is enough.
    pub(crate) const fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }

    pub(crate) const fn not(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Maybe => Self::Maybe,
            Self::Never => Self::Always,
        }
    }
}

impl From<bool> for Holds {
    fn from(holds: bool) -> Self {
        if holds { Self::Always } else { Self::Never }
    }
}

impl From<Option<bool>> for Holds {
    fn from(holds: Option<bool>) -> Self {
        holds.map_or(Self::Maybe, Self::from)
    }
}
