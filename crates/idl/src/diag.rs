//! Diagnostics: what the compiler has to say about a file, independent of how it is shown.
//!
//! [`codes`] lists every code, [`catalogue`] explains each with samples, [`render()`] shows them to
//! people and [`to_json`] to editors.

pub mod catalogue;
pub mod codes;
mod json;
mod render;
mod suggest;

pub use codes::Code;
pub use json::to_json;
pub use render::render;
pub use suggest::{listing, nearest};

use crate::source::Span;

/// Errors beyond this are not collected: they would be the same mistake over and over.
const ERRORS_MAX: usize = 100;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something accepted without effect.
    Note,
    /// Probably a mistake; output is made.
    Warning,
    /// No output is made.
    Error,
}

impl Severity {
    /// As shown before the code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A second place that matters, with what there is to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What.
    pub text: String,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its code, which never changes its meaning.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// One line: what is wrong.
    pub message: String,
    /// Where; `None` when no source text is concerned (a file that cannot be read).
    pub span: Option<Span>,
    /// Other places.
    pub labels: Vec<Label>,
    /// Ways out.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error at `span`.
    #[must_use]
    pub fn error(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, Some(span), message)
    }

    /// A warning at `span`.
    #[must_use]
    pub fn warning(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, Some(span), message)
    }

    /// A note at `span`.
    #[must_use]
    pub fn note(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, Some(span), message)
    }

    /// A diagnostic with everything given.
    #[must_use]
    pub fn new(
        severity: Severity,
        code: Code,
        span: Option<Span>,
        message: impl Into<String>,
    ) -> Self {
        Self { code, severity, message: message.into(), span, labels: vec![], help: vec![] }
    }

    /// With a second place.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// With a way out.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// With a way out if there is one.
    #[must_use]
    pub fn maybe_help(mut self, text: Option<String>) -> Self {
        self.help.extend(text);
        self
    }

    /// Whether it keeps output from being made.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

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
