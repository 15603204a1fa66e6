//! Questions the C back end asks of the model: how a type lies in memory, what must be looked at.
//! Sizes and offsets on the wire are `layout`'s.

use std::collections::HashSet;

use crate::ir::{
    Array, Expr, Module, Operation, Param, PtrClass, Scalar, Ty, TypeDef, TypeId, TypeKind,
};
use crate::layout::{self, Known};

use super::text::path;

/// Hand-written conversion: the local type and the prefix of its functions.
pub(super) struct Marshal {
    pub(super) local: String,
    pub(super) prefix: String,
}

/// How C passes a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// As it is; arrays and strings are pointers.
    Value,
    /// By pointer.
    Pointer,
    /// A fixed array, which C turns into a pointer to its first element.
    Decayed,
    /// An array or string that the reply fills: the caller's buffer.
    Buffer,
}

#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) m: &'a Module,
}

impl<'a> Model<'a> {
    pub(super) fn def(self, id: TypeId) -> Option<&'a TypeDef> {
        self.m.types.get(id.0 as usize)
    }

    pub(super) fn type_name(self, id: TypeId) -> String {
        self.def(id).map_or_else(String::new, |d| d.name.clone())
    }

    /// What may stand in front of the name of a structure, a union or an enumeration; `None` for
    /// names that have none or whose memory has another type.
    pub(super) fn keyword(self, id: TypeId) -> Option<&'static str> {
        let def = self.def(id).filter(|_| self.marshal(id).is_none())?;
        match &def.kind {
            TypeKind::Enum(_) => Some("enum"),
            TypeKind::Struct(_) => Some("struct"),
            TypeKind::Union(u) if u.encapsulated.is_some() => Some("struct"),
            TypeKind::Union(_) => Some("union"),
            TypeKind::Alias(_) | TypeKind::Opaque { .. } | TypeKind::ContextHandle => None,
        }
    }

    pub(super) fn marshal(self, id: TypeId) -> Option<Marshal> {
        let def = self.def(id)?;
        if let Some(u) = &def.local.user_marshal {
            return Some(Marshal { local: u.local_type.clone(), prefix: path(&u.functions) });
        }
        let local = def.local.represent_as.clone()?;
        Some(Marshal { local, prefix: def.name.clone() })
    }

    /// Through aliases, but not through one with a conversion of its own.
    pub(super) fn resolve<'t>(self, ty: &'t Ty) -> &'t Ty
    where
        'a: 't,
    {
        let mut ty = ty;
        while let Ty::Named(id) = ty {
            match self.def(*id).map(|d| &d.kind) {
                Some(TypeKind::Alias(inner)) if self.marshal(*id).is_none() => ty = inner,
                _ => break,
            }
        }
        ty
    }

    /// The type behind every alias, conversions or not.
    pub(super) fn strip<'t>(self, ty: &'t Ty) -> &'t Ty
    where
        'a: 't,
    {
        layout::strip(self.m, ty)
    }

    pub(super) fn size(self, ty: &Ty) -> u64 {
        layout::in_place(self.m, ty).size
    }

    /// Lies in the memory of a C program as on the wire, but for the contents of padding.
    pub(super) fn has_wire_layout(self, ty: &Ty) -> bool {
        self.has_wire_layout_within(ty, &mut Known::default())
    }

    fn has_wire_layout_within(self, ty: &Ty, known: &mut Known<bool>) -> bool {
        match ty {
            Ty::Scalar(_) => true,
            Ty::Fixed(element, _) => self.has_wire_layout_within(element, known),
            Ty::Named(id) => known.of(*id, false, |known| {
                self.marshal(*id).is_none()
                    && match self.def(*id).map(|d| &d.kind) {
                        Some(TypeKind::Alias(inner)) => self.has_wire_layout_within(inner, known),
                        Some(TypeKind::Enum(_) | TypeKind::Opaque { .. }) => true,
                        Some(TypeKind::Struct(s)) => {
                            let has_wire_layout =
                                |f: &crate::ir::Field, known: &mut Known<bool>| {
                                    !f.ignore && self.has_wire_layout_within(&f.ty, known)
                                };
                            !s.fields.is_empty()
                                && s.fields.iter().all(|f| has_wire_layout(f, known))
                        }
                        _ => false,
                    }
            }),
            _ => false,
        }
    }

    /// Plain, and some bytes are not acceptable: must be checked on receipt.
    pub(super) fn is_checked(self, ty: &Ty) -> bool {
        !layout::is_flat(self.m, ty)
    }

    /// Plain and without padding: memory can be copied as it is.
    pub(super) fn is_dense(self, ty: &Ty) -> bool {
        self.is_dense_of(ty, &mut Known::default())
    }

    fn is_dense_of(self, ty: &Ty, known: &mut Known<bool>) -> bool {
        match self.strip(ty) {
            Ty::Fixed(element, _) => self.is_dense_of(element, known),
            Ty::Named(id) => known.of(*id, true, |known| match self.def(*id).map(|d| &d.kind) {
                Some(TypeKind::Struct(s)) => {
                    layout::struct_layout(self.m, s).padding.is_empty()
                        && s.fields.iter().all(|f| self.is_dense_of(&f.ty, known))
                }
                _ => true,
            }),
            _ => true,
        }
    }

    /// May have secondary objects.
    pub(super) fn has_more(self, ty: &Ty) -> bool {
        !layout::is_fixed(self.m, ty)
    }

    /// Strings and conformant or varying arrays, whatever pointers are around them.
    pub(super) fn is_header(self, ty: &Ty) -> bool {
        matches!(self.strip(ty), Ty::Array(_) | Ty::String(_))
    }

    /// Returns true if converted values occur in it.
    pub(super) fn has_marshal(self, ty: &Ty) -> bool {
        self.any(ty, &|t| matches!(t, Ty::Named(id) if self.marshal(*id).is_some()))
    }

    pub(super) fn has_ptr(self, ty: &Ty) -> bool {
        self.any(ty, &|t| matches!(t, Ty::Pointer(PtrClass::Ptr, _)))
    }

    pub(super) fn has_descriptor(self, ty: &Ty) -> bool {
        self.any(ty, &|t| matches!(t, Ty::Descriptor | Ty::Interface(_)))
    }

    /// Returns true if `what` holds for a type in `ty`, itself included.
    pub(super) fn any(self, ty: &Ty, what: &dyn Fn(&Ty) -> bool) -> bool {
        let mut seen = HashSet::new();
        self.any_of(ty, what, &mut seen)
    }

    fn any_of(self, ty: &Ty, what: &dyn Fn(&Ty) -> bool, seen: &mut HashSet<TypeId>) -> bool {
        if what(ty) {
            return true;
        }
        match ty {
            Ty::Fixed(t, _) | Ty::Pointer(_, t) => self.any_of(t, what, seen),
            Ty::Array(a) => self.any_of(&a.element, what, seen),
            Ty::Named(id) | Ty::Union(id, _) => {
                if !seen.insert(*id) {
                    return false;
                }
                match self.def(*id).map(|d| &d.kind) {
                    Some(TypeKind::Alias(t)) => self.any_of(t, what, seen),
                    Some(TypeKind::Struct(s)) => {
                        s.fields.iter().any(|f| self.any_of(&f.ty, what, seen))
                    }
                    Some(TypeKind::Union(u)) => u
                        .arms
                        .iter()
                        .filter_map(|a| a.field.as_ref())
                        .any(|f| self.any_of(&f.ty, what, seen)),
                    _ => false,
                }
            }
            _ => false,
        }
    }

    pub(super) fn passing(self, op: &Operation, p: &Param) -> Passing {
        let ty = self.resolve(&p.ty);
        if p.by_pointer {
            return Passing::Pointer;
        }
        match ty {
            Ty::Fixed(..) => Passing::Decayed,
            Ty::Array(a) if p.is_out() && self.is_known_by_caller(op, &a.size) => Passing::Buffer,
            Ty::String(s) if p.is_out() => match &s.bound {
                Some(b) if self.is_known_by_caller(op, b) => Passing::Buffer,
                None if p.is_in() => Passing::Buffer,
                _ => Passing::Pointer,
            },
            _ if p.is_out() => Passing::Pointer,
            _ => Passing::Value,
        }
    }

    /// Returns true if an expression mentions only what the request carries.
    pub(super) fn is_known_by_caller(self, op: &Operation, e: &Expr) -> bool {
        let mut known = true;
        visit_vars(e, &mut |i| {
            known &= op.params.get(i as usize).is_some_and(Param::is_in);
        });
        known
    }

    /// Number of the target among the targets of `ptr` pointers, for checking references.
    pub(super) fn tag(self, ty: &Ty) -> u32 {
        match self.strip(ty) {
            Ty::Named(id) => id.0,
            Ty::Scalar(s) => 0x8000_0000 | scalar_code(*s),
            other => {
                let text = format!("{other:?}");
                let hash = text
                    .bytes()
                    .fold(0x811C_9DC5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
                0x4000_0000 | (hash & 0x3FFF_FFFF)
            }
        }
    }
}

