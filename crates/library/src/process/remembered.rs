//! Records that outlive the moves of a descriptor's session, by descriptor number.
//!
//! A record counts only while the number means the same descriptor; those of closed ones are not
//! removed one by one. Not here: the records (`policy::bulk`, `policy::measured`).

use crate::session::progress::TrialHistory;
use sojourn_pump::bulk::History;
use std::collections::HashMap;

/// Records kept at most: when there are more, all are dropped.
const MOST: usize = 4096;

/// What is remembered of a descriptor.
#[derive(Debug)]
struct Record<T> {
    /// The number's version then (`FdEntry::version`).
    version: u32,
    what: T,
}

/// Records by descriptor number.
#[derive(Debug)]
pub(crate) struct PerDescriptor<T>(HashMap<i32, Record<T>>);

/// Records of descriptors whose bulk transfers did better in the kernel: see `policy::bulk`.
pub(crate) type BulkHistories = PerDescriptor<History>;
/// Records of descriptors whose sessions have had a trial: see `policy::measured`.
pub(crate) type TrialHistories = PerDescriptor<TrialHistory>;

impl<T> Default for PerDescriptor<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> PerDescriptor<T> {
    /// Returns the record of a descriptor.
    pub(crate) fn of(&self, fd: i32, version: u32) -> Option<&T> {
        self.0.get(&fd).filter(|known| known.version == version).map(|known| &known.what)
    }

    /// Returns the record of a descriptor, to be changed.
    pub(crate) fn of_mut(&mut self, fd: i32, version: u32) -> Option<&mut T> {
        self.0.get_mut(&fd).filter(|known| known.version == version).map(|known| &mut known.what)
    }

    /// Returns the last record of that number, whichever descriptor it is of.
    pub(crate) fn last(&self, fd: i32) -> Option<&T> {
        self.0.get(&fd).map(|known| &known.what)
    }

    /// Returns the record of a descriptor, to be changed, and makes it by `new` if there is none.
    pub(crate) fn of_or(&mut self, fd: i32, version: u32, new: impl Fn() -> T) -> &mut T {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let fresh = || Record { version, what: new() };
        let known = self.0.entry(fd).or_insert_with(fresh);
        if known.version != version {
            *known = fresh();
        }
        &mut known.what
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_number_that_means_something_else_nothing_is_remembered() {
        let mut all = PerDescriptor::default();
        *all.of_or(3, 1, || 0) += 7;
        *all.of_or(3, 1, || 0) += 7;
        assert_eq!((all.of(3, 1), all.of(3, 2), all.last(3)), (Some(&14), None, Some(&14)));
        assert_eq!(*all.of_or(3, 2, || 0), 0);
        assert_eq!(all.of_mut(3, 1), None);
        assert_eq!(all.of_mut(3, 2), Some(&mut 0));
        for fd in 0..2 * MOST as i32 {
            *all.of_or(fd, 1, || 1) += 1;
        }
        assert!(all.0.len() <= MOST);
    }
}
