//! What a file of COM declares and no message can carry, and why. Not here: what travels; see
//! `operations` and `types`.

use super::types::Uuid;
use crate::source::Span;

/// Why something is declared only, without stubs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The construct that is to blame, in a few words: `pointer to void`.
    pub construct: &'static str,
    /// One sentence: what it is about it.
    pub message: String,
    /// Where it stands.
    pub span: Span,
}

/// An operation without stubs. Its number stays taken.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredOperation {
    /// Its name.
    pub name: String,
    /// Its number in the interface's table.
    pub opnum: u16,
    /// Why it has no stubs.
    pub cause: Cause,
}

/// A type that cannot travel, or an arm of a union (`union.arm`) that has others.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredType {
    /// Its name.
    pub name: String,
    /// Declared in an imported file.
    pub imported: bool,
    /// Why it cannot travel.
    pub cause: Cause,
}

/// `coclass`: a class of objects, and the interfaces they have.
#[derive(Clone, Debug, PartialEq)]
pub struct CoClass {
    /// Its name.
    pub name: String,
    /// Its class identifier.
    pub uuid: Option<Uuid>,
    /// Its interfaces in order.
    pub interfaces: Vec<ClassInterface>,
    /// Declared in an imported file.
    pub imported: bool,
}

/// An interface of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassInterface {
    /// Its name; the interface need not be defined.
    pub name: String,
    /// `default`.
    pub is_default: bool,
    /// `source`: the object calls it, and others implement it.
    pub is_source: bool,
}

/// `dispinterface`: members that are called by number through `IDispatch::Invoke`.
#[derive(Clone, Debug, PartialEq)]
pub struct DispInterface {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub uuid: Option<Uuid>,
    /// Names of its properties and methods.
    pub members: Vec<String>,
    /// Declared in an imported file.
    pub imported: bool,
}
