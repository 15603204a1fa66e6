//! Where a compilation puts its diagnostics.

use super::codes::Code;
use super::diagnostic::Diagnostic;

/// Errors beyond this are not collected: they would be the same mistake over and over.
const ERRORS_MAX: usize = 100;

/// Collects diagnostics; drops repetitions and all beyond a hundred errors.
#[derive(Debug, Default)]
pub struct Sink {
    list: Vec<Diagnostic>,
    errors: usize,
    /// The innermost hold last.
    holds: Vec<Hold>,
}

/// Codes whose errors can be held back.
pub(crate) type Held = &'static [HeldCode];

/// A code with what its errors blame, in a few words.
#[derive(Debug)]
pub(crate) struct HeldCode {
    code: Code,
    blamed: &'static str,
}

impl HeldCode {
    pub(crate) const fn new(code: Code, blamed: &'static str) -> Self {
        Self { code, blamed }
    }
}

/// An error that was held back.
#[derive(Debug)]
pub(crate) struct HeldError {
    /// What it blames.
    pub(crate) blamed: &'static str,
    pub(crate) diagnostic: Diagnostic,
}

/// Errors that are not reported for the time being.
#[derive(Debug)]
struct Hold {
    lists: &'static [Held],
    first: Option<HeldError>,
}

impl Sink {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if let Some(hold) = self.holds.last_mut() {
            let mut codes = hold.lists.iter().copied().flatten();
            let held = codes.find(|held| held.code == diagnostic.code);
            if let Some(HeldCode { blamed, .. }) = held.filter(|_| diagnostic.is_error()) {
                hold.first.get_or_insert(HeldError { blamed, diagnostic });
                return;
            }
        }
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

    /// From now on errors with the codes of these lists are kept, until [`Self::release`].
    pub(crate) fn hold(&mut self, lists: &'static [Held]) {
        self.holds.push(Hold { lists, first: None });
    }

    /// Ends the innermost hold: the first error it has kept.
    pub(crate) fn release(&mut self) -> Option<HeldError> {
        self.holds.pop().and_then(|hold| hold.first)
    }

    /// Returns true if any error has been seen.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Returns true if so many errors have been seen that going on is of no use.
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
