//! Which lines were touched: a bit for each line of the physical memory up to the highest one.

use crate::cache::Line;

/// A set of lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    bits: Vec<u64>,
}

impl Touched {
    /// Adds a line.
    pub(crate) fn add(&mut self, line: Line) {
        let word = (line.0 / 64) as usize;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (line.0 % 64);
    }

    /// Removes all lines.
    pub(crate) fn clear(&mut self) {
        self.bits.fill(0);
    }

    /// Returns the number of lines.
    pub(crate) fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn it_is_a_set(lines in prop::collection::vec(0_u64..20_000, 0..300)) {
            let mut touched = Touched::default();
            lines.iter().for_each(|line| touched.add(Line(*line)));
            prop_assert_eq!(touched.count(), lines.iter().collect::<HashSet<_>>().len() as u64);
            touched.clear();
            prop_assert_eq!(touched.count(), 0);
        }
    }
}
