//! The IDL parser: tokens to syntax tree, by recursive descent.
//!
//! A construct that cannot be read is reported once and skipped to its end (`;`, `,` or the
//! closing bracket), so that one run finds many mistakes. Nesting is bounded, so hostile input
//! cannot exhaust the stack. `cursor` moves over tokens, `items` reads what stands in a file,
//! `com` what only files of COM have, `types` types and declarators, `attrs` attribute lists,
//! `expr` expressions.

mod attrs;
mod com;
mod cursor;
mod expr;
mod items;
mod keys;
mod members;
mod parser;
mod types;

pub(crate) use com::{imports, is_com};
pub(crate) use cursor::{Bail, Cursor, Parsed};
pub(crate) use keys::{ATTRIBUTES, Fate};

use self::items::Scope;
use self::parser::Parser;
use crate::ast::{Expr, File};
use crate::diag::Sink;
use crate::lex::Tokens;

/// Reads one IDL file; `is_com` says that it is one of COM's.
pub(crate) fn parse(tokens: &Tokens, text: &str, is_com: bool, sink: &mut Sink) -> File {
    let mut parser = Parser::new(Cursor::new(tokens, text, sink));
    parser.is_com = is_com;
    File { items: parser.items(Scope::File) }
}

/// Reads the condition of an `#if`, which is all of `tokens`. `None`: reported.
pub(crate) fn parse_condition(tokens: &Tokens, sink: &mut Sink) -> Option<Expr> {
    let mut parser = Parser::new(Cursor::new(tokens, "", sink));
    let expr = parser.expr().ok()?;
    if parser.cursor.at_end() {
        return Some(expr);
    }
    parser.cursor.unexpected("the end of the condition");
    None
}

#[cfg(test)]
mod tests;
