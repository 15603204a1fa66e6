//! Sizes and offsets in place, and which types have but one form. Not here: how large a body can
//! get; see `bound`.

use super::known::Known;
use crate::ir::{
    Array, Expr, Module, Operation, Param, PtrClass, Scalar, Struct, Ty, TypeId, TypeKind,
};

/// Names of names beyond which [`strip`] gives up: the front end accepts fewer.
const NAMES_MAX: usize = 4096;

/// Alignment of the primary block and of every secondary object.
pub const OBJECT_ALIGN: u64 = 8;

/// Size and alignment in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Bytes.
    pub size: u64,
    /// Bytes, a power of two.
    pub align: u64,
}

impl InPlace {
    const NOTHING: Self = Self { size: 0, align: 1 };

    pub(super) const fn new(size: u64, align: u64) -> Self {
        Self { size, align }
    }
}

/// Where a field or parameter lies in its structure or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Bytes from the beginning of the structure or block.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub align: u64,
}

/// Bytes between fields or parameters, which must be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Bytes from the beginning of the structure or block.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The layout of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructLayout {
    /// Bytes, padding at the end included.
    pub size: u64,
    /// Bytes.
    pub align: u64,
    /// One entry a field; `None` for a field marked `ignore`, which is not there.
    pub fields: Vec<Option<Slot>>,
    /// The runs of padding, in order.
    pub padding: Vec<Padding>,
}

/// The layout of the primary block of a request or reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Bytes, padded to a multiple of 8; 0 for an empty block.
    pub size: u64,
    /// The result; always `None` for a request.
    pub result: Option<Slot>,
    /// One entry a parameter of the operation; `None` for those that do not travel this way.
    pub params: Vec<Option<Slot>>,
    /// The runs of padding, in order.
    pub padding: Vec<Padding>,
}

/// Rounds `n` up to a multiple of `align` (a power of two).
#[must_use]
pub const fn round_up(n: u64, align: u64) -> u64 {
    n.saturating_add(align - 1) & !(align - 1)
}

/// Size in place of a scalar, which is its alignment too.
#[must_use]
pub const fn scalar_size(scalar: Scalar) -> u64 {
    match scalar {
        Scalar::Bool | Scalar::Char | Scalar::Byte | Scalar::I8 | Scalar::U8 => 1,
        Scalar::WChar | Scalar::I16 | Scalar::U16 => 2,
        Scalar::I32 | Scalar::U32 | Scalar::F32 | Scalar::ErrorStatus => 4,
        Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
    }
}

/// The type behind any chain of `typedef` names: never [`Ty::Named`] of a [`TypeKind::Alias`].
#[must_use]
pub fn strip<'a>(module: &'a Module, ty: &'a Ty) -> &'a Ty {
    let mut ty = ty;
    for _ in 0..NAMES_MAX {
        let Ty::Named(id) = ty else { break };
        let Some(TypeKind::Alias(target)) = kind(module, *id) else { break };
        ty = target;
    }
    ty
}

/// What the named type is.
#[must_use]
pub fn kind(module: &Module, id: TypeId) -> Option<&TypeKind> {
    module.types.get(id.0 as usize).map(|t| &t.kind)
}

/// A pointer to `ty` with a class other than `ref` is `ty`'s own header (form 0 is null), not a
/// pointer word: true for conformant and varying arrays and for strings.
#[must_use]
pub fn is_header(module: &Module, ty: &Ty) -> bool {
    matches!(strip(module, ty), Ty::Array(_) | Ty::String(_))
}

/// Returns true if the array has the 16-byte header of varying arrays.
#[must_use]
pub fn is_varying(array: &Array) -> bool {
    array.length.is_some() || array.first != Expr::Const(0)
}

/// Size and alignment of `ty` in place.
#[must_use]
pub fn in_place(module: &Module, ty: &Ty) -> InPlace {
    in_place_of(module, ty, &mut Known::default())
}

fn in_place_of(module: &Module, ty: &Ty, known: &mut Known<InPlace>) -> InPlace {
    match ty {
        Ty::Scalar(s) => InPlace::new(scalar_size(*s), scalar_size(*s)),
        Ty::Named(id) => {
            known.of(*id, InPlace::NOTHING, |known| named_in_place(module, *id, known))
        }
        Ty::Fixed(element, n) => {
            let e = in_place_of(module, element, known);
            InPlace::new(e.size.saturating_mul(u64::from(*n)), e.align)
        }
        Ty::Array(array) if is_varying(array) => InPlace::new(16, 8),
        Ty::Pointer(PtrClass::Ref, target) => in_place_of(module, target, known),
        Ty::Pointer(_, target) if is_header(module, target) => in_place_of(module, target, known),
        Ty::Array(_) | Ty::String(_) | Ty::Pointer(..) | Ty::Union(..) => InPlace::new(8, 8),
        Ty::Descriptor => InPlace::new(4, 4),
        Ty::Interface(_) => InPlace::new(24, 8),
    }
}

fn named_in_place(module: &Module, id: TypeId, known: &mut Known<InPlace>) -> InPlace {
    match kind(module, id) {
        Some(TypeKind::Alias(target)) => in_place_of(module, target, known),
        Some(TypeKind::Enum(_)) => InPlace::new(4, 4),
        Some(TypeKind::Struct(s)) => {
            let mut run = Run::default();
            for field in s.fields.iter().filter(|f| !f.ignore) {
                run.place(in_place_of(module, &field.ty, known));
            }
            run.finish();
            InPlace::new(run.end, run.align)
        }
        Some(TypeKind::Union(_) | TypeKind::ContextHandle) => InPlace::new(8, 8),
        Some(TypeKind::Opaque { size, align }) => {
            InPlace::new(u64::from(*size), u64::from((*align).max(1)))
        }
        None => InPlace::NOTHING,
    }
}

