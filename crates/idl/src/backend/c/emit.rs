//! State of the emitters and the emission of checks on values that lie in memory as on the wire.
//!
//! Names in generated functions: `sj_v` the value, `sj_e` / `sj_d` the encoder / decoder, `sj_p`
//! the bytes in place, `sj_at` their offset in the body. Siblings are always reached through
//! `sj_v->`, so no name of the IDL can clash.

use crate::ir::{Array, IntRange, PtrClass, Scalar, Ty, TypeKind};

use super::expr::Sibling;
use super::model::Model;
use super::template::{Code, c};
use super::text::{int64, require};

/// What surrounds a value: siblings for expressions, local settings.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    pub(super) siblings: Vec<Sibling<'a>>,
    /// C expression of the bytes above which flat arrays become items.
    pub(super) limit: String,
    /// Sizes are compared with expressions at once: in elements of arrays, whose headers are not
    /// met again.
    pub(super) nested: bool,
    /// The body is planned: there is room for every object.
    pub(super) planned: bool,
    /// Memory of the decoded value is to be the receiver's own, to be written to.
    pub(super) copy: bool,
    pub(super) context: Option<ContextNumber>,
}

/// C expressions of a context handle's number.
#[derive(Clone)]
pub(super) struct ContextNumber {
    /// The number that the handle came with.
    pub(super) given: String,
    /// Where the number is kept.
    pub(super) kept: String,
}

/// A type that is an array: [`Ty::Array`], or a pointer to one.
#[derive(Clone, Copy)]
pub(super) struct ArrayTy<'t> {
    pub(super) array: &'t Array,
    pub(super) ty: &'t Ty,
}

/// A type that is a pointer: [`Ty::Pointer`].
#[derive(Clone, Copy)]
pub(super) struct PointerTy<'t> {
    pub(super) class: PtrClass,
    pub(super) ty: &'t Ty,
    pub(super) target: &'t Ty,
}

impl<'a> Scope<'a> {
    pub(super) fn new(siblings: Vec<Sibling<'a>>) -> Self {
        Self {
            siblings,
            limit: "sj_e->limit".to_owned(),
            nested: false,
            planned: false,
            copy: false,
            context: None,
        }
    }

    pub(super) fn inner(&self) -> Self {
        Self { nested: true, ..self.clone() }
    }
}

/// What writes the functions of one file.
pub(super) struct Emit<'a> {
    pub(super) model: Model<'a>,
    counter: u32,
}

impl<'a> Emit<'a> {
    pub(super) fn new(model: Model<'a>) -> Self {
        Self { model, counter: 0 }
    }

    /// A number for the names of a block.
    pub(super) fn fresh(&mut self) -> u32 {
        self.counter += 1;
        self.counter
    }

    /// `body` for each of `n` elements, given the name of the index.
    pub(super) fn each(&mut self, n: u32, body: impl FnOnce(&mut Self, &str) -> Code) -> Code {
        let i = format!("sj_i{}", self.fresh());
        let body = body(self, &i);
        c!(
            "
            for (size_t $i = 0; $i < $n; $i++) {
                $body
            }
            ",
            i,
            n,
            body,
        )
    }

    /// Requires that the plain value whose bytes are at `sj_p + o` is acceptable. `wire`: a
    /// C expression, true if padding must be zero.
    pub(super) fn check_bytes(&mut self, ty: &Ty, o: &str, wire: &str) -> Code {
        if !self.model.is_checked(ty) {
            return Code::new();
        }
        match ty {
            Ty::Scalar(Scalar::Bool) => require(format!("sj_p[{o}] <= 1")),
            Ty::Fixed(element, n) => {
                let step = self.model.size(element);
                self.each(*n, |x, i| x.check_bytes(element, &format!("{o} + {i} * {step}"), wire))
            }
            Ty::Named(id) => match self.model.def(*id).map(|d| &d.kind) {
                Some(TypeKind::Alias(inner)) => self.check_bytes(inner, o, wire),
                Some(TypeKind::Enum(_)) => {
                    let name = self.model.type_name(*id);
                    require(format!("sj_is_of_{name}((int32_t)sj_ld32(sj_p + {o}))"))
                }
                Some(TypeKind::Struct(_)) => {
                    let name = self.model.type_name(*id);
                    require(format!("sj_check_of_{name}(sj_p + {o}, {wire})"))
                }
                _ => Code::new(),
            },
            _ => Code::new(),
        }
    }

    /// Returns true if the values of a sender's program may be unacceptable.
    fn may_be_wrong(&self, ty: &Ty) -> bool {
        self.model.any(ty, &|t| match t {
            Ty::Named(id) => match self.model.def(*id).map(|d| &d.kind) {
                Some(TypeKind::Enum(_)) => true,
                Some(TypeKind::Struct(s)) => s.fields.iter().any(|f| f.range.is_some()),
                _ => false,
            },
            _ => false,
        })
    }

