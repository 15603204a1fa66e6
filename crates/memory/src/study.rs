//! One trace through all memory systems at once, and what is reported of its measured part.
//!
//! The caches are warm when the measured part begins, if the trace began before (`Study::begin`).
//! Not here: where the trace comes from (`examples/plugin.rs`).

use serde::{Deserialize, Serialize};

use crate::counts::{Access, Counts, Mode, Reference, Totals};
use crate::hierarchy::Hierarchy;
use crate::station::{Station, Variant, lines};
use crate::touched::Touched;

/// Bytes of the smallest line that instructions are fetched by, in any of the systems.
const BLOCK_BYTES: u64 = 16;

/// Results of the measured part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The DECstation's memory system.
    pub direct_mapped: Totals,
    /// The same with two-way caches.
    pub two_way: Totals,
    /// The same with fully associative caches.
    pub fully_associative: Totals,
    /// The same with other caches for each mode.
    pub separate: Totals,
    /// Today's.
    pub today: Totals,
    /// Bytes that were referred to.
    pub working_set: WorkingSet,
}

/// Bytes of the lines of 16 bytes that were referred to at least once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkingSet {
    /// Programs' instructions.
    pub user_instructions: u64,
    /// Programs' data.
    pub user_data: u64,
    /// The kernel's instructions.
    pub system_instructions: u64,
    /// The kernel's data.
    pub system_data: u64,
}

/// The memory systems, fed from one trace.
#[derive(Debug)]
pub struct Study {
    stations: [Station; 4],
    today: Hierarchy,
    touched: [Touched; 4],
    last: Option<LastFetch>,
}

/// The last fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastFetch {
    block: u64,
    mode: Mode,
}

impl Default for Study {
    fn default() -> Self {
        Self::new()
    }
}

impl Study {
    /// Makes memory systems with empty caches.
    #[must_use]
    pub fn new() -> Self {
        let variants =
            [Variant::DirectMapped, Variant::TwoWay, Variant::FullyAssociative, Variant::Separate];
        Self {
            stations: variants.map(Station::new),
            today: Hierarchy::new(),
            touched: [(); 4].map(|()| Touched::default()),
            last: None,
        }
    }

    /// Forgets all counts and keeps the caches as they are: the measured part begins.
    pub fn begin(&mut self) {
        for station in &mut self.stations {
            station.totals = Totals::default();
        }
        self.today.totals = Totals::default();
        self.touched.iter_mut().for_each(Touched::clear);
        self.last = None;
    }

    /// Takes a reference. A fetch is an instruction.
    pub fn refer(&mut self, reference: &Reference) {
        if reference.access == Access::Fetch {
            let block = reference.address / BLOCK_BYTES;
            let end = reference.address.saturating_add(reference.bytes.max(1) - 1);
            let is_one = end / BLOCK_BYTES == block;
            if is_one && self.last == Some(LastFetch { block, mode: reference.mode }) {
                // The block is the last used one of each cache: nothing changes but counts.
                self.step(reference.mode);
                return;
            }
            self.last = Some(LastFetch { block: end / BLOCK_BYTES, mode: reference.mode });
        }
        for station in &mut self.stations {
            station.refer(reference);
        }
        self.today.refer(reference);
        let touched = &mut self.touched[kind(reference.mode, reference.access)];
        lines(reference, BLOCK_BYTES).for_each(|line| touched.add(line));
    }

    /// Takes a read of a device, which no cache holds.
    pub fn read_device(&mut self, mode: Mode) {
        self.stations.iter_mut().for_each(|station| station.read_device(mode));
    }

    fn step(&mut self, mode: Mode) {
        self.stations.iter_mut().for_each(|station| station.step(mode));
        self.today.step(mode);
    }

    /// Returns what was counted since the measured part began.
    #[must_use]
    pub fn report(&self) -> Report {
        let [direct_mapped, two_way, fully_associative, separate] =
            self.stations.each_ref().map(|station| station.totals);
        let bytes = |mode, access| self.touched[kind(mode, access)].count() * BLOCK_BYTES;
        Report {
            direct_mapped,
            two_way,
            fully_associative,
            separate,
            today: self.today.totals,
            working_set: WorkingSet {
                user_instructions: bytes(Mode::User, Access::Fetch),
                user_data: bytes(Mode::User, Access::Read),
                system_instructions: bytes(Mode::System, Access::Fetch),
                system_data: bytes(Mode::System, Access::Read),
            },
        }
    }
}

/// Returns the place of a kind of references among four.
fn kind(mode: Mode, access: Access) -> usize {
    let is_data = access != Access::Fetch;
    2 * usize::from(mode == Mode::System) + usize::from(is_data)
}

/// Memory cycles per instruction, by who waits for what: each divided by the instructions of both
/// modes, so that the parts add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mcpi {
    /// Of the kernel.
    pub system: Parts,
    /// Of programs.
    pub user: Parts,
}

/// The parts of one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Waiting for instructions.
    pub fetch: f64,
    /// Waiting for data.
    pub read: f64,
    /// Waiting for stores.
    pub store: f64,
    /// Waiting for devices.
    pub device: f64,
}

impl Parts {
    /// Returns the sum.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.fetch + self.read + self.store + self.device
    }
}

impl Mcpi {
    /// Makes cycles per instruction of counts; all zero if no instruction was executed.
    #[must_use]
    pub fn of(totals: &Totals) -> Self {
        let instructions = totals.instructions().max(1) as f64;
        let parts = |counts: &Counts| Parts {
            fetch: counts.fetch_cycles as f64 / instructions,
            read: counts.read_cycles as f64 / instructions,
            store: counts.store_cycles as f64 / instructions,
            device: counts.device_cycles as f64 / instructions,
        };
        Self { system: parts(&totals.system), user: parts(&totals.user) }
    }

    /// Returns the sum of all parts.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.system.sum() + self.user.sum()
    }
}

#[cfg(test)]
#[path = "study_tests.rs"]
mod tests;
