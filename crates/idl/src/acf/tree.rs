//! The syntax tree of an ACF.

use crate::ast::{Name, Text};
use crate::source::Span;

/// One ACF.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct File {
    pub(super) interfaces: Vec<Interface>,
    /// `include "x.h";` anywhere.
    pub(super) includes: Vec<Text>,
}

/// `[keys] interface NAME { ... }`
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interface {
    pub(super) keys: Vec<Key>,
    pub(super) name: Name,
    pub(super) items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// `typedef [keys] A, B;`
    Typedef(Vec<Key>, Vec<Name>),
    /// `[keys] op([keys] param, ...);`
    Operation(Keyed, Vec<Keyed>),
}

/// `[keys] name`: an operation or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Keyed {
    pub(super) keys: Vec<Key>,
    pub(super) name: Name,
}

/// `key(arguments)`
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) name: Name,
    pub(super) args: Vec<Arg>,
    pub(super) span: Span,
}

/// An argument of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arg {
    pub(super) kind: ArgKind,
    pub(super) span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ArgKind {
    Number(i128),
    /// `name`, `module::name`
    Path(String),
    Text(String),
    /// `spin(20)`
    Call(String, Vec<Arg>),
}
