//! How large a body can get: bounds from constants, ranges and narrow integers.

use super::in_place::{
    OBJECT_ALIGN, in_place, is_header, kind, reply_layout, request_layout, round_up, strip,
};
use super::known::Known;
use crate::ir::{
    Array, BinaryOp, Expr, Field, IntRange, Module, Operation, PtrClass, Scalar, Struct, Ty,
    TypeKind, Union,
};

/// Largest body of a request with every array in form 1; `None` if the interface sets no bound.
#[must_use]
pub fn request_size_max(module: &Module, operation: &Operation) -> Option<u64> {
    let travelling = operation.params.iter().filter(|p| p.is_in()).map(|p| &p.ty);
    body_size_max(module, operation, request_layout(module, operation).size, travelling)
}

/// Largest body of a reply with every array in form 1; `None` if the interface sets no bound.
#[must_use]
pub fn reply_size_max(module: &Module, operation: &Operation) -> Option<u64> {
    let out = operation.params.iter().filter(|p| p.is_out()).map(|p| &p.ty);
    let travelling = operation.result.iter().chain(out);
    body_size_max(module, operation, reply_layout(module, operation).size, travelling)
}

fn body_size_max<'a>(
    module: &Module,
    operation: &Operation,
    primary: u64,
    travelling: impl Iterator<Item = &'a Ty>,
) -> Option<u64> {
    let siblings = |i: u32| {
        let p = operation.params.get(i as usize)?;
        p.range.or_else(|| scalar_range(module, &p.ty))
    };
    let (mut total, mut known) = (primary, Known::default());
    for ty in travelling {
        total = total.checked_add(out_of_line_max(module, ty, &siblings, 0, &mut known)?)?;
    }
    Some(total)
}

/// The values that the siblings can have, by their numbers.
pub(super) type Siblings<'a> = &'a dyn Fn(u32) -> Option<IntRange>;

/// Largest number of bytes of the secondary objects of one value of `ty`.
pub(super) fn out_of_line_max(
    module: &Module,
    ty: &Ty,
    siblings: Siblings<'_>,
    depth: u32,
    known: &mut Known<Option<u64>>,
) -> Option<u64> {
    if depth > 32 {
        return None;
    }
    match ty {
        Ty::Scalar(_) | Ty::Descriptor | Ty::Interface(_) => Some(0),
        Ty::Fixed(element, n) => {
            let one = out_of_line_max(module, element, siblings, depth + 1, known)?;
            one.checked_mul(u64::from(*n))
        }
        Ty::Array(array) => array_max(module, array, siblings, depth, known),
        Ty::String(s) => {
            let characters = u64::try_from(interval(s.bound.as_ref()?, siblings)?.high).ok()?;
            Some(round_up(characters.checked_mul(if s.wide { 2 } else { 1 })?, OBJECT_ALIGN))
        }
        Ty::Pointer(PtrClass::Ref, t) => out_of_line_max(module, t, siblings, depth + 1, known),
        Ty::Pointer(_, t) if is_header(module, t) => {
            out_of_line_max(module, t, siblings, depth + 1, known)
        }
        Ty::Pointer(_, t) => object_max(module, t, siblings, depth, known),
        Ty::Union(id, _) | Ty::Named(id) => match kind(module, *id)? {
            TypeKind::Alias(t) => out_of_line_max(module, t, siblings, depth + 1, known),
            TypeKind::Struct(s) => known.of(*id, None, |known| fields_max(module, s, depth, known)),
            TypeKind::Union(u) => known.of(*id, None, |known| union_max(module, u, depth, known)),
            TypeKind::Enum(_) | TypeKind::Opaque { .. } | TypeKind::ContextHandle => Some(0),
        },
    }
}

/// `ty` as a secondary object, with its own secondary objects.
fn object_max(
    module: &Module,
    ty: &Ty,
    siblings: Siblings<'_>,
    depth: u32,
    known: &mut Known<Option<u64>>,
) -> Option<u64> {
    let own = round_up(in_place(module, ty).size, OBJECT_ALIGN);
    own.checked_add(out_of_line_max(module, ty, siblings, depth + 1, known)?)
}

