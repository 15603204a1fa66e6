//! One diagnostic: its code, where, and what to do about it. Not here: how it is shown.

use super::codes::Code;
use crate::source::Span;

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

    /// Returns true if it keeps output from being made.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