/// Calls `f` with the index of every sibling that `e` mentions.
pub(super) fn visit_vars(e: &Expr, f: &mut dyn FnMut(u32)) {
    match e {
        Expr::Const(_) => {}
        Expr::Var { index, .. } => f(*index),
        Expr::Unary(_, a) => visit_vars(a, f),
        Expr::Binary(_, a, b) => {
            visit_vars(a, f);
            visit_vars(b, f);
        }
        Expr::Cond(a, b, c) => {
            visit_vars(a, f);
            visit_vars(b, f);
            visit_vars(c, f);
        }
    }
}

/// Expressions of the type itself, not of named types in it.
pub(super) fn visit_exprs<'t>(ty: &'t Ty, f: &mut dyn FnMut(&'t Expr)) {
    match ty {
        Ty::Fixed(t, _) | Ty::Pointer(_, t) => visit_exprs(t, f),
        Ty::Array(a) => {
            let Array { element, size, first, length } = &**a;
            f(size);
            f(first);
            if let Some(l) = length {
                f(l);
            }
            visit_exprs(element, f);
        }
        Ty::String(s) => {
            if let Some(b) = &s.bound {
                f(b);
            }
        }
        Ty::Union(_, e) => f(e),
        _ => {}
    }
}

fn scalar_code(s: Scalar) -> u32 {
    match s {
        Scalar::Bool => 0,
        Scalar::Char => 1,
        Scalar::WChar => 2,
        Scalar::Byte => 3,
        Scalar::I8 => 4,
        Scalar::U8 => 5,
        Scalar::I16 => 6,
        Scalar::U16 => 7,
        Scalar::I32 => 8,
        Scalar::U32 => 9,
        Scalar::I64 => 10,
        Scalar::U64 => 11,
        Scalar::F32 => 12,
        Scalar::F64 => 13,
        Scalar::ErrorStatus => 14,
    }
}
