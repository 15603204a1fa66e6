//! What a line of the preprocessor does. Not here: conditions; see `condition`.

use std::ops::Range;

use super::condition::Branch;
use super::macros::Macro;
use super::preprocessor::{DEPTH_MAX, FILES_MAX, Preprocessor};
use crate::diag::{Diagnostic, Sink, codes};
use crate::lex::{Kind, Token, lex_part};
use crate::source::{FileNumber, Span};

impl Preprocessor<'_> {
    /// One line, which begins with `#`.
    pub(super) fn line(
        &mut self,
        file: FileNumber,
        text: &str,
        line: Range<usize>,
        branches: &mut Vec<Branch>,
    ) {
        let offset = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let shown = text.get(line.clone()).unwrap_or("").trim_end();
        let span = Span { file, start: offset(line.start), end: offset(line.start + shown.len()) };
        let is_live = branches.last().is_none_or(|b| b.is_live);
        let said = shown[1..].trim_start();
        let (word, prose) =
            said.split_at(said.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(said.len()));
        if is_live && self.prose(word, prose.trim(), span) {
            return;
        }
        // What is not read need not consist of words of the language.
        let mut unread = Sink::default();
        let sink = if is_live { &mut *self.sink } else { &mut unread };
        let behind = line.start + (shown.len() - prose.len())..line.end;
        let rest = lex_part(file, text, behind, &mut 0, sink).list;
        match word {
            "if" | "ifdef" | "ifndef" => self.open(word, &rest, span, branches),
            "elif" | "else" => self.other(word, &rest, span, branches),
            "endif" => self.close(span, branches),
            _ if !is_live => {}
            "define" => self.define(&rest, span),
            "undef" => self.undefine(&rest, span),
            "" if said.is_empty() => {}
            _ => self.error(
                span,
                "this line says nothing that is known here",
                "known are #define, #undef, #if, #ifdef, #ifndef, #elif, #else, #endif, #include, #error and #pragma",
            ),
        }
    }

    /// Lines whose rest is no sequence of tokens; whether this is one.
    fn prose(&mut self, word: &str, rest: &str, span: Span) -> bool {
        match word {
            "include" => self.include(rest, span),
            "error" => {
                let message = format!("the file says: {rest}");
                self.error(span, message, "look at the condition that this line stands in");
            }
            "pragma" => self.sink.push_once(Diagnostic::note(
                codes::IGNORED,
                span,
                "`#pragma` is accepted without effect",
            )),
            _ => return false,
        }
        true
    }

    /// `#include "FILE"` and `#include <FILE>`.
    fn include(&mut self, rest: &str, span: Span) {
        let close = match rest.chars().next() {
            Some('"') => '"',
            Some('<') => '>',
            _ => return self.error(span, "`#include` needs a file", "write `#include \"FILE\"`"),
        };
        let Some(name) = rest[1..].find(close).map(|end| &rest[1..=end]) else {
            return self.error(
                span,
                "the name of the file has no end",
                "write `#include \"FILE\"`",
            );
        };
        if self.depth >= DEPTH_MAX || self.tokens.included.len() >= FILES_MAX {
            let message = "files inside files, more than 64 deep or more than a thousand";
            return self.error(span, message, "do they include one another?");
        }
        match self.includes.open(name, span, self.sink) {
            Ok(included) => {
                self.depth += 1;
                self.file(included.file, &included.text);
                self.depth -= 1;
                self.tokens.included.push(included);
            }
            Err(failure) => self.sink.push(
                Diagnostic::error(
                    codes::IMPORT_NOT_FOUND,
                    span,
                    format!("cannot read `{name}`: {failure}"),
                )
                .help("it is looked for beside the file, then in the folders given with -I")
                .help(format!(
                    "for a C header in the output write `cpp_quote(\"#include <{name}>\")`"
                )),
            ),
        }
    }

    fn define(&mut self, rest: &[Token], span: Span) {
        let first =
            rest.split_first().and_then(|(first, rest)| Some((first.ident()?, first, rest)));
        let Some((name, first, rest)) = first else {
            return self.error(span, "`#define` needs a name", "write `#define NAME VALUE`");
        };
        // As in C, a space before the bracket makes it a part of the value.
        let touches = |t: &Token| t.is("(") && t.span.start == first.span.end;
        let is_function = rest.first().is_some_and(touches);
        let (params, body) = if is_function {
            let Some(Params { names, body }) = params(&rest[1..]) else {
                return self.error(
                    span,
                    format!("the parameters of `{name}` are names between commas"),
                    "write `#define NAME(A, B) ...`; macros have a fixed number of parameters",
                );
            };
            (Some(names), body)
        } else {
            (None, rest)
        };
        let body = body.iter().map(|t| Token { doc: None, doc_after: None, ..t.clone() }).collect();
        self.macros.table.insert(name.to_owned(), Macro { params, body });
    }

    fn undefine(&mut self, rest: &[Token], span: Span) {
        match rest.first().and_then(Token::ident) {
            Some(name) => drop(self.macros.table.remove(name)),
            None => self.error(span, "`#undef` needs a name", "write `#undef NAME`"),
        }
    }
}

/// The parameters of a macro, and what stands behind them.
struct Params<'t> {
    names: Vec<String>,
    body: &'t [Token],
}

/// Reads names up to `)`.
fn params(tokens: &[Token]) -> Option<Params<'_>> {
    let close = tokens.iter().position(|t| t.is(")"))?;
    let (list, body) = (&tokens[..close], &tokens[close + 1..]);
    let mut names = Vec::new();
    for (i, token) in list.iter().enumerate() {
        match &token.kind {
            Kind::Ident(name) if i % 2 == 0 => names.push(name.clone()),
            Kind::Punct(",") if i % 2 == 1 => {}
            _ => return None,
        }
    }
    (list.is_empty() || list.len() % 2 == 1).then_some(Params { names, body })
}
