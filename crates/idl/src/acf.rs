//! The application configuration file: what one side wants of its stubs, without changing what
//! travels.
//!
//! It has the shape of DCE's: `interface NAME { typedef [attrs] T; [attrs] op([attrs] param); }`.
//! [`keys`] lists what can be said, `parse` reads the file, `apply` writes it into the model's
//! [`crate::ir::LocalAttrs`].

mod apply;
mod keys;
mod memory;
mod parse;
mod settings;

pub(crate) use apply::apply;
pub(crate) use keys::is_key;

use crate::ast::{Name, Text};
use crate::source::Span;

/// Reports what is wrong with the grammar of an ACF.
pub(crate) fn check_grammar(tokens: &crate::lex::Tokens, text: &str, sink: &mut crate::diag::Sink) {
    parse::parse(tokens, text, sink);
}

/// One ACF.
#[derive(Clone, Debug, Default, PartialEq)]
struct File {
    interfaces: Vec<Interface>,
    /// `include "x.h";` anywhere.
    includes: Vec<Text>,
}

/// `[keys] interface NAME { ... }`
#[derive(Clone, Debug, PartialEq)]
struct Interface {
    keys: Vec<Key>,
    name: Name,
    items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq)]
enum Item {
    /// `typedef [keys] A, B;`
    Typedef(Vec<Key>, Vec<Name>),
    /// `[keys] op([keys] param, ...);`
    Operation(Vec<Key>, Name, Vec<(Vec<Key>, Name)>),
}

/// `key(arguments)`
#[derive(Clone, Debug, PartialEq)]
struct Key {
    name: Name,
    args: Vec<Arg>,
    span: Span,
}

/// An argument of a key.
#[derive(Clone, Debug, PartialEq)]
struct Arg {
    kind: ArgKind,
    span: Span,
}

#[derive(Clone, Debug, PartialEq)]
enum ArgKind {
    Number(i128),
    /// `name`, `module::name`
    Path(String),
    Text(String),
    /// `spin(20)`
    Call(String, Vec<Arg>),
}
