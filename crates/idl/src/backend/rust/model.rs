//! The model as the Rust back end sees it: shapes instead of types, Rust names, what folds away.
//!
//! A [`Shape`] is a type with names, aliases and reference pointers looked through. Values appear
//! in generated code in two ways: *owned* (fields, elements, results) and *borrowed* (arguments).
//! The mapping is `docs/reference/idl-rust.md`.

use crate::ir::{
    Array, IntRange, Interface, InterfaceId, InterfaceRef, LocalAttrs, Module, Operation, PtrClass,
    Scalar, StringTy, Threshold, Ty, TypeId, TypeKind, UserMarshal,
};
use crate::layout::{self, Known};

use super::names;
use super::tokens::{Code, code, ident, num};
use proc_macro2::Ident;
use quote::{ToTokens, quote};

/// A type with names looked through.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Scalar(Scalar),
    Enum(TypeId),
    Struct(TypeId),
    /// The second is `switch_is`, `None` for encapsulated unions.
    Union(TypeId, Option<&'a crate::ir::Expr>),
    /// Size in bytes.
    Opaque(TypeId, u32),
    Handle(TypeId),
    Fixed(&'a Ty, u32),
    Array(&'a Array),
    Str(&'a StringTy),
    /// Pointer that may be null: `unique`, or any class to an array or string.
    Unique(&'a Ty),
    /// `ptr` pointer to an object.
    Shared(&'a Ty),
    Descriptor,
    Interface(&'a InterfaceRef),
    /// A named type with a hand-written conversion.
    Converted(TypeId),
}

/// Everything generation needs to know.
pub(super) struct Gen<'a> {
    pub(super) module: &'a Module,
    pub(super) options: &'a crate::backend::Options,
    pub(super) types: Vec<String>,
    /// The same as parts of other names.
    words: Vec<String>,
}

impl<'a> Gen<'a> {
    /// `module` has been through [`super::settle::settle`].
    pub(super) fn new(module: &'a Module, options: &'a crate::backend::Options) -> Self {
        let types = super::settle::types(module);
        let words = names::unique(types.iter().map(|t| names::plain_snake(t)).collect());
        Self { module, options, types, words }
    }

    /// Rust name of a named type.
    pub(super) fn type_name(&self, id: TypeId) -> &str {
        self.types.get(id.0 as usize).map_or("Unnamed", String::as_str)
    }

    /// The same as code.
    pub(super) fn type_code(&self, id: TypeId) -> Code {
        ident(self.type_name(id)).into_token_stream()
    }

    /// The same as part of another name.
    pub(super) fn type_words(&self, id: TypeId) -> &str {
        self.words.get(id.0 as usize).map_or("unnamed", String::as_str)
    }

    /// The same as the end of a generated function's name, which no parameter can have.
    pub(super) fn type_snake(&self, id: TypeId) -> String {
        format!("{}_", self.type_words(id))
    }

    pub(super) fn local(&self, id: TypeId) -> Option<&'a LocalAttrs> {
        self.module.types.get(id.0 as usize).map(|t| &t.local)
    }

    /// Looks through names, aliases and reference pointers.
    pub(super) fn shape<'t>(&self, ty: &'t Ty) -> Shape<'t>
    where
        'a: 't,
    {
        self.shape_of(ty, true)
    }

    /// The shape on the wire, conversion or not.
    pub(super) fn wire_shape(&self, id: TypeId) -> Shape<'a> {
        self.named(id, false)
    }

    fn shape_of<'t>(&self, ty: &'t Ty, convert: bool) -> Shape<'t>
    where
        'a: 't,
    {
        match ty {
            Ty::Scalar(s) => Shape::Scalar(*s),
            Ty::Named(id) => self.named(*id, convert),
            Ty::Union(id, on) => Shape::Union(*id, Some(on)),
            Ty::Fixed(element, n) => Shape::Fixed(element, *n),
            Ty::Array(array) => Shape::Array(array),
            Ty::String(s) => Shape::Str(s),
            Ty::Pointer(PtrClass::Ref, target) => self.shape_of(target, convert),
            Ty::Pointer(PtrClass::Ptr, target) if !layout::is_header(self.module, target) => {
                Shape::Shared(target)
            }
            Ty::Pointer(_, target) => Shape::Unique(target),
            Ty::Descriptor => Shape::Descriptor,
            Ty::Interface(reference) => Shape::Interface(reference),
        }
    }

    fn named(&self, id: TypeId, convert: bool) -> Shape<'a> {
        let converted =
            self.local(id).is_some_and(|l| l.user_marshal.is_some() || l.represent_as.is_some());
        if convert && converted {
            return Shape::Converted(id);
        }
        match layout::kind(self.module, id) {
            Some(TypeKind::Alias(target)) => self.shape_of(target, convert),
            Some(TypeKind::Enum(_)) => Shape::Enum(id),
            Some(TypeKind::Struct(_)) | None => Shape::Struct(id),
            Some(TypeKind::Union(_)) => Shape::Union(id, None),
            Some(TypeKind::Opaque { size, .. }) => Shape::Opaque(id, *size),
            Some(TypeKind::ContextHandle) => Shape::Handle(id),
        }
    }

    /// Bytes in place.
    pub(super) fn size(&self, ty: &Ty) -> u64 {
        layout::in_place(self.module, ty).size
    }

    /// The local type, and the functions that convert, of a converted named type.
    pub(super) fn conversion(&self, id: TypeId) -> Conversion {
        let local = self.local(id);
        if let Some(UserMarshal { local_type, functions }) =
            local.and_then(|l| l.user_marshal.as_ref())
        {
            let functions = code(functions);
            return Conversion {
                local: code(local_type),
                to_wire: quote!(#functions::to_wire),
                from_wire: quote!(#functions::from_wire),
            };
        }
        let wire = self.owned_shape(self.wire_shape(id));
        let given = local.and_then(|l| l.represent_as.as_ref());
        let local = given.map_or_else(|| wire.clone(), |given| code(given));
        Conversion {
            to_wire: quote!(<#wire as From<&#local>>::from),
            from_wire: quote!(<#local as rt::Represent<#wire>>::represent),
            local,
        }
    }

    /// Rust type of an owned value.
    pub(super) fn owned(&self, ty: &Ty) -> Code {
        self.owned_shape(self.shape(ty))
    }

    pub(super) fn owned_shape(&self, shape: Shape<'_>) -> Code {
        match shape {
            Shape::Scalar(s) => scalar(s),
            Shape::Enum(id)
            | Shape::Struct(id)
            | Shape::Union(id, _)
            | Shape::Opaque(id, _)
            | Shape::Handle(id) => self.type_code(id),
            Shape::Fixed(element, n) => {
                let (element, n) = (self.owned(element), num(n));
                quote!([#element; #n])
            }
            Shape::Array(array) => {
                let element = self.owned(&array.element);
                quote!(Vec<#element>)
            }
            Shape::Str(s) if s.wide => quote!(Vec<u16>),
            Shape::Str(_) => quote!(std::ffi::CString),
            Shape::Unique(target) => match self.shape(target) {
                header @ (Shape::Array(_) | Shape::Str(_)) => {
                    let header = self.owned_shape(header);
                    quote!(Option<#header>)
                }
                target => {
                    let target = self.owned_shape(target);
                    quote!(Option<Box<#target>>)
                }
            },
            Shape::Shared(target) => {
                let target = self.owned(target);
                quote!(Option<rt::Shared<#target>>)
            }
            Shape::Descriptor => quote!(rt::Descriptor),
            Shape::Interface(_) => quote!(Option<rt::Interface>),
            Shape::Converted(id) => self.conversion(id).local,
        }
    }

    /// Rust type of a borrowed value; `life` is a lifetime or nothing.
    pub(super) fn borrowed(&self, shape: Shape<'_>, life: &Code) -> Code {
        match shape {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => self.owned_shape(shape),
            Shape::Array(array) => {
                let element = self.owned(&array.element);
                quote!(&#life [#element])
            }
            Shape::Str(s) if s.wide => quote!(&#life [u16]),
            Shape::Str(_) => quote!(&#life std::ffi::CStr),
            Shape::Unique(target) => {
                let target = self.borrowed(self.shape(target), life);
                quote!(Option<#target>)
            }
            Shape::Descriptor if life.is_empty() => quote!(Option<std::os::fd::BorrowedFd<'_>>),
            Shape::Descriptor => quote!(Option<std::os::fd::BorrowedFd<#life>>),
            Shape::Interface(_) => quote!(Option<&#life rt::Interface>),
            other => {
                let owned = self.owned_shape(other);
                quote!(&#life #owned)
            }
        }
    }

    /// The borrowed form of the owned value at a place.
    pub(super) fn borrow(&self, shape: Shape<'_>, place: &Operand) -> Code {
        let at = place.receiver();
        match shape {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => place.value(),
            Shape::Array(_) => quote!(#at.as_slice()),
            Shape::Str(s) if s.wide => quote!(#at.as_slice()),
            Shape::Str(_) => quote!(#at.as_c_str()),
            Shape::Unique(target) => match self.shape(target) {
                Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => {
                    quote!(#at.as_deref().copied())
                }
                inner @ (Shape::Unique(_) | Shape::Descriptor | Shape::Interface(_)) => {
                    let inner = self.borrow(inner, &Operand::Item);
                    quote!(#at.as_deref().map(|x_| #inner))
                }
                _ => quote!(#at.as_deref()),
            },
            Shape::Descriptor => quote!(#at.as_fd()),
            Shape::Interface(_) => quote!(#at.as_ref()),
            _ => place.reference(),
        }
    }

    /// Returns true if elements of this shape are moved as memory.
    pub(super) fn is_pod(shape: Shape<'_>) -> bool {
        matches!(shape, Shape::Scalar(s) if s != Scalar::Bool)
    }

    /// Returns true if values of this shape have secondary objects.
    pub(super) fn has_objects(&self, ty: &Ty) -> bool {
        !layout::is_fixed(self.module, ty)
    }

    /// Returns true if values of this shape are looked at before they are sent.
    pub(super) fn is_measured(&self, ty: &Ty) -> bool {
        self.is_measured_of(self.shape(ty), &mut Known::default())
    }

    pub(super) fn is_measured_of(&self, shape: Shape<'_>, known: &mut Known<bool>) -> bool {
        match shape {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Opaque(..) | Shape::Handle(_) => false,
            Shape::Fixed(element, _) => self.is_measured_of(self.shape(element), known),
            Shape::Struct(id) => known.of(id, false, |known| match layout::kind(self.module, id) {
                Some(TypeKind::Struct(s)) => s
                    .fields
                    .iter()
                    .any(|f| f.range.is_some() || self.is_measured_of(self.shape(&f.ty), known)),
                _ => false,
            }),
            Shape::Converted(id) => self.is_measured_of(self.wire_shape(id), known),
            _ => true,
        }
    }

    /// Returns true if a Rust value of this shape can be `Copy`.
    pub(super) fn is_copy(&self, ty: &Ty) -> bool {
        self.is_copy_of(ty, &mut Known::default())
    }

    fn is_copy_of(&self, ty: &Ty, known: &mut Known<bool>) -> bool {
        match self.shape(ty) {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => true,
            Shape::Opaque(_, size) => size <= 64,
            Shape::Fixed(element, n) => n <= 64 && self.is_copy_of(element, known),
            Shape::Struct(id) => known.of(id, false, |known| match layout::kind(self.module, id) {
                Some(TypeKind::Struct(s)) => {
                    s.fields.iter().all(|f| !f.ignore && self.is_copy_of(&f.ty, known))
                }
                _ => false,
            }),
            _ => false,
        }
    }

    pub(super) fn interface(&self, id: InterfaceId) -> Option<&'a Interface> {
        self.module.interfaces.get(id.0 as usize)
    }

    /// Every operation of an interface, those of its bases first.
    pub(super) fn operations(&self, interface: &'a Interface) -> Vec<&'a Operation> {
        let mut all = match interface.base.and_then(|base| self.interface(base)) {
            Some(base) => self.operations(base),
            None => Vec::new(),
        };
        all.extend(&interface.operations);
        all
    }
}

/// How a converted type is converted.
pub(super) struct Conversion {
    pub(super) local: Code,
    /// `&local` → wire type.
    pub(super) to_wire: Code,
    /// Wire type → `Option<local>`.
    pub(super) from_wire: Code,
}

/// Where generated code has an owned value.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    /// Behind the reference `x_`, the element or target at hand.
    Item,
    /// Behind another reference.
    Behind(Ident),
    /// In a variable or field.
    At(Code),
}

impl Operand {
    /// As a receiver of methods.
    fn receiver(&self) -> Code {
        match self {
            Self::Item => quote!((*x_)),
            Self::Behind(name) => quote!((*#name)),
            Self::At(at) => at.clone(),
        }
    }

    /// As a value that is copied.
    fn value(&self) -> Code {
        match self {
            Self::Item => quote!(*x_),
            Self::Behind(name) => quote!(*#name),
            Self::At(at) => at.clone(),
        }
    }

    /// A reference to the value.
    fn reference(&self) -> Code {
        let at = self.receiver();
        if matches!(self, Self::Item) { quote!(x_) } else { quote!(&#at) }
    }

    /// The value as a receiver of `as_ref`, for what is no part of the model.
    pub(super) fn as_ref(&self) -> Code {
        let at = self.receiver();
        quote!(#at.as_ref())
    }
}

/// Rust type of a scalar.
pub(super) fn scalar(s: Scalar) -> Code {
    ident(match s {
        Scalar::Bool => "bool",
        Scalar::Char | Scalar::Byte | Scalar::U8 => "u8",
        Scalar::WChar | Scalar::U16 => "u16",
        Scalar::I8 => "i8",
        Scalar::I16 => "i16",
        Scalar::I32 => "i32",
        Scalar::U32 | Scalar::ErrorStatus => "u32",
        Scalar::I64 => "i64",
        Scalar::U64 => "u64",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
    })
    .into_token_stream()
}

/// Least and greatest value of an integer type; `None` for booleans and floating point.
pub(super) fn limits(s: Scalar) -> Option<IntRange> {
    let unsigned = |bits: u32| Some(IntRange::new(0, (1 << bits) - 1));
    let signed = |bits: u32| Some(IntRange::new(-(1 << (bits - 1)), (1 << (bits - 1)) - 1));
    match s {
        Scalar::Bool | Scalar::F32 | Scalar::F64 => None,
        Scalar::Char | Scalar::Byte | Scalar::U8 => unsigned(8),
        Scalar::WChar | Scalar::U16 => unsigned(16),
        Scalar::U32 | Scalar::ErrorStatus => unsigned(32),
        Scalar::U64 => unsigned(64),
        Scalar::I8 => signed(8),
        Scalar::I16 => signed(16),
        Scalar::I32 => signed(32),
        Scalar::I64 => signed(64),
    }
}

/// The threshold that the most specific configuration sets.
pub(super) fn threshold(attrs: &[Option<&LocalAttrs>]) -> Threshold {
    attrs.iter().flatten().find_map(|a| a.reference_above).unwrap_or(Threshold::Auto)
}
