//! Parameters and fields that name each other: `size_is`, `length_is`, `switch_is`.
//!
//! Where a counter or tag says nothing that the array or union does not say itself, it is *folded*:
//! it travels, but is no parameter or field in Rust. The rule is in `docs/reference/idl-rust.md`.

use crate::ir::{
    Allocate, BinaryOp, Dir, Expr, Field, IntRange, LocalAttrs, Operation, Param, Ty, UnaryOp,
};

use super::model::{Gen, Shape, limits};
use super::tokens::{Code, ident, num_of};
use proc_macro2::Ident;
use quote::quote;

/// A parameter or field.
#[derive(Clone, Debug)]
pub(super) struct Sibling<'a> {
    /// Its Rust name.
    pub(super) name: String,
    pub(super) ty: &'a Ty,
    pub(super) range: Option<IntRange>,
    /// `None` for fields.
    pub(super) dir: Option<Dir>,
    pub(super) ignore: bool,
    pub(super) acf: Option<&'a LocalAttrs>,
    /// Which sibling says the same.
    pub(super) folded: Option<Source>,
    /// `allocate(caller)`: the caller of the operation provides the array.
    pub(super) buffer: Option<Buffer>,
}

/// What a folded sibling is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Number of elements of the array.
    Len(usize),
    /// Tag of the union.
    Tag(usize),
}

/// What a caller provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    /// `&mut [T]`, filled completely.
    Slice,
    /// `&mut Vec<T>`, as many as there are.
    Vec,
}

impl Sibling<'_> {
    /// Its Rust name as code.
    pub(super) fn ident(&self) -> Ident {
        ident(&self.name)
    }

    pub(super) fn is_in(&self) -> bool {
        self.dir != Some(Dir::Out)
    }

    pub(super) fn is_out(&self) -> bool {
        matches!(self.dir, Some(Dir::Out | Dir::InOut))
    }
}

/// The fields of a structure.
pub(super) fn fields<'a>(g: &Gen<'a>, fields: &'a [Field]) -> Vec<Sibling<'a>> {
    let names = super::names::unique(fields.iter().map(|f| super::names::snake(&f.name)).collect());
    let mut list: Vec<Sibling<'a>> = fields
        .iter()
        .zip(names)
        .map(|(f, name)| Sibling {
            name,
            ty: &f.ty,
            range: f.range,
            dir: None,
            ignore: f.ignore,
            acf: None,
            folded: None,
            buffer: None,
        })
        .collect();
    fold(g, &mut list);
    list
}

/// The parameters of an operation. `deferred` operations have no buffers of their callers.
pub(super) fn params<'a>(g: &Gen<'a>, op: &'a Operation, deferred: bool) -> Vec<Sibling<'a>> {
    let params = &op.params;
    // The result is called `ret` where it stands among parameters.
    let result = op.result.iter().map(|_| "ret".to_owned());
    let given = params.iter().map(|p| super::names::snake(&p.name));
    let names = super::names::unique(result.chain(given).collect());
    let names = names.into_iter().skip(usize::from(op.result.is_some()));
    let mut list: Vec<Sibling<'a>> = params
        .iter()
        .zip(names)
        .map(|(p, name)| Sibling {
            name,
            ty: &p.ty,
            range: p.range,
            dir: Some(p.dir),
            ignore: false,
            acf: Some(&p.acf),
            folded: None,
            buffer: buffer(g, op, p).filter(|_| !deferred),
        })
        .collect();
    fold(g, &mut list);
    list
}

fn buffer(g: &Gen<'_>, op: &Operation, p: &Param) -> Option<Buffer> {
    let Ty::Array(array) = crate::layout::strip(g.module, &p.ty) else { return None };
    let pods = matches!(crate::layout::strip(g.module, &array.element), Ty::Scalar(s)
        if *s != crate::ir::Scalar::Bool);
    let allocate = p.acf.allocate.as_ref().or(op.acf.allocate.as_ref());
    if p.dir != Dir::Out || allocate != Some(&Allocate::Caller) || !pods {
        return None;
    }
    Some(if crate::layout::is_varying(array) { Buffer::Vec } else { Buffer::Slice })
}

fn fold(g: &Gen<'_>, list: &mut [Sibling<'_>]) {
    for index in 0..list.len() {
        if is_countable(g, &list[index]) {
            list[index].folded = (0..list.len()).find_map(|other| source(g, list, index, other));
        }
    }
}

fn is_countable(g: &Gen<'_>, sibling: &Sibling<'_>) -> bool {
    !sibling.ignore
        && match g.shape(sibling.ty) {
            Shape::Scalar(s) => limits(s).is_some() || s == crate::ir::Scalar::Bool,
            Shape::Enum(_) => true,
            _ => false,
        }
        && !sibling.acf.is_some_and(|a| a.comm_status || a.fault_status)
}

