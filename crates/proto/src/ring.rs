//! A ring buffer addressed by stream positions: the memory of one direction of a connection, or of
//! a queue of datagrams.
//!
//! The ring does not know which positions are in use. Its owner does, and keeps positions in use
//! within the capacity of each other. The size is fixed when the ring is created; later calls do
//! not allocate.

use crate::position::Span;
use alloc::boxed::Box;
use alloc::vec;

/// Bytes of a stream, each at its position modulo the capacity.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Box<[u8]>,
    /// The position that lies at index 0.
    base: u64,
}

impl Ring {
    /// Creates a ring of at least `capacity` bytes: the next power of two. `base` is the first
    /// position that will be used.
    pub(crate) fn new(capacity: usize, base: u64) -> Ring {
        Ring { bytes: vec![0; capacity.next_power_of_two()].into_boxed_slice(), base }
    }

    /// Returns the size in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Puts `position`, the next one to be used, at the front of an empty ring, so that a ring that
    /// is often empty touches little memory.
    pub(crate) fn rewind(&mut self, position: u64) {
        self.base = position;
    }

    fn index(&self, position: u64) -> usize {
        (position.wrapping_sub(self.base) & (self.capacity() - 1)) as usize
    }

    /// Copies `source` to `position`. Bytes beyond the capacity are left out; the owner never
    /// passes so many.
    pub(crate) fn write(&mut self, position: u64, source: &[u8]) {
        let index = self.index(position);
        let count = source.len().min(self.bytes.len());
        let front = count.min(self.bytes.len() - index);
        self.bytes[index..index + front].copy_from_slice(&source[..front]);
        self.bytes[..count - front].copy_from_slice(&source[front..count]);
    }

    /// Returns the bytes of `span` in two parts, since the span may wrap; the second part may be
    /// empty.
    pub(crate) fn slices(&self, span: Span) -> [&[u8]; 2] {
        let index = self.index(span.start);
        let count = (span.len() as usize).min(self.bytes.len());
        let front = count.min(self.bytes.len() - index);
        [&self.bytes[index..index + front], &self.bytes[..count - front]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(
            base in (1u64 << 32)..(1 << 33),
            offset in 0u64..1000,
            bytes in prop::collection::vec(any::<u8>(), 0..=64),
        ) {
            let mut ring = Ring::new(50, base);
            prop_assert_eq!(ring.capacity(), 64);
            let span = Span::new(base + offset, base + offset + bytes.len() as u64);
            ring.write(span.start, &bytes);
            prop_assert_eq!(ring.slices(span).concat(), bytes.clone());
            ring.rewind(span.start);
            ring.write(span.start, &bytes);
            prop_assert_eq!(ring.slices(span)[0], &bytes[..]);
        }
    }
}
