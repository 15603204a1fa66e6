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

/// Codes with what each is called in a few words.
pub(crate) type Held = &'static [(Code, &'static str)];

/// Errors that are not reported for the time being.
#[derive(Debug)]
struct Hold {
    lists: &'static [Held],
    first: Option<(&'static str, Diagnostic)>,
}

impl Sink {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if let Some(hold) = self.holds.last_mut() {
            let mut codes = hold.lists.iter().copied().flatten();
            let held = codes.find(|(code, _)| *code == diagnostic.code);
            if let Some((_, name)) = held.filter(|_| diagnostic.is_error()) {
                hold.first.get_or_insert((name, diagnostic));
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

    /// Ends the innermost hold: the first error it has kept, and what that is called.
    pub(crate) fn release(&mut self) -> Option<(&'static str, Diagnostic)> {
        self.holds.pop().and_then(|hold| hold.first)
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
