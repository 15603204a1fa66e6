//! Where a compilation puts its diagnostics.

use super::diagnostic::Diagnostic;

/// Errors beyond this are not collected: they would be the same mistake over and over.
const ERRORS_MAX: usize = 100;

/// Collects diagnostics; drops repetitions and all beyond a hundred errors.
#[derive(Debug, Default)]
pub struct Sink {
    list: Vec<Diagnostic>,
    errors: usize,
}

impl Sink {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let known =
            self.list.iter().any(|d| d.code == diagnostic.code && d.span == diagnostic.span);
        if known || self.errors >= ERRORS_MAX {
            return;
        }
        self.errors += usize::from(diagnostic.is_error());
        self.list.push(diagnostic);
    }

    /// Adds a note about `subject` unless the same has been said before anywhere.
    pub fn push_once(&mut self, diagnostic: Diagnostic) {
        let same = |d: &&Diagnostic| d.code == diagnostic.code && d.message == diagnostic.message;
        if !self.list.iter().any(|d| same(&d)) {
            self.push(diagnostic);
        }
    }

    /// Whether any error has been seen.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether so many errors have been seen that going on is of no use.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.errors >= ERRORS_MAX
    }

    /// Everything collected, in source order within each file.
    #[must_use]
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| d.span.map(|s| (s.file, s.start)));
        self.list
    }
}