fn source(g: &Gen<'_>, list: &[Sibling<'_>], index: usize, other: usize) -> Option<Source> {
    let (one, two) = (&list[index], &list[other]);
    if two.ignore || index == other {
        return None;
    }
    let travels_along = match (one.dir, two.dir) {
        (Some(Dir::In), Some(Dir::Out)) => two.buffer == Some(Buffer::Slice),
        (Some(Dir::In), _) | (None, None) => true,
        (a, b) => a == b,
    };
    let is_one = |e: &Expr| matches!(e, Expr::Var { index: i, .. } if *i as usize == index);
    match g.shape(two.ty) {
        Shape::Array(array) if travels_along => {
            let counts = array.length.as_ref().unwrap_or(&array.size);
            (is_one(counts) && !matches!(g.shape(one.ty), Shape::Enum(_)))
                .then_some(Source::Len(other))
        }
        Shape::Union(_, Some(on)) if travels_along && is_one(on) && two.buffer.is_none() => {
            Some(Source::Tag(other))
        }
        _ => None,
    }
}

/// Writes an expression as Rust of type `i128`; `value` gives a sibling's, `None` where it is not
/// known.
pub(super) fn expr(e: &Expr, value: &dyn Fn(usize) -> Option<Code>) -> Option<Code> {
    Some(match e {
        Expr::Const(n) => num_of(*n, "i128"),
        Expr::Var { index, .. } => value(*index as usize)?,
        Expr::Unary(op, a) => {
            let a = expr(a, value)?;
            match op {
                UnaryOp::Neg => quote!(rt::expr::sub(0, #a)),
                UnaryOp::Not => quote!(!(#a)),
                UnaryOp::LogicalNot => quote!(i128::from((#a) == 0)),
            }
        }
        Expr::Binary(op, a, b) => binary(*op, &expr(a, value)?, &expr(b, value)?),
        Expr::Cond(c, a, b) => {
            let (c, a, b) = (expr(c, value)?, expr(a, value)?, expr(b, value)?);
            quote!(if (#c) != 0 { #a } else { #b })
        }
    })
}

fn binary(op: BinaryOp, a: &Code, b: &Code) -> Code {
    match op {
        BinaryOp::Add => quote!(rt::expr::add(#a, #b)),
        BinaryOp::Sub => quote!(rt::expr::sub(#a, #b)),
        BinaryOp::Mul => quote!(rt::expr::mul(#a, #b)),
        BinaryOp::Div => quote!(rt::expr::div(#a, #b)),
        BinaryOp::Rem => quote!(rt::expr::rem(#a, #b)),
        BinaryOp::Shl => quote!(rt::expr::shl(#a, #b)),
        BinaryOp::Shr => quote!(rt::expr::shr(#a, #b)),
        BinaryOp::And => quote!((#a & #b)),
        BinaryOp::Or => quote!((#a | #b)),
        BinaryOp::Xor => quote!((#a ^ #b)),
        BinaryOp::LogicalAnd => quote!(i128::from((#a) != 0 && (#b) != 0)),
        BinaryOp::LogicalOr => quote!(i128::from((#a) != 0 || (#b) != 0)),
        BinaryOp::Eq => quote!(i128::from((#a) == (#b))),
        BinaryOp::Ne => quote!(i128::from((#a) != (#b))),
        BinaryOp::Lt => quote!(i128::from((#a) < (#b))),
        BinaryOp::Le => quote!(i128::from((#a) <= (#b))),
        BinaryOp::Gt => quote!(i128::from((#a) > (#b))),
        BinaryOp::Ge => quote!(i128::from((#a) >= (#b))),
    }
}

/// A sibling that is not folded, in borrowed form `at`, as `i128`.
pub(super) fn number(g: &Gen<'_>, ty: &Ty, at: &Code) -> Option<Code> {
    match g.shape(ty) {
        Shape::Scalar(crate::ir::Scalar::F32 | crate::ir::Scalar::F64) => None,
        Shape::Scalar(_) => Some(quote!(i128::from(#at))),
        Shape::Enum(_) => Some(quote!(i128::from(#at as i32))),
        Shape::Unique(target) => match g.shape(target) {
            Shape::Scalar(s) if limits(s).is_some() => Some(quote!(#at.map_or(0, i128::from))),
            _ => None,
        },
        _ => None,
    }
}

/// Every sibling that the expression names.
pub(super) fn vars(e: &Expr, out: &mut Vec<usize>) {
    match e {
        Expr::Const(_) => {}
        Expr::Var { index, .. } => out.push(*index as usize),
        Expr::Unary(_, a) => vars(a, out),
        Expr::Binary(_, a, b) => {
            vars(a, out);
            vars(b, out);
        }
        Expr::Cond(c, a, b) => {
            vars(c, out);
            vars(a, out);
            vars(b, out);
        }
    }
}

/// Every sibling that the type's own expressions name (not those inside named structures).
pub(super) fn named_in(g: &Gen<'_>, ty: &Ty, out: &mut Vec<usize>) {
    match g.shape(ty) {
        Shape::Array(array) => {
            vars(&array.size, out);
            vars(&array.first, out);
            array.length.iter().for_each(|l| vars(l, out));
            named_in(g, &array.element, out);
        }
        Shape::Str(s) => s.bound.iter().for_each(|b| vars(b, out)),
        Shape::Union(_, Some(on)) => vars(on, out),
        Shape::Unique(t) | Shape::Shared(t) | Shape::Fixed(t, _) => named_in(g, t, out),
        _ => {}
    }
}
