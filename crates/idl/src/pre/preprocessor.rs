//! The preprocessor's state. Not here: what it does, which is in the files beside this one.

use super::macros::Macros;
use crate::diag::{Diagnostic, Sink, codes};
use crate::lex::{IncludedFile, Tokens};
use crate::source::Span;

/// Files inside files beyond this are refused.
pub(super) const DEPTH_MAX: u32 = 64;

/// So are more than these of one imported file.
pub(super) const FILES_MAX: usize = 1000;

/// Opens the files that `#include` names.
pub(crate) trait Includes {
    /// The file called `name` in the file at `at`.
    ///
    /// # Errors
    /// The system's message.
    fn open(&mut self, name: &str, at: Span, sink: &mut Sink) -> Result<IncludedFile, String>;
}

/// A preprocessor on its way through a file and those it includes.
pub(super) struct Preprocessor<'a> {
    pub(super) includes: &'a mut dyn Includes,
    pub(super) sink: &'a mut Sink,
    pub(super) macros: Macros,
    pub(super) tokens: Tokens,
    /// Open `[` so far: the lexer's.
    pub(super) brackets: u32,
    /// Files inside files.
    pub(super) depth: u32,
}

impl Preprocessor<'_> {
    pub(super) fn error(&mut self, span: Span, message: impl Into<String>, help: &str) {
        self.sink.push(Diagnostic::error(codes::PREPROCESSOR, span, message).help(help));
    }
}
