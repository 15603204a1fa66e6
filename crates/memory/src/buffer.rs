//! A write buffer: stores wait in it for the memory, so that the processor need not.
//!
//! One store after the other goes to memory, in order. A store to the page of the one before it is
//! quicker (page mode). Reads go first, but wait for a store that has begun. The processor stalls
//! for a store when the buffer is full, and for a read while a store is under way. Times are in
//! cycles and come in as arguments. Not here: which stores and reads there are (`station`).

use std::collections::VecDeque;

/// The size of the buffer and what the memory takes for its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Stores that the buffer holds, that which is under way included.
    pub entries: usize,
    /// Cycles of a store to the page of the store before it.
    pub same_page: u64,
    /// Cycles of any other store.
    pub other_page: u64,
    /// Bytes of a page of the memory.
    pub page_bytes: u64,
}

/// A store that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    page: u64,
    since: u64,
}

/// The buffer, with the state of the memory behind it.
#[derive(Clone, Debug)]
pub struct WriteBuffer {
    timing: Timing,
    waiting: VecDeque<Waiting>,
    /// The memory is free from this cycle on.
    free_at: u64,
    /// The store that began last ends in this cycle.
    store_until: u64,
    /// The page of the store that began last.
    page: Option<u64>,
}

impl WriteBuffer {
    /// Makes an empty buffer.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        let timing = Timing { entries: timing.entries.max(1), ..timing };
        Self { timing, waiting: VecDeque::new(), free_at: 0, store_until: 0, page: None }
    }

    /// Takes a store at the cycle `now`. Returns the cycles that the processor stalls.
    pub fn store(&mut self, now: u64, address: u64) -> u64 {
        let page = address / self.timing.page_bytes;
        let mut stalled = now;
        self.advance(stalled);
        while self.held(stalled) >= self.timing.entries {
            // Either a store is under way, and its end makes room, or the first that waits begins.
            stalled = self.store_until.max(self.free_at).max(stalled + 1);
            self.advance(stalled);
        }
        self.waiting.push_back(Waiting { page, since: stalled });
        stalled - now
    }

    /// Takes a read of the memory at the cycle `now`, which takes `cycles`. Returns the cycles that
    /// the processor stalls before it, for a store that is under way.
    pub fn read(&mut self, now: u64, cycles: u64) -> u64 {
        self.advance(now);
        let begin = self.free_at.max(now);
        self.free_at = begin + cycles;
        begin - now
    }

    /// Returns the number of stores in the buffer.
    fn held(&self, now: u64) -> usize {
        self.waiting.len() + usize::from(self.store_until > now)
    }

    /// Begins the stores that begin before the cycle `now`.
    fn advance(&mut self, now: u64) {
        while let Some(first) = self.waiting.front() {
            let begin = self.free_at.max(first.since);
            if begin >= now {
                break;
            }
            let cycles = match self.page == Some(first.page) {
                true => self.timing.same_page,
                false => self.timing.other_page,
            };
            self.page = Some(first.page);
            self.free_at = begin + cycles;
            self.store_until = self.free_at;
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMING: Timing = Timing { entries: 6, same_page: 1, other_page: 5, page_bytes: 4096 };

    /// Stores one after the other, a cycle apart, each to the page that `page` says. Returns the
    /// stalls.
    fn stalls(count: u64, page: impl Fn(u64) -> u64) -> Vec<u64> {
        let (mut buffer, mut now) = (WriteBuffer::new(TIMING), 0);
        (0..count)
            .map(|number| {
                let stall = buffer.store(now, page(number) * 4096);
                now += 1 + stall;
                stall
            })
            .collect()
    }

    #[test]
    fn stores_to_one_page_never_stall() {
        assert_eq!(stalls(100, |_| 3), [0; 100]);
    }

    #[test]
    fn stores_to_changing_pages_fill_the_buffer_and_then_wait_for_the_memory() {
        let found = stalls(12, |number| number);
        // The store at cycle t begins at 5t. The seventh comes at cycle 6, when the second is under
        // way and four more wait; the eighth at 7 finds the buffer full until cycle 10.
        assert_eq!(found, [0, 0, 0, 0, 0, 0, 0, 3, 4, 4, 4, 4]);
    }

    #[test]
    fn a_read_waits_for_the_store_that_has_begun_and_no_other() {
        let mut buffer = WriteBuffer::new(TIMING);
        assert_eq!(buffer.store(0, 0), 0);
        assert_eq!(buffer.store(1, 4096), 0);
        // The first store is under way until cycle 5; the read passes the second.
        assert_eq!(buffer.read(2, 15), 3);
        // The second begins when the read has ended, at 20.
        assert_eq!(buffer.read(21, 15), 4);
        assert_eq!(buffer.read(100, 15), 0);
    }

    /// The same, cycle by cycle.
    struct Plain {
        stores: VecDeque<u64>,
        /// The page and the cycles left of what the memory does, and true for a store.
        doing: Option<(u64, bool)>,
        page: Option<u64>,
    }

    impl Plain {
        fn cycle(&mut self) {
            if self.doing.is_none()
                && let Some(page) = self.stores.pop_front()
            {
                let cycles = if self.page == Some(page) { 1 } else { 5 };
                (self.page, self.doing) = (Some(page), Some((cycles, true)));
            }
            self.doing = match self.doing {
                Some((1, _)) | None => None,
                Some((left, is_store)) => Some((left - 1, is_store)),
            };
        }

        fn held(&self) -> usize {
            self.stores.len() + usize::from(self.doing.is_some_and(|(_, is_store)| is_store))
        }
    }

    proptest! {
        #[test]
        fn stalls_are_those_of_a_memory_that_is_run_cycle_by_cycle(
            steps in prop::collection::vec((0_u64..4, 0_u64..3, any::<bool>()), 0..200),
        ) {
            let mut plain = Plain { stores: VecDeque::new(), doing: None, page: None };
            let (mut buffer, mut now) = (WriteBuffer::new(TIMING), 0);
            for (apart, page, is_store) in steps {
                for _ in 0..apart {
                    plain.cycle();
                }
                now += apart;
                let mut expected = 0;
                if is_store {
                    while plain.held() >= TIMING.entries {
                        plain.cycle();
                        expected += 1;
                    }
                    plain.stores.push_back(page);
                    prop_assert_eq!(buffer.store(now, page * 4096), expected);
                } else {
                    while plain.doing.is_some() {
                        plain.cycle();
                        expected += 1;
                    }
                    plain.doing = Some((15, false));
                    prop_assert_eq!(buffer.read(now, 15), expected);
                    for _ in 0..15 {
                        plain.cycle();
                    }
                    expected += 15;
                }
                now += expected;
            }
        }
    }
}
