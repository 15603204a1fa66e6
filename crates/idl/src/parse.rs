//! The IDL parser: tokens to syntax tree, by recursive descent.
//!
//! A construct that cannot be read is reported once and skipped to its end (`;`, `,` or the
//! closing bracket), so that one run finds many mistakes. Nesting is bounded, so hostile input
//! cannot exhaust the stack. `cursor` moves over tokens, `items` reads what stands in a file,
//! `types` types and declarators, `attrs` attribute lists, `expr` expressions.

mod attrs;
mod cursor;
mod expr;
mod items;
mod keys;
mod members;
mod parser;
mod types;

pub(crate) use cursor::{Bail, Cursor, Parsed};
pub(crate) use keys::{ATTRIBUTES, Fate};

use self::items::Scope;
use self::parser::Parser;
use crate::ast::File;
use crate::diag::Sink;
use crate::lex::Tokens;

/// Reads one IDL file.
pub(crate) fn parse(tokens: &Tokens, text: &str, sink: &mut Sink) -> File {
    let mut parser = Parser::new(Cursor::new(tokens, text, sink));
    File { items: parser.items(Scope::File) }
}

#[cfg(test)]
mod tests;
