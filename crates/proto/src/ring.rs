//! A ring of bytes addressed by stream positions: the memory of one direction of a connection, or
//! of a queue.
//!
//! The ring knows neither what is in it nor where that begins and ends; its owner does, and never
//! lets two positions that are in use lie further apart than the capacity. Made once, of a fixed
//! size; nothing here allocates after that.

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
    /// A ring of at least `capacity` bytes: the next power of two. `base` is the first position
    /// that will be used.
    pub(crate) fn new(capacity: usize, base: u64) -> Ring {
        Ring { bytes: vec![0; capacity.next_power_of_two()].into_boxed_slice(), base }
    }

    /// Bytes that fit.
    pub(crate) fn capacity(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Says that nothing is in the ring and that `position` comes next: it will lie at the front,
    /// so that a ring that is often empty touches little memory.
    pub(crate) fn rewind(&mut self, position: u64) {
        self.base = position;
    }

    fn index(&self, position: u64) -> usize {
        (position.wrapping_sub(self.base) & (self.capacity() - 1)) as usize
    }

    /// Copies `source` to where `position` is. What does not fit a whole round is left out; the
    /// owner never lets that happen.
    pub(crate) fn write(&mut self, position: u64, source: &[u8]) {
        let index = self.index(position);
        let count = source.len().min(self.bytes.len());
        let front = count.min(self.bytes.len() - index);
        self.bytes[index..index + front].copy_from_slice(&source[..front]);
        self.bytes[..count - front].copy_from_slice(&source[front..count]);
    }

    /// The bytes of `span`, in up to two parts.
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
