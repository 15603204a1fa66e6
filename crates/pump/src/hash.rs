//! A hash for tables whose keys only this process chooses: session numbers, and addresses of
//! sessions that it has.
//!
//! Not for keys that a stranger can put into a table. A stranger chooses what is looked up, but not
//! what is stored.

use std::hash::Hasher;

/// Mixes in word after word; see `write_u64`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    /// Returns the hash; hash tables take their places from its low bits and their tags from its
    /// high ones.
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    /// Mixes in one word: the rotation makes the order of words count, and the multiplication by a
    /// number with bits all over spreads each bit upwards.
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    fn hash(value: impl std::hash::Hash) -> u64 {
        BuildHasherDefault::<WordHasher>::default().hash_one(value)
    }

    #[test]
    fn neighbours_do_not_share_places() {
        let places: HashSet<u64> = (0..4096u32).map(|number| hash(number) % 4096).collect();
        assert!(places.len() > 2000, "{}", places.len());
        let ports: HashSet<u64> =
            (0..4096u16).map(|port| hash(([10u8, 0, 0, 1], 80u16, port)) % 4096).collect();
        assert!(ports.len() > 2000, "{}", ports.len());
    }

    #[test]
    fn the_order_of_words_counts() {
        assert_ne!(hash((1u16, 2u16)), hash((2u16, 1u16)));
        assert_ne!(hash([1u8, 0, 0]), hash([1u8, 0]));
    }
}
