//! Where the lexer stands, and how it moves. Not here: which token begins there; see `lex`.

use super::token::{Kind, Token, Tokens};
use crate::diag::Sink;
use crate::source::{FileNumber, Span};

/// A lexer on its way through one file.
pub(super) struct Lexer<'a> {
    pub(super) file: FileNumber,
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) tokens: Tokens,
    pub(super) doc: Option<String>,
    /// Open `[`; `uuid(` is special only inside.
    pub(super) brackets: u32,
    /// Nothing but white space on this line so far.
    pub(super) fresh_line: bool,
    pub(super) sink: &'a mut Sink,
}

impl<'a> Lexer<'a> {
    /// One that begins at byte `at` of `text`, at the beginning of a line.
    pub(super) fn new(file: FileNumber, text: &'a str, at: usize, sink: &'a mut Sink) -> Self {
        let tokens = Tokens::default();
        Self { file, text, at, tokens, doc: None, brackets: 0, fresh_line: true, sink }
    }
}

impl Lexer<'_> {
    pub(super) fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    pub(super) fn span_from(&self, start: usize) -> Span {
        let offset = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span { file: self.file, start: offset(start), end: offset(self.at) }
    }

    pub(super) fn slice(&self, start: usize) -> &str {
        self.text.get(start..self.at).unwrap_or("")
    }

    /// Advances while `wanted` holds for the next byte.
    pub(super) fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
    }

    pub(super) fn push(&mut self, kind: Kind, start: usize) {
        let span = self.span_from(start);
        let doc = self.doc.take();
        self.tokens.list.push(Token { kind, span, doc, doc_after: None });
    }
}
