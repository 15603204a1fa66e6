//! The lexer: text to tokens, for IDL and ACF alike.
//!
//! It never fails: what is no token is reported and skipped. It knows no grammar, but for one
//! thing: inside an attribute list, the text of `uuid(...)` is one token, because
//! `12e45678-...` is no sequence of C tokens. Not the preprocessor: that is `pre`, which cuts the
//! lines that begin with `#` out of IDL files. What is lexed here as a whole (ACFs, files to be
//! formatted) has no such lines, and one is reported.

mod lexer;
mod literal;
mod token;

pub(crate) use token::{Comment, IncludedFile, Kind, PUNCTS, Token, Tokens};

use crate::diag::{Diagnostic, Sink, codes};
use crate::source::{FileNumber, Span};
use lexer::Lexer;

use std::ops::Range;

/// Splits `text` of file number `file` into tokens, with [`Kind::End`] behind them.
pub(crate) fn lex(file: FileNumber, text: &str, sink: &mut Sink) -> Tokens {
    let mut lexer = Lexer::new(file, text, 0, sink);
    lexer.run();
    lexer.push(Kind::End, text.len());
    lexer.tokens
}

/// Splits a part of `text` into tokens, without an end. `brackets` are the `[` that are open
/// before it, and afterwards those behind it.
pub(crate) fn lex_part(
    file: FileNumber,
    text: &str,
    part: Range<usize>,
    brackets: &mut u32,
    sink: &mut Sink,
) -> Tokens {
    let text = text.get(..part.end).unwrap_or(text);
    let mut lexer = Lexer::new(file, text, part.start, sink);
    lexer.brackets = *brackets;
    lexer.run();
    *brackets = lexer.brackets;
    lexer.tokens
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.peek(0) {
            let start = self.at;
            match byte {
                b'\n' => {
                    self.at += 1;
                    self.fresh_line = true;
                    continue;
                }
                b' ' | b'\t' | b'\r' | 0x0C => {
                    self.at += 1;
                    continue;
                }
                b'\\' if self.line_goes_on() => {
                    self.at += 1;
                    continue;
                }
                b'/' if self.peek(1) == Some(b'/') => self.line_comment(),
                b'/' if self.peek(1) == Some(b'*') => self.block_comment(),
                b'#' if self.fresh_line => self.preprocessor_line(),
                _ => self.token(byte),
            }
            debug_assert!(self.at > start, "the lexer must advance");
            self.fresh_line = false;
        }
    }

    /// Returns true if the line ends behind the `\` here, which joins it with the next.
    fn line_goes_on(&self) -> bool {
        let next = usize::from(self.peek(1) == Some(b'\r')) + 1;
        self.peek(next) == Some(b'\n')
    }

    fn token(&mut self, byte: u8) {
        let start = self.at;
        if self.after_uuid_key() && (byte.is_ascii_alphanumeric() || byte == b'-') {
            self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            let text = self.slice(start).to_owned();
            return self.push(Kind::Uuid(text), start);
        }
        match byte {
            b'L' if self.peek(1) == Some(b'"') => self.string(true),
            b'L' if self.peek(1) == Some(b'\'') => self.character(true),
            b'"' => self.string(false),
            b'\'' => self.character(false),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'_');
                let name = self.slice(start).to_owned();
                self.push(Kind::Ident(name), start);
            }
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_some_and(|b| b.is_ascii_digit()) => self.number(),
            _ => self.punct(),
        }
    }

    /// Returns true if the last two tokens are `uuid (` in an attribute list.
    fn after_uuid_key(&self) -> bool {
        let mut last = self.tokens.list.iter().rev();
        self.brackets > 0
            && last.next().is_some_and(|t| t.is("("))
            && last.next().is_some_and(|t| t.ident() == Some("uuid"))
    }

    fn punct(&mut self) {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let Some(found) = PUNCTS.iter().find(|p| rest.starts_with(p.as_bytes())) else {
            return self.unknown_characters();
        };
        match *found {
            "[" => self.brackets += 1,
            "]" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        self.at += found.len();
        self.push(Kind::Punct(found), start);
    }

    /// One report for a whole run of characters that begin no token.
    fn unknown_characters(&mut self) {
        let start = self.at;
        self.skip_while(|b| !b.is_ascii() || b.is_ascii_control() && !b.is_ascii_whitespace());
        if self.at == start {
            self.at += 1;
        }
        let text: String = self.slice(start).chars().take(8).flat_map(char::escape_debug).collect();
        self.sink.push(
            Diagnostic::error(
                codes::UNKNOWN_CHARACTER,
                self.span_from(start),
                format!("`{text}` means nothing here"),
            )
            .help(
                "outside comments and strings only ASCII letters, digits and C's operators occur",
            ),
        );
    }

    fn line_comment(&mut self) {
        let start = self.at;
        self.skip_while(|b| b != b'\n');
        let span = self.span_from(start);
        self.tokens.comments.push(Comment { span });
        let text = self.slice(start).trim_end().to_owned();
        if let Some(text) = text.strip_prefix("///<") {
            self.doc_after(text.trim());
        } else if let Some(text) = text.strip_prefix("///").filter(|t| !t.starts_with('/')) {
            let line = text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned();
            self.add_doc(&line);
        }
    }

    fn block_comment(&mut self) {
        let start = self.at;
        let Some(length) = self.text[start + 2..].find("*/") else {
            self.at += 2;
            let opening = self.span_from(start);
            self.at = self.text.len();
            self.sink.push(
                Diagnostic::error(codes::UNTERMINATED_COMMENT, opening, "this comment has no end")
                    .help("close it with `*/`; comments do not nest"),
            );
            return;
        };
        self.at = start + 2 + length + 2;
        let span = self.span_from(start);
        self.tokens.comments.push(Comment { span });
        let inner = &self.text[start + 2..start + 2 + length];
        if let Some(text) = inner.strip_prefix("*<") {
            let text = literal::unmark_block(text);
            self.doc_after(&text);
        } else if let Some(text) = inner.strip_prefix('*').filter(|t| !t.starts_with('*')) {
            let text = literal::unmark_block(text);
            self.add_doc(&text);
        }
    }

    fn add_doc(&mut self, text: &str) {
        match &mut self.doc {
            Some(doc) => {
                doc.push('\n');
                doc.push_str(text);
            }
            None => self.doc = Some(text.to_owned()),
        }
    }

    fn doc_after(&mut self, text: &str) {
        if let Some(last) = self.tokens.list.last_mut() {
            let doc = last.doc_after.get_or_insert_default();
            if !doc.is_empty() {
                doc.push('\n');
            }
            doc.push_str(text);
        }
    }

    fn preprocessor_line(&mut self) {
        let start = self.at;
        loop {
            self.skip_while(|b| b != b'\n');
            if !self.slice(start).trim_end_matches('\r').ends_with('\\') || self.peek(0).is_none() {
                break;
            }
            self.at += 1;
        }
        let line = self.slice(start).trim_end().to_owned();
        let span = Span {
            end: self.span_from(start).start + u32::try_from(line.len()).unwrap_or(0),
            ..self.span_from(start)
        };
        if let Some(diagnostic) = literal::preprocessor_diagnostic(&line, span) {
            self.sink.push(diagnostic);
        }
    }
}

#[cfg(test)]
mod tests;