/// Places one thing after the other, each at its alignment, and remembers the gaps.
struct Run {
    end: u64,
    align: u64,
    padding: Vec<Padding>,
}

impl Default for Run {
    fn default() -> Self {
        Self { end: 0, align: 1, padding: Vec::new() }
    }
}

impl Run {
    fn skip_to(&mut self, align: u64) {
        let next = round_up(self.end, align);
        if next > self.end {
            self.padding.push(Padding { offset: self.end, len: next - self.end });
        }
        self.end = next;
    }

    fn place(&mut self, what: InPlace) -> Slot {
        self.skip_to(what.align);
        let slot = Slot { offset: self.end, size: what.size, align: what.align };
        self.end = self.end.saturating_add(what.size);
        self.align = self.align.max(what.align);
        slot
    }

    fn finish(&mut self) {
        self.skip_to(self.align);
    }
}

/// Offsets of the fields of a structure.
#[must_use]
pub fn struct_layout(module: &Module, s: &Struct) -> StructLayout {
    let mut run = Run::default();
    let fields =
        s.fields.iter().map(|f| (!f.ignore).then(|| run.place(in_place(module, &f.ty)))).collect();
    run.finish();
    StructLayout { size: run.end, align: run.align, fields, padding: run.padding }
}

/// Offsets of what the request of `operation` carries.
#[must_use]
pub fn request_layout(module: &Module, operation: &Operation) -> BlockLayout {
    block(module, None, &operation.params, Param::is_in)
}

/// Offsets of what the reply of `operation` carries; empty for `oneway`.
#[must_use]
pub fn reply_layout(module: &Module, operation: &Operation) -> BlockLayout {
    block(module, operation.result.as_ref(), &operation.params, Param::is_out)
}

fn block(
    module: &Module,
    result: Option<&Ty>,
    params: &[Param],
    travels: fn(&Param) -> bool,
) -> BlockLayout {
    let mut run = Run::default();
    let result = result.map(|ty| run.place(in_place(module, ty)));
    let params =
        params.iter().map(|p| travels(p).then(|| run.place(in_place(module, &p.ty)))).collect();
    run.skip_to(OBJECT_ALIGN);
    BlockLayout { size: run.end, result, params, padding: run.padding }
}

/// Whether `ty` is *flat*: every bit pattern is valid, nothing out of line, no padding. Arrays of
/// flat elements (and strings) may travel as string items and grants.
#[must_use]
pub fn is_flat(module: &Module, ty: &Ty) -> bool {
    is_flat_of(module, ty, &mut Known::default())
}

fn is_flat_of(module: &Module, ty: &Ty, known: &mut Known<bool>) -> bool {
    match ty {
        Ty::Scalar(s) => *s != Scalar::Bool,
        Ty::Fixed(element, _) => is_flat_of(module, element, known),
        Ty::Named(id) => known.of(*id, false, |known| match kind(module, *id) {
            Some(TypeKind::Alias(target)) => is_flat_of(module, target, known),
            Some(TypeKind::Opaque { size, align }) => size.is_multiple_of((*align).max(1)),
            Some(TypeKind::Struct(s)) => {
                let is_flat = |f: &crate::ir::Field, known: &mut Known<bool>| {
                    !f.ignore && f.range.is_none() && is_flat_of(module, &f.ty, known)
                };
                s.fields.iter().all(|f| is_flat(f, known))
                    && struct_layout(module, s).padding.is_empty()
            }
            _ => false,
        }),
        _ => false,
    }
}

/// Whether `ty` is *fixed*: it never has secondary objects, so its bytes in place are all of it
/// (descriptors, which travel beside the body, may still belong to it).
#[must_use]
pub fn is_fixed(module: &Module, ty: &Ty) -> bool {
    is_fixed_of(module, ty, &mut Known::default())
}

fn is_fixed_of(module: &Module, ty: &Ty, known: &mut Known<bool>) -> bool {
    match ty {
        Ty::Scalar(_) | Ty::Descriptor | Ty::Interface(_) => true,
        Ty::Fixed(element, _) => is_fixed_of(module, element, known),
        Ty::Pointer(PtrClass::Ref, target) => is_fixed_of(module, target, known),
        Ty::Union(id, _) | Ty::Named(id) => {
            known.of(*id, false, |known| named_is_fixed(module, *id, known))
        }
        Ty::Array(_) | Ty::String(_) | Ty::Pointer(..) => false,
    }
}

fn named_is_fixed(module: &Module, id: TypeId, known: &mut Known<bool>) -> bool {
    match kind(module, id) {
        Some(TypeKind::Alias(target)) => is_fixed_of(module, target, known),
        Some(TypeKind::Struct(s)) => {
            s.fields.iter().all(|f| f.ignore || is_fixed_of(module, &f.ty, known))
        }
        Some(TypeKind::Union(u)) => u.arms.iter().all(|a| a.field.is_none()),
        Some(TypeKind::Enum(_) | TypeKind::Opaque { .. } | TypeKind::ContextHandle) => true,
        None => false,
    }
}

/// Returns true if every parameter of the request is fixed.
#[must_use]
pub fn request_is_fixed(module: &Module, operation: &Operation) -> bool {
    operation.params.iter().filter(|p| p.is_in()).all(|p| is_fixed(module, &p.ty))
}

/// Returns true if the result and every parameter of the reply are fixed.
#[must_use]
pub fn reply_is_fixed(module: &Module, operation: &Operation) -> bool {
    operation.result.iter().all(|ty| is_fixed(module, ty))
        && operation.params.iter().filter(|p| p.is_out()).all(|p| is_fixed(module, &p.ty))
}
