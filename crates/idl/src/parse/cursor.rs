//! Moving over tokens, with recovery; shared by the parsers of IDL and ACF.

use crate::ast::Name;
use crate::diag::{Code, Diagnostic, Sink, codes};
use crate::lex::{IncludedFile, Kind, Token, Tokens};
use crate::source::Span;

/// Constructs inside constructs beyond this are refused.
const DEPTH_MAX: u32 = 64;

/// The construct could not be read; it has been reported.
#[derive(Debug)]
pub(crate) struct Bail;

/// Result of reading a construct.
pub(crate) type Parsed<T> = Result<T, Bail>;

/// A position in a list of tokens.
pub(crate) struct Cursor<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: u32,
    text: &'a str,
    /// Texts of the other files that tokens come from.
    included: &'a [IncludedFile],
    pub(crate) sink: &'a mut Sink,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(tokens: &'a Tokens, text: &'a str, sink: &'a mut Sink) -> Self {
        let included = &tokens.included;
        Self { tokens: &tokens.list, at: 0, depth: 0, text, included, sink }
    }

    /// The source text of a span.
    pub(crate) fn raw(&self, span: Span) -> &'a str {
        let included = self.included.iter().find(|included| included.file == span.file);
        let text = included.map_or(self.text, |included| &included.text);
        text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// The next token; at the end of the file [`Kind::End`] again and again.
    pub(crate) fn peek(&self) -> &'a Token {
        self.peek_at(0)
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> &'a Token {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + ahead).min(last)]
    }

    pub(crate) fn advance(&mut self) -> &'a Token {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(crate) fn at_end(&self) -> bool {
        self.peek().kind == Kind::End
    }

    /// Index of the next token: to see whether anything was consumed.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The token before the next one.
    pub(crate) fn previous(&self) -> Option<&'a Token> {
        self.tokens.get(self.at.checked_sub(1)?)
    }

    pub(crate) fn is(&self, punct: &str) -> bool {
        self.peek().is(punct)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.peek().ident() == Some(word)
    }

    pub(crate) fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    /// Consumes `punct` or reports that it is missing.
    pub(crate) fn expect(&mut self, punct: &str, after: &str) -> Parsed<Span> {
        if self.is(punct) {
            return Ok(self.advance().span);
        }
        Err(self.unexpected(&format!("`{punct}` after {after}")))
    }

    /// As [`Self::expect`], but goes on as if it were there when a new construct begins.
    pub(crate) fn expect_end(&mut self, punct: &'static str, after: &str) -> Parsed<()> {
        if self.eat(punct) {
            return Ok(());
        }
        let (found, before) = (self.peek(), self.previous());
        let place = before.map_or(found.span, |t| t.span);
        self.sink.push(
            Diagnostic::error(
                codes::MISSING_PUNCTUATION,
                place.after(),
                format!("expected `{punct}` after {after}, found {}", found.describe()),
            )
            .help(format!("add `{punct}` here")),
        );
        if found.ident().is_some() || found.is("[") || found.is("}") || self.at_end() {
            return Ok(());
        }
        Err(Bail)
    }

    pub(crate) fn name(&mut self, what: &str) -> Parsed<Name> {
        let token = self.peek();
        let Some(text) = token.ident() else { return Err(self.unexpected(what)) };
        if super::keys::is_keyword(text) {
            self.error(
                codes::RESERVED_NAME,
                token.span,
                format!("`{text}` is a reserved word and cannot be {what}"),
                "choose another name",
            );
            if !super::keys::is_soft(text) {
                return Err(Bail);
            }
        }
        self.advance();
        Ok(Name { text: text.to_owned(), span: token.span })
    }

    /// Reports the next token as not what was expected.
    pub(crate) fn unexpected(&mut self, wanted: &str) -> Bail {
        let token = self.peek();
        let mut diagnostic = Diagnostic::error(
            codes::UNEXPECTED_TOKEN,
            token.span,
            format!("expected {wanted}, found {}", token.describe()),
        )
        .help(format!("write {wanted} here"));
        // Of something that was forgotten at the end of a line, that line is the one to look at.
        if let Some(before) = self.previous() {
            let between = Span { start: before.span.end, end: token.span.start, ..token.span };
            if before.span.file == token.span.file && self.raw(between).contains('\n') {
                diagnostic = diagnostic.label(before.span, "behind this");
            }
        }
        self.sink.push(diagnostic);
        Bail
    }

    pub(crate) fn error(&mut self, code: Code, span: Span, message: String, help: &str) {
        self.sink.push(Diagnostic::error(code, span, message).help(help));
    }

    /// Goes one level deeper, or refuses. Every success needs a [`Self::leave`].
    pub(crate) fn enter(&mut self) -> Parsed<()> {
        if self.depth >= DEPTH_MAX {
            self.error(
                codes::TOO_DEEP,
                self.peek().span,
                format!("more than {DEPTH_MAX} constructs inside one another"),
                "take the inner parts out and give them names with typedef or const",
            );
            return Err(Bail);
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Skips to behind the end of the broken construct: a `;`, or a balanced `{...}` with what
    /// ends it. Stops before the `}` of the enclosing block.
    pub(crate) fn skip_item(&mut self) {
        while !self.at_end() && !self.is("}") {
            if self.eat(";") {
                return;
            }
            if self.is("{") {
                self.skip_balanced();
                // `} name;` ends a type, `}` alone an interface.
                let name_ends = self.peek().ident().is_some()
                    && (self.peek_at(1).is(";") || self.peek_at(1).is(","));
                if !name_ends && !self.is("*") {
                    self.eat(";");
                    return;
                }
            } else {
                self.skip_balanced();
            }
        }
    }

    /// Skips to before one of `ends` at this level, or before `;`, `}` or the end.
    pub(crate) fn skip_to(&mut self, ends: &[&str]) {
        while !self.at_end() && !self.is(";") && !self.is("}") {
            if ends.iter().any(|e| self.is(e)) {
                return;
            }
            self.skip_balanced();
        }
    }

    /// Skips one token, or everything from an opening bracket to the closing one. A round or
    /// square bracket that nobody closed ends before `;` or the end of the block.
    pub(crate) fn skip_balanced(&mut self) {
        let mut open: Vec<&'static str> = Vec::new();
        let mut blocks = 0_usize;
        loop {
            let round_only = !open.is_empty() && blocks == 0;
            if self.at_end() || round_only && (self.is(";") || self.is("}")) {
                return;
            }
            match self.advance().kind {
                Kind::Punct("(") => open.push(")"),
                Kind::Punct("[") => open.push("]"),
                Kind::Punct("{") => {
                    open.push("}");
                    blocks += 1;
                }
                Kind::Punct("}") => {
                    while open.pop().is_some_and(|o| o != "}") {}
                    blocks = blocks.saturating_sub(1);
                }
                Kind::Punct(p) if open.last() == Some(&p) => {
                    open.pop();
                }
                _ => {}
            }
            if open.is_empty() {
                return;
            }
        }
    }
}
