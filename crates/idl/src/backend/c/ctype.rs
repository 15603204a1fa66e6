//! C declarations: the declarator of an object of any type, and of parameters.

use crate::ir::{Operation, Param, Scalar, Ty};

use super::model::{Model, Passing};

pub(super) const fn scalar_name(s: Scalar) -> &'static str {
    match s {
        Scalar::Bool => "bool",
        Scalar::Char => "char",
        Scalar::WChar | Scalar::U16 => "uint16_t",
        Scalar::Byte | Scalar::U8 => "uint8_t",
        Scalar::I8 => "int8_t",
        Scalar::I16 => "int16_t",
        Scalar::I32 => "int32_t",
        Scalar::U32 | Scalar::ErrorStatus => "uint32_t",
        Scalar::I64 => "int64_t",
        Scalar::U64 => "uint64_t",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
    }
}

fn join(base: &str, inner: &str) -> String {
    if inner.is_empty() { base.to_owned() } else { format!("{base} {inner}") }
}

fn group(inner: &str) -> String {
    if inner.starts_with('*') { format!("({inner})") } else { inner.to_owned() }
}

impl Model<'_> {
    /// `ty inner`: an object called `inner`, or with `*` in front of it a pointer to one.
    pub(super) fn decl(self, ty: &Ty, inner: &str) -> String {
        match ty {
            Ty::Scalar(s) => join(scalar_name(*s), inner),
            Ty::Named(id) => match self.marshal(*id) {
                Some(m) => join(&m.local, inner),
                None => join(&self.type_name(*id), inner),
            },
            Ty::Union(id, _) => join(&self.type_name(*id), inner),
            Ty::Fixed(e, n) => self.decl(e, &format!("{}[{n}]", group(inner))),
            Ty::Array(a) => self.decl(&a.element, &format!("*{inner}")),
            Ty::String(s) => join(if s.wide { "uint16_t" } else { "char" }, &format!("*{inner}")),
            Ty::Pointer(_, t) if self.is_header(t) => self.decl(t, inner),
            Ty::Pointer(_, t) => match &**t {
                Ty::Fixed(e, _) => self.decl(e, &format!("*{inner}")),
                _ => self.decl(t, &format!("*{inner}")),
            },
            Ty::Descriptor => join("int", inner),
            Ty::Interface(_) => join("sj_interface_ref", inner),
        }
    }

    /// The name of the type, for casts and `sizeof`.
    pub(super) fn name(self, ty: &Ty) -> String {
        self.decl(ty, "")
    }

    /// `T *` for a pointer to `ty`; to its first element if it is a fixed array.
    pub(super) fn pointer(self, ty: &Ty) -> String {
        match ty {
            Ty::Fixed(e, _) => self.decl(e, "*"),
            _ => self.decl(ty, "*"),
        }
    }

    /// What the pointer `lv` points to, as something that can be assigned or indexed.
    pub(super) fn target(self, ty: &Ty, lv: &str) -> String {
        match ty {
            Ty::Fixed(..) => lv.to_owned(),
            _ => format!("(*{lv})"),
        }
    }

    /// Returns true if a pointer to it may be `const` for callers: nothing to follow in it.
    fn is_const_target(self, ty: &Ty) -> bool {
        !matches!(self.resolve(ty), Ty::Fixed(..) | Ty::Array(_) | Ty::String(_) | Ty::Pointer(..))
    }

    /// A parameter as the client function and the implementation have it.
    pub(super) fn param_decl(self, op: &Operation, p: &Param) -> String {
        let text = self.member_decl(op, p);
        let pointee = match (self.passing(op, p), self.resolve(&p.ty)) {
            (Passing::Pointer, _) => Some(&p.ty),
            (Passing::Decayed, Ty::Fixed(e, _)) => Some(&**e),
            (_, Ty::Array(a)) => Some(&a.element),
            (_, Ty::Pointer(_, t)) if !self.is_header(t) => match &**t {
                Ty::Fixed(e, _) => Some(&**e),
                other => Some(other),
            },
            (_, Ty::Pointer(_, t)) => match self.strip(t) {
                Ty::Array(a) => Some(&a.element),
                _ => None,
            },
            _ => None,
        };
        let direct = !matches!(&p.ty, Ty::Named(_)) || self.passing(op, p) == Passing::Pointer;
        let by_value = self.passing(op, p) == Passing::Value;
        let is_string = match self.resolve(&p.ty) {
            Ty::String(_) => by_value,
            Ty::Pointer(_, t) => by_value && matches!(self.strip(t), Ty::String(_)),
            _ => false,
        };
        let deep = pointee.is_some_and(|t| self.is_const_target(t));
        let is_const = !p.is_out()
            && direct
            && (is_string && matches!(&p.ty, Ty::String(_) | Ty::Pointer(..)) || deep);
        // A typedef in front of the star would make the pointer const instead of its target.
        let hidden =
            matches!(&p.ty, Ty::Pointer(_, t) if matches!(&**t, Ty::Named(_)) && self.is_header(t));
        if is_const && !hidden { format!("const {text}") } else { text }
    }

    /// The same without `const`, as the members of the argument structure are.
    pub(super) fn member_decl(self, op: &Operation, p: &Param) -> String {
        let name = &p.name;
        match self.passing(op, p) {
            Passing::Value | Passing::Buffer => self.decl(&p.ty, name),
            Passing::Pointer => self.decl(&p.ty, &format!("*{name}")),
            Passing::Decayed => match self.resolve(&p.ty) {
                Ty::Fixed(e, _) => self.decl(e, &format!("*{name}")),
                other => self.decl(other, &format!("*{name}")),
            },
        }
    }
}

/// Parameter list of an operation's client function and of its implementation, without the first
/// ones.
pub(super) fn params(model: Model<'_>, op: &Operation) -> Vec<String> {
    let mut all: Vec<String> = op.params.iter().map(|p| model.param_decl(op, p)).collect();
    if let Some(ty) = &op.result {
        all.push(model.decl(ty, &format!("*{}", result_name(op))));
    }
    all
}

/// What the parameter for the result is called.
pub(super) fn result_name(op: &Operation) -> &'static str {
    if op.params.iter().any(|p| p.name == "result") { "sj_result" } else { "result" }
}
