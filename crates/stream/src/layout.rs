//! The places of things in a stream's region: a control page, then ring 0, then ring 1.
//!
//! The process that made the region tells the others the sizes of the rings. Nothing about the
//! layout is read from the region, which the peer can write. Not here: the words of the control
//! page (`ring`, `ledger`).

use crate::ledger::{FIGURES_WORDS, LEDGER_WORDS, Ledger};
use crate::ring::{FROZEN, HeadLine, Ring};
use crate::times::LayerTimes;

/// Bytes of the control page.
pub const CONTROL_BYTES: usize = 4096;
const RING_MIN: u32 = 4096;
const RING_MAX: u32 = 64 << 20;

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);

/// The sizes of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    ring_bytes: [u32; 2],
}

impl Layout {
    /// Makes a layout from sizes in bytes: powers of two from 4 KiB to 64 MiB, or 0 for ring 1 of a
    /// pipe, which has none. Returns `None` for other sizes.
    pub fn new(ring_bytes: [u32; 2]) -> Option<Self> {
        let fits = |bytes: u32| bytes.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&bytes);
        (fits(ring_bytes[0]) && (ring_bytes[1] == 0 || fits(ring_bytes[1])))
            .then_some(Self { ring_bytes })
    }

    /// Returns the size of the region in bytes.
    pub fn len(&self) -> usize {
        CONTROL_BYTES + self.ring_bytes[0] as usize + self.ring_bytes[1] as usize
    }

    /// Returns false: there is always a control page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the bytes of ring `ring` (0 or 1); 0 if there is none.
    pub fn ring_bytes(&self, ring: usize) -> u32 {
        self.ring_bytes.get(ring).copied().unwrap_or(0)
    }

    /// Returns the offset of the bytes of ring `ring`.
    pub(crate) fn ring_offset(&self, ring: usize) -> usize {
        CONTROL_BYTES + if ring == 0 { 0 } else { self.ring_bytes[0] as usize }
    }
}

/// The control page.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) rings: [Ring; 2],
    pub(crate) ledger: Ledger,
}

/// Returns the bytes that have gone through ring 0 and ring 1 so far, or past them, from a copy of
/// a region's control page: for a process that does not map the region. The two ends can write any
/// number there: it is good for showing only.
///
/// Returns `None` if the copy is too short.
pub fn totals_in_header(header: &[u8]) -> Option<[u64; 2]> {
    let word = |ring: usize, at: usize| {
        let at = core::mem::offset_of!(Control, rings) + ring * size_of::<Ring>() + at;
        Some(u64::from_ne_bytes(header.get(at..at + 8)?.try_into().ok()?))
    };
    let total = |ring: usize| {
        let tail = word(ring, core::mem::offset_of!(Ring, tail))? & !FROZEN;
        let beside = core::mem::offset_of!(Ring, head) + core::mem::offset_of!(HeadLine, beside);
        Some(tail.wrapping_add(word(ring, beside)?) & !FROZEN)
    };
    Some([total(0)?, total(1)?])
}

/// Returns the words of a stream's ledger, from a copy like that of [`totals_in_header`].
///
/// Returns `None` if the copy is too short.
pub fn ledger_in_header(header: &[u8]) -> Option<[u32; LEDGER_WORDS]> {
    Ledger::published_in(header.get(core::mem::offset_of!(Control, ledger)..)?)
}

/// Returns the figures of a stream's ledger, from a copy like that of [`totals_in_header`].
///
/// Returns `None` if the copy is too short.
pub fn figures_in_header(header: &[u8]) -> Option<[u32; FIGURES_WORDS]> {
    let at = core::mem::offset_of!(Control, ledger) + Ledger::FIGURES_OFFSET;
    let mut words = [0; FIGURES_WORDS];
    for (place, word) in words.iter_mut().enumerate() {
        let at = at + place * size_of::<u32>();
        *word = u32::from_ne_bytes(header.get(at..at + size_of::<u32>())?.try_into().ok()?);
    }
    Some(words)
}

/// The place of the wish for times in a region (bytes from its beginning): a native 32-bit number,
/// the second of the monotonic clock at which the wish ends; 0: there is none.
pub const TIMES_WISH_AT: usize = core::mem::offset_of!(Control, ledger) + Ledger::TIMES_OFFSETS[0];

/// Returns the times of a stream's layers, from a copy like that of [`totals_in_header`].
///
/// Returns `None` if the copy is too short.
pub fn times_in_header(header: &[u8]) -> Option<LayerTimes> {
    let at = core::mem::offset_of!(Control, ledger) + Ledger::TIMES_OFFSETS[1];
    LayerTimes::from_bytes(header.get(at..)?)
}
