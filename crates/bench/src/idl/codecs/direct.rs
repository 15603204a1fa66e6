//! The row without stubs: the caller calls the function.

use std::hint::black_box;

use crate::idl::cases::{self, Arguments};
use crate::idl::codec::{self, Codec, Kind, Subject};

/// Returns the row.
pub(super) fn subjects() -> Vec<Subject> {
    codec::subjects("direct call, Rust", Kind::Direct, || Direct(Arguments::new()))
}

struct Direct(Arguments);

impl Codec for Direct {
    fn paper(&mut self) -> Option<u64> {
        let (a, b) = black_box(cases::AB);
        Some(cases::serve_paper(a, b, black_box(cases::TEXT)))
    }

    fn stat(&mut self) -> Option<u64> {
        let stat = cases::serve_stat(black_box(cases::PATH).as_bytes());
        Some(cases::sum_stat(black_box(&stat)))
    }

    fn list(&mut self) -> Option<u64> {
        let entries = cases::serve_list(&self.0, black_box(cases::DIRECTORY));
        Some(entries.iter().map(|e| cases::sum_entry(e.inode, e.kind, e.name.as_bytes())).sum())
    }

    fn put(&mut self) -> Option<u64> {
        let (key, value) = (black_box(&self.0.key), black_box(&self.0.value));
        Some(cases::serve_put(key, value, black_box(cases::FLAGS)))
    }

    fn record(&mut self) -> Option<u64> {
        Some(cases::serve_record(black_box(&self.0.record)))
    }

    fn tree(&mut self) -> Option<u64> {
        Some(cases::serve_tree(black_box(&self.0.tree)))
    }
}
