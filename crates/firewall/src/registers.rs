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

    /// Stores bytes. Returns `None` if there is no such register, or it is too short.
    pub(crate) fn store(&mut self, register: u32, value: &[Option<u8>]) -> Option<()> {
        let at = start(register)?;
        self.0.get_mut(at..at.checked_add(value.len())?)?.copy_from_slice(value);
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

impl Holds {
    pub(crate) fn not(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Maybe => Self::Maybe,
            Self::Never => Self::Always,
        }
    }
}

impl From<Option<bool>> for Holds {
    fn from(holds: Option<bool>) -> Self {
        match holds {
            Some(true) => Self::Always,
            Some(false) => Self::Never,
            None => Self::Maybe,
        }
    }
}