    /// Requires that the plain value `lv` of this program is one that receivers accept.
    pub(super) fn check_value(&mut self, ty: &Ty, lv: &str) -> Code {
        if !self.may_be_wrong(ty) {
            return Code::new();
        }
        match self.model.resolve(ty) {
            Ty::Fixed(element, n) => {
                self.each(*n, |x, i| x.check_value(element, &format!("{lv}[{i}]")))
            }
            Ty::Named(id) => {
                let name = self.model.type_name(*id);
                match self.model.def(*id).map(|d| &d.kind) {
                    Some(TypeKind::Enum(_)) => require(format!("sj_is_of_{name}((int32_t){lv})")),
                    Some(TypeKind::Struct(_)) => {
                        require(format!("sj_check_of_{name}((const unsigned char *)&{lv}, false)"))
                    }
                    _ => Code::new(),
                }
            }
            _ => Code::new(),
        }
    }

    /// The same for `count` elements at `lv`.
    pub(super) fn check_elements(&mut self, element: &Ty, lv: &str, count: &str) -> Code {
        if !self.model.has_wire_layout(element) || !self.may_be_wrong(element) {
            return Code::new();
        }
        let i = format!("sj_i{}", self.fresh());
        let check = self.check_value(element, &format!("{lv}[{i}]"));
        c!(
            "
            for (uint32_t $i = 0; $i < $count; $i++) {
                $check
            }
            ",
            i,
            count,
            check,
        )
    }

    /// Requires that an integer is in its range.
    pub(super) fn check_range(&self, ty: &Ty, lv: &str, range: Option<IntRange>) -> Code {
        let Some(range) = range else { return Code::new() };
        range_conditions(self.model, ty, lv, range).iter().map(require).collect()
    }

    /// Copies the plain value `lv` to `sj_p + o`, padding zero.
    pub(super) fn store(&mut self, ty: &Ty, lv: &str, o: &str) -> Code {
        let size = self.model.size(ty);
        if size == 0 {
            return Code::new();
        }
        if self.model.is_dense(ty) {
            let (copy, address) = (copy(size), self.address(ty, lv));
            return c!("$copy(sj_p + $o, $address, $size);", copy, o, address, size);
        }
        match self.model.resolve(ty) {
            Ty::Fixed(element, n) => {
                let step = self.model.size(element);
                self.each(*n, |x, i| {
                    x.store(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"))
                })
            }
            Ty::Named(id) => {
                let name = self.model.type_name(*id);
                c!("sj_copy_of_$name(sj_p + $o, &$lv);", name, o, lv)
            }
            _ => Code::new(),
        }
    }

    /// Copies the plain value at `sj_p + o` to `lv`, after it was checked.
    pub(super) fn load(&self, ty: &Ty, lv: &str, o: &str) -> Code {
        let (size, address) = (self.model.size(ty), self.address(ty, lv));
        if size == 0 {
            return Code::new();
        }
        c!("$copy($address, sj_p + $o, $size);", copy = copy(size), address, o, size)
    }

    fn address(&self, ty: &Ty, lv: &str) -> String {
        if matches!(self.model.resolve(ty), Ty::Fixed(..)) {
            return lv.to_owned();
        }
        match lv.strip_prefix("(*").and_then(|s| s.strip_suffix(')')) {
            Some(pointer) if !pointer.contains(['(', ')']) => pointer.to_owned(),
            _ => format!("&{lv}"),
        }
    }
}

/// The function that copies so many bytes best.
pub(super) const fn copy(size: u64) -> &'static str {
    if size > 32 { "sj_move" } else { "memcpy" }
}

/// What must hold for `lv` to be within `range`, without what its type guarantees.
pub(super) fn range_conditions(
    model: Model<'_>,
    ty: &Ty,
    lv: &str,
    range: IntRange,
) -> Vec<String> {
    let (least, greatest) = match model.strip(ty) {
        Ty::Scalar(Scalar::Bool) => (0, 1),
        Ty::Scalar(Scalar::Char | Scalar::Byte | Scalar::U8) => (0, 0xFF),
        Ty::Scalar(Scalar::WChar | Scalar::U16) => (0, 0xFFFF),
        Ty::Scalar(Scalar::I8) => (-0x80, 0x7F),
        Ty::Scalar(Scalar::I16) => (-0x8000, 0x7FFF),
        Ty::Scalar(Scalar::U32 | Scalar::ErrorStatus) => (0, i128::from(u32::MAX)),
        Ty::Scalar(Scalar::I64) => (i128::from(i64::MIN), i128::from(i64::MAX)),
        Ty::Scalar(Scalar::U64) => (0, i128::from(u64::MAX)),
        Ty::Scalar(Scalar::F32 | Scalar::F64) => (i128::MIN, i128::MAX),
        _ => (i128::from(i32::MIN), i128::from(i32::MAX)),
    };
    let (value, literal): (String, fn(i128) -> String) = match model.strip(ty) {
        Ty::Scalar(Scalar::U64) => (lv.to_owned(), |n| format!("UINT64_C({n})")),
        Ty::Scalar(Scalar::F32 | Scalar::F64) => (lv.to_owned(), |n| format!("{n}.0")),
        Ty::Scalar(Scalar::Char) => (format!("(int64_t)(unsigned char){lv}"), int64),
        _ => (format!("(int64_t){lv}"), int64),
    };
    let mut all = Vec::new();
    if range.low > least {
        all.push(format!("{value} >= {}", literal(range.low)));
    }
    if range.high < greatest {
        all.push(format!("{value} <= {}", literal(range.high)));
    }
    all
}
