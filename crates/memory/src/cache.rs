//! A cache: the lines that it holds, the least recently used replaced first. Tags only, no data.
//!
//! Two layouts with one behaviour: small sets are searched one way after the other, and a fully
//! associative cache is a hash table with a list in the order of use. Not here: costs, and what a
//! miss fetches (`station`, `hierarchy`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A line's number: its address divided by the line's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line(pub u64);

/// The number of lines that an address may lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Associativity {
    /// This many; 1 is a direct-mapped cache.
    Ways(usize),
    /// All of them.
    Full,
}

/// The size and the layout of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of all lines.
    pub bytes: usize,
    /// Bytes of a line.
    pub line_bytes: usize,
    /// The number of lines that an address may lie in.
    pub associativity: Associativity,
}

impl Shape {
    fn lines(&self) -> usize {
        self.bytes / self.line_bytes
    }
}

/// A cache with least-recently-used replacement.
#[derive(Clone, Debug)]
pub struct Cache {
    lines: Lines,
}

#[derive(Clone, Debug)]
enum Lines {
    Sets(Sets),
    Full(FullyAssociative),
}

impl Cache {
    /// Makes an empty cache. A shape with less than one line is taken for one of one line.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let count = shape.lines().max(1);
        let lines = match shape.associativity {
            Associativity::Ways(ways) => Lines::Sets(Sets::new(count, ways.clamp(1, count))),
            Associativity::Full => Lines::Full(FullyAssociative::new(count)),
        };
        Self { lines }
    }

    /// Returns true if the cache holds the line, which is the last used one from now on.
    pub fn touch(&mut self, line: Line) -> bool {
        match &mut self.lines {
            Lines::Sets(sets) => sets.touch(line),
            Lines::Full(full) => full.touch(line),
        }
    }

    /// Puts the line into the cache as the last used one, in the place of the least recently used
    /// of its set.
    pub fn fill(&mut self, line: Line) {
        match &mut self.lines {
            Lines::Sets(sets) => sets.fill(line),
            Lines::Full(full) => full.fill(line),
        }
    }
}

/// The tag of a way without a line. No line has it: line numbers are addresses divided.
const EMPTY: u64 = u64::MAX;

/// Sets of a few ways each. The ways of a set are in the order of use, the last used first.
#[derive(Clone, Debug)]
struct Sets {
    tags: Vec<u64>,
    ways: usize,
    /// The bits of a line's number that are its set's.
    mask: u64,
}

impl Sets {
    fn new(lines: usize, ways: usize) -> Self {
        // A set is found by bits of the address, so there is a power of two of them.
        let sets = 1 << (lines / ways).ilog2();
        Self { tags: vec![EMPTY; sets * ways], ways, mask: sets as u64 - 1 }
    }

    fn set(&mut self, line: Line) -> &mut [u64] {
        let first = (line.0 & self.mask) as usize * self.ways;
        &mut self.tags[first..first + self.ways]
    }

    fn touch(&mut self, line: Line) -> bool {
        let set = self.set(line);
        match set.iter().position(|tag| *tag == line.0) {
            Some(at) => {
                set[..=at].rotate_right(1);
                true
            }
            None => false,
        }
    }

    fn fill(&mut self, line: Line) {
        if !self.touch(line) {
            let set = self.set(line);
            set.rotate_right(1);
            set[0] = line.0;
        }
    }
}

