//! One compiled file, and its named types. Not here: what a type is; see `types`.

use super::declared::{CoClass, DeclaredType, DispInterface};
use super::operations::{Interface, LocalAttrs};
use super::types::{Const, Doc, TypeKind, Uuid, Version};

/// One compiled IDL file with everything it imports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// File stem of the main file: `calc` for `calc.idl`.
    pub name: String,
    /// Path of the main file as given to the compiler.
    pub file: String,
    /// `library` name, version, uuid and documentation when the file has one.
    pub library: Option<Library>,
    /// Every named type, imported ones included, each after the types it needs by value.
    pub types: Vec<TypeDef>,
    /// Every interface, imported ones included, each after its base.
    pub interfaces: Vec<Interface>,
    /// Every constant, in declaration order.
    pub consts: Vec<Const>,
    /// Types that cannot travel, and are not among `types`.
    pub declared_types: Vec<DeclaredType>,
    /// Every `coclass`.
    pub classes: Vec<CoClass>,
    /// Every `dispinterface`.
    pub dispatches: Vec<DispInterface>,
    /// Texts of `cpp_quote`, in order; carried into C output only.
    pub cpp_quotes: Vec<String>,
    /// Header files that the ACF's `include` names: `"calc_local.h"`; for C output only.
    pub includes: Vec<String>,
    /// SHA-256 over IDL, imports and ACF, lower-case hexadecimal.
    pub hash: String,
    /// Every file read, the main one first, for `--depend`.
    pub sources: Vec<String>,
}

/// A `library` block.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Option<Uuid>,
    /// Its version.
    pub version: Version,
    /// Its documentation.
    pub doc: Doc,
}

/// A named type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeDef {
    /// Its name (typedef name, or tag where there is no typedef).
    pub name: String,
    /// Its documentation.
    pub doc: Doc,
    /// What it is.
    pub kind: TypeKind,
    /// Declared in an imported file.
    pub imported: bool,
    /// What the ACF says of it.
    pub local: LocalAttrs,
}
