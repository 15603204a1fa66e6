//! What a memory system is asked (`Reference`), and what it counts.

use serde::{Deserialize, Serialize};

/// Who executes an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A program.
    User,
    /// The kernel.
    System,
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The instruction itself is fetched.
    Fetch,
    /// Data is read.
    Read,
    /// Data is written.
    Write,
}

/// A reference to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Who refers.
    pub mode: Mode,
    /// To what purpose.
    pub access: Access,
    /// The physical address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// Counts and stall cycles of one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions executed.
    pub instructions: u64,
    /// Reads and writes of data, by instructions' own sizes.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// Fetches of lines that the instruction cache does not hold.
    pub fetch_misses: u64,
    /// Reads that the data cache does not hold.
    pub read_misses: u64,
    /// Cycles that the processor waits for instructions.
    pub fetch_cycles: u64,
    /// Cycles that the processor waits for data.
    pub read_cycles: u64,
    /// Cycles that the processor waits for stores.
    pub store_cycles: u64,
    /// Cycles that the processor waits for reads of devices, which no cache holds.
    pub device_cycles: u64,
}

impl Counts {
    /// Returns all cycles that the processor waits.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cache_cycles() + self.store_cycles + self.device_cycles
    }

    /// Returns the cycles that the processor waits because of misses.
    #[must_use]
    pub fn cache_cycles(&self) -> u64 {
        self.fetch_cycles + self.read_cycles
    }
}

/// The counts of both modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Of programs.
    pub user: Counts,
    /// Of the kernel.
    pub system: Counts,
}

impl Totals {
    pub(crate) fn of(&mut self, mode: Mode) -> &mut Counts {
        match mode {
            Mode::User => &mut self.user,
            Mode::System => &mut self.system,
        }
    }

    /// Returns the instructions of both modes.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        self.user.instructions + self.system.instructions
    }

    /// Returns the cycles that the processor waits in both modes.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.user.cycles() + self.system.cycles()
    }
}
