//! Entry points for fuzzing: arbitrary bytes as the contents of memory that the kernel writes.
//!
//! The invariants: no panic, and no lent bytes outside the slot or chunk. Debug and fuzzing builds
//! only; not a part of the interface of this crate. Used by `tests/fuzz_run.rs` (deterministic, in
//! every test run) and `fuzz/fuzz_targets/netif_*.rs`.

use crate::map::Map;
use crate::message;
use crate::slot::{Filled, Slots};
use crate::umem::Umem;
use crate::xdp_ring::Descriptor;

/// Bytes of a slot of [`slots`].
pub const SLOT_BYTES: usize = 256;
/// The number of slots.
pub const SLOTS: usize = 4;

/// Reads a receive ring. The first byte chooses if frames have offload headers, the rest is the
/// ring.
pub fn slots(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let Ok(mut map) = Map::anonymous(SLOT_BYTES * SLOTS) else { return };
    let len = bytes.len().min(map.len());
    let base = map.address() as usize;
    // SAFETY: fresh memory that nobody else knows.
    if let Some(place) = unsafe { map.bytes_mut(0, len) } {
        place.copy_from_slice(&bytes[..len]);
    }
    let mut slots = Slots::new(map, SLOT_BYTES, SLOTS);
    for turn in 0..2 * SLOTS {
        let slot = base + turn % SLOTS * SLOT_BYTES;
        if let Filled::Frame(received) = slots.peek(choice & 1 == 0) {
            let range = received.frame.as_ptr_range();
            assert!(range.start as usize >= slot && range.end as usize <= slot + SLOT_BYTES);
            assert!(turn < SLOTS, "a slot that was given back is empty");
        }
        slots.release();
    }
}

/// Reads the control data of a received message.
pub fn control(bytes: &[u8]) {
    message::auxiliary(bytes);
}

/// Uses descriptors of 12 bytes, address and length, as an AF_XDP ring gives them.
pub fn descriptors(bytes: &[u8]) {
    let Ok(mut umem) = Umem::new(2048, 2, 2) else { return };
    let base = umem.address() as usize;
    for entry in bytes.as_chunks::<12>().0 {
        let (address, len) = entry.split_at(8);
        let address = u64::from_le_bytes(core::array::from_fn(|at| address[at]));
        let len = u32::from_le_bytes(core::array::from_fn(|at| len[at]));
        // Most addresses of 64 bits lie far outside the area, so half of them are brought near.
        let address = if len & 1 == 0 { address } else { address % 9000 };
        let entry = Descriptor { address, len: len % 5000 };
        // SAFETY: no kernel has the memory.
        if let Some(frame) = unsafe { umem.frame(entry) } {
            let range = frame.as_ptr_range();
            assert!(range.start as usize >= base && range.end as usize <= base + 2 * 2048);
        }
        // SAFETY: no kernel has the memory.
        if let Some(chunk) = unsafe { umem.chunk_mut(address) } {
            assert!(chunk.as_ptr() as usize >= base + 2 * 2048 && chunk.len() == 2048);
        }
    }
}
