//! The resolved interface model: what the front end hands to every back end and tool.
//!
//! It is the meaning of one IDL file after imports, name resolution, constant folding and the
//! application configuration file (ACF). It is not a syntax tree (`ast`): no names are left to
//! look up, no attribute is left to interpret. Read `docs/reference/idl-wire.md` first for how each
//! type travels, then `layout` for the sizes in place. A file is `module`, its types are
//! `types`, interfaces and operations `operations`; what COM declares and nothing can carry is
//! `declared`.

mod declared;
mod module;
mod operations;
mod types;

pub use declared::{
    Cause, ClassInterface, CoClass, DeclaredOperation, DeclaredType, DispInterface,
};
pub use module::{Library, Module, TypeDef};
pub use operations::{
    Allocate, Dir, Inproc, Interface, LocalAttrs, OnViolation, Operation, Param, Sync, Threshold,
    UserMarshal,
};
pub use types::{
    Arm, Array, BinaryOp, Const, ConstType, ConstValue, Doc, Encapsulation, Enum, EnumMember, Expr,
    Field, IntRange, InterfaceId, InterfaceRef, PtrClass, Scalar, StringTy, Struct, Ty, TypeId,
    TypeKind, UnaryOp, Union, Uuid, Version,
};
