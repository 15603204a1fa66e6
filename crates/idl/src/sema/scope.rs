//! Names and what they stand for, and the shapes that types have before they are complete.

use std::collections::HashMap;

use crate::ast::Name;
use crate::ir::{InterfaceId, Ty, TypeId};
use crate::source::Span;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// A type; `shape` is how its declarator was written, if attributes at a use may still
    /// change it (`typedef long *p;` but not `typedef [unique] long *p;`).
    Type { base: Base, shape: Option<Shape> },
    /// A constant: index into the module's.
    Const(usize),
    /// A member of an enumeration.
    Member(i32),
    /// An interface, perhaps only announced so far.
    Interface(InterfaceId),
}

/// A name with the place of its declaration.
#[derive(Clone, Debug)]
pub(super) struct Symbol {
    pub(super) meaning: Meaning,
    pub(super) span: Span,
}

/// All names of a compilation: as in C, one space for everything but tags.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) symbols: HashMap<String, Symbol>,
    pub(super) tags: HashMap<String, Tag>,
}

/// A `struct`, `enum` or `union` tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub(super) id: TypeId,
    pub(super) word: &'static str,
}

/// A type before pointers and dimensions are put around it.
#[derive(Clone, Debug)]
pub(super) enum Base {
    /// A type that can stand alone.
    Ty(Ty),
    /// A non-encapsulated union: needs `switch_is`.
    Union(TypeId),
    /// `void`: nothing, or something behind a pointer.
    Void,
    /// `handle_t`
    Handle,
    /// An interface: can only be pointed at.
    Interface(Option<InterfaceId>),
    /// A typedef that needs attributes to be a type: `typedef long open[];`
    Shaped(Box<Shape>),
}

/// Pointers and dimensions around a type.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) base: Base,
    pub(super) levels: Vec<Derivation>,
}

/// One pointer or dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Derivation {
    pub(super) kind: DerivationKind,
    pub(super) span: Span,
}

/// Kinds of derivations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DerivationKind {
    Pointer,
    Open,
    Fixed(u32),
}

/// The parameters or fields that expressions in attributes may name.
#[derive(Debug, Default)]
pub(super) struct Siblings {
    pub(super) names: Vec<Name>,
    /// Fields of a structure rather than parameters.
    pub(super) are_fields: bool,
    /// The one whose attributes are being read.
    pub(super) owner: usize,
    /// What the expressions serve for.
    pub(super) role: Role,
    pub(super) uses: Vec<SiblingUse>,
}

impl Siblings {
    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        let index = self.names.iter().position(|n| n.text == name)?;
        u32::try_from(index).ok()
    }
}

/// What an expression over siblings serves for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// Number of elements of an array.
    #[default]
    Size,
    /// Which elements are transmitted.
    Part,
    /// Discriminant of a union.
    Switch,
    /// Uuid of an interface reference.
    Iid,
}

/// A mention of a sibling, to be checked when all of them are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiblingUse {
    pub(super) owner: usize,
    pub(super) index: u32,
    /// Written `*name`.
    pub(super) starred: bool,
    pub(super) role: Role,
    pub(super) span: Span,
}