/// A hash of line numbers, which are numbers of a program's own and need no protection from
/// collisions on purpose.
#[derive(Clone, Debug, Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // The high half of the product depends on all bits of the number; the table takes both
        // ends of the hash.
        let product = u128::from(self.0 ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// A line of the fully associative cache, in the list in the order of use.
#[derive(Clone, Copy, Debug)]
struct Node {
    line: Line,
    newer: usize,
    older: usize,
}

/// One set of all lines.
#[derive(Clone, Debug)]
struct FullyAssociative {
    nodes: Vec<Node>,
    index: HashMap<Line, usize, BuildHasherDefault<LineHasher>>,
    capacity: usize,
    newest: usize,
    oldest: usize,
}

/// The end of the list.
const NOWHERE: usize = usize::MAX;

impl FullyAssociative {
    fn new(capacity: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(capacity),
            index: HashMap::with_capacity_and_hasher(capacity, BuildHasherDefault::default()),
            capacity,
            newest: NOWHERE,
            oldest: NOWHERE,
        }
    }

    fn touch(&mut self, line: Line) -> bool {
        let Some(&at) = self.index.get(&line) else { return false };
        if at != self.newest {
            self.unlink(at);
            self.link(at);
        }
        true
    }

    fn fill(&mut self, line: Line) {
        if self.touch(line) {
            return;
        }
        let at = if self.nodes.len() < self.capacity {
            self.nodes.push(Node { line, newer: NOWHERE, older: NOWHERE });
            self.nodes.len() - 1
        } else {
            let at = self.oldest;
            self.unlink(at);
            self.index.remove(&self.nodes[at].line);
            self.nodes[at].line = line;
            at
        };
        self.index.insert(line, at);
        self.link(at);
    }

    /// Takes a node out of the list.
    fn unlink(&mut self, at: usize) {
        let Node { newer, older, .. } = self.nodes[at];
        match newer {
            NOWHERE => self.newest = older,
            newer => self.nodes[newer].older = older,
        }
        match older {
            NOWHERE => self.oldest = newer,
            older => self.nodes[older].newer = newer,
        }
    }

    /// Puts a node at the list's newest end.
    fn link(&mut self, at: usize) {
        let older = self.newest;
        (self.nodes[at].newer, self.nodes[at].older) = (NOWHERE, older);
        match older {
            NOWHERE => self.oldest = at,
            older => self.nodes[older].newer = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: usize = 16;

    fn shape(lines: usize, associativity: Associativity) -> Shape {
        Shape { bytes: lines * LINE, line_bytes: LINE, associativity }
    }

    /// The plainest cache: a list of lines for each set, the last used at its end.
    struct Plain {
        sets: Vec<Vec<u64>>,
        ways: usize,
    }

    impl Plain {
        fn new(lines: usize, ways: usize) -> Self {
            Self { sets: vec![Vec::new(); lines / ways], ways }
        }

        fn take(&mut self, line: u64) -> (&mut Vec<u64>, bool) {
            let count = self.sets.len() as u64;
            let set = &mut self.sets[(line % count) as usize];
            let found = set.iter().position(|one| *one == line);
            if let Some(at) = found {
                set.remove(at);
            }
            (set, found.is_some())
        }

        fn touch(&mut self, line: u64) -> bool {
            let (set, is_there) = self.take(line);
            if is_there {
                set.push(line);
            }
            is_there
        }

        fn fill(&mut self, line: u64) {
            let ways = self.ways;
            let (set, _) = self.take(line);
            if set.len() == ways {
                set.remove(0);
            }
            set.push(line);
        }
    }

    fn misses(lines: usize, associativity: Associativity, trace: &[u64]) -> usize {
        let mut cache = Cache::new(shape(lines, associativity));
        let mut count = 0;
        for line in trace {
            if !cache.touch(Line(*line)) {
                cache.fill(Line(*line));
                count += 1;
            }
        }
        count
    }

    #[test]
    fn two_lines_of_one_set_drive_each_other_out_unless_there_are_two_ways() {
        let trace = [0, 8, 0, 8, 0, 8];
        assert_eq!(misses(8, Associativity::Ways(1), &trace), 6);
        assert_eq!(misses(8, Associativity::Ways(2), &trace), 2);
        assert_eq!(misses(8, Associativity::Full, &trace), 2);
    }

    #[test]
    fn one_line_more_than_the_cache_has_misses_always_where_the_oldest_goes() {
        let trace: Vec<u64> = (0..9).cycle().take(90).collect();
        assert_eq!(misses(8, Associativity::Full, &trace), 90);
        // Direct-mapped, only the two lines of one set miss.
        assert_eq!(misses(8, Associativity::Ways(1), &trace), 9 + 2 * 9);
    }

    #[test]
    fn the_least_recently_used_goes() {
        let mut cache = Cache::new(shape(2, Associativity::Full));
        cache.fill(Line(1));
        cache.fill(Line(2));
        assert!(cache.touch(Line(1)));
        cache.fill(Line(3));
        assert!(cache.touch(Line(1)) && cache.touch(Line(3)) && !cache.touch(Line(2)));
    }

    proptest! {
        #[test]
        fn all_layouts_agree_with_the_plain_model(
            steps in prop::collection::vec((0_u64..64, any::<bool>()), 0..400),
            log_lines in 0_u32..5,
            log_ways in 0_u32..5,
        ) {
            let (lines, ways) = (1 << log_lines, 1 << log_ways.min(log_lines));
            let mut plain = Plain::new(lines, ways);
            let mut cache = Cache::new(shape(lines, Associativity::Ways(ways)));
            let mut plain_full = Plain::new(lines, lines);
            let mut full = Cache::new(shape(lines, Associativity::Full));
            for (line, is_fill) in steps {
                if is_fill {
                    plain.fill(line);
                    cache.fill(Line(line));
                    plain_full.fill(line);
                    full.fill(Line(line));
                } else {
                    prop_assert_eq!(cache.touch(Line(line)), plain.touch(line));
                    prop_assert_eq!(full.touch(Line(line)), plain_full.touch(line));
                }
            }
        }

        /// What a fully associative cache holds, a larger one holds as well.
        #[test]
        fn a_larger_full_cache_never_misses_more(
            trace in prop::collection::vec(0_u64..40, 0..400),
            lines in 1_usize..32,
        ) {
            let (small, large) = (lines, lines + 1);
            let small = misses(small, Associativity::Full, &trace);
            prop_assert!(misses(large, Associativity::Full, &trace) <= small);
        }
    }
}