fn array_max(
    module: &Module,
    array: &Array,
    siblings: Siblings<'_>,
    depth: u32,
    known: &mut Known<Option<u64>>,
) -> Option<u64> {
    let size = interval(&array.size, siblings)?.high;
    let sent = array.length.as_ref().and_then(|l| interval(l, siblings)).map_or(size, |l| l.high);
    let n = u64::try_from(sent.min(size).max(0)).ok()?;
    let elements = round_up(n.checked_mul(in_place(module, &array.element).size)?, OBJECT_ALIGN);
    let rest = out_of_line_max(module, &array.element, siblings, depth + 1, known)?;
    elements.checked_add(rest.checked_mul(n)?)
}

fn fields_max(
    module: &Module,
    s: &Struct,
    depth: u32,
    known: &mut Known<Option<u64>>,
) -> Option<u64> {
    let siblings = |i: u32| {
        let f: &Field = s.fields.get(i as usize)?;
        f.range.or_else(|| scalar_range(module, &f.ty))
    };
    s.fields.iter().filter(|f| !f.ignore).try_fold(0_u64, |sum, f| {
        sum.checked_add(out_of_line_max(module, &f.ty, &siblings, depth + 1, known)?)
    })
}

fn union_max(
    module: &Module,
    u: &Union,
    depth: u32,
    known: &mut Known<Option<u64>>,
) -> Option<u64> {
    let none = |_: u32| None;
    u.arms
        .iter()
        .filter_map(|a| a.field.as_ref())
        .try_fold(0_u64, |max, f| Some(max.max(object_max(module, &f.ty, &none, depth, known)?)))
}

/// Values a scalar of at most 16 bits can have. Wider ones count as unbounded: a body of
/// gigabytes is no bound.
fn scalar_range(module: &Module, ty: &Ty) -> Option<IntRange> {
    let Ty::Scalar(scalar) = strip(module, ty) else { return None };
    match scalar {
        Scalar::Bool => Some(IntRange::new(0, 1)),
        Scalar::Char | Scalar::Byte | Scalar::U8 => Some(IntRange::new(0, 0xFF)),
        Scalar::I8 => Some(IntRange::new(-0x80, 0x7F)),
        Scalar::WChar | Scalar::U16 => Some(IntRange::new(0, 0xFFFF)),
        Scalar::I16 => Some(IntRange::new(-0x8000, 0x7FFF)),
        _ => None,
    }
}

/// Least and greatest value of `expr`, for the operators that sizes are made of.
fn interval(expr: &Expr, siblings: Siblings<'_>) -> Option<IntRange> {
    match expr {
        Expr::Const(n) => Some(IntRange::new(*n, *n)),
        Expr::Var { index, .. } => siblings(*index),
        Expr::Binary(op, a, b) => {
            let (a, b) = (interval(a, siblings)?, interval(b, siblings)?);
            interval_of(*op, a, b)
        }
        Expr::Cond(_, a, b) => {
            let (a, b) = (interval(a, siblings)?, interval(b, siblings)?);
            Some(IntRange::new(a.low.min(b.low), a.high.max(b.high)))
        }
        Expr::Unary(..) => None,
    }
}

fn interval_of(op: BinaryOp, a: IntRange, b: IntRange) -> Option<IntRange> {
    let (low, high) = match op {
        BinaryOp::Add => (a.low.checked_add(b.low)?, a.high.checked_add(b.high)?),
        BinaryOp::Sub => (a.low.checked_sub(b.high)?, a.high.checked_sub(b.low)?),
        BinaryOp::Mul if a.low >= 0 && b.low >= 0 => {
            (a.low.checked_mul(b.low)?, a.high.checked_mul(b.high)?)
        }
        BinaryOp::Div if a.low >= 0 && b.low > 0 => (a.low / b.high, a.high / b.low),
        _ => return None,
    };
    Some(IntRange { low, high })
}
