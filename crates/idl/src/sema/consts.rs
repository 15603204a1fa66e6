//! `const` declarations.

use super::analyzer::Analyzer;
use super::scope::{Base, DerivationKind, Meaning};
use crate::ast::{Const as Tree, TypeSpec};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Const, ConstType, ConstValue, IntRange, Scalar};
use crate::source::Span;

impl Analyzer<'_> {
    pub(super) fn const_item(&mut self, tree: &Tree) {
        // One that cannot be said here is left out of files of COM: nothing depends on it.
        self.tolerantly(|this| this.const_here(tree));
    }

    fn const_here(&mut self, tree: &Tree) {
        let Some(ty) = self.const_type(&tree.ty, tree) else { return };
        let Some(value) = self.constant(&tree.value) else { return };
        let Some(value) = self.fit(ty, value, tree.value.span) else { return };
        if self.define(&tree.declarator.name, Meaning::Const(self.module.consts.len())) {
            self.module.consts.push(Const {
                name: tree.declarator.name.text.clone(),
                doc: tree.doc.clone(),
                ty,
                value,
                imported: self.import_depth > 0,
            });
        }
    }

    fn const_type(&mut self, spec: &TypeSpec, tree: &Tree) -> Option<ConstType> {
        let base = self.base(spec, None)?;
        let steps = self.steps(&tree.declarator)?;
        let scalar = super::analyzer::plain(&base).and_then(|ty| self.scalar_of(ty));
        let ty = match (scalar, steps.as_slice()) {
            (Some(scalar), []) => Some(ConstType::Scalar(scalar)),
            (Some(Scalar::Char), [step]) if step.kind == DerivationKind::Pointer => {
                Some(ConstType::String)
            }
            (Some(Scalar::WChar), [step]) if step.kind == DerivationKind::Pointer => {
                Some(ConstType::WideString)
            }
            (None, []) if matches!(base, Base::Ty(_)) && self.is_enum(&base) => {
                Some(ConstType::Scalar(Scalar::I32))
            }
            _ => None,
        };
        if ty.is_none() {
            self.error(
                codes::CONST_TYPE,
                spec.span,
                "a constant cannot have this type".to_owned(),
                "constants are integers, characters, booleans, floating point numbers, `char *` or `wchar_t *`",
            );
        }
        ty
    }

    /// The value as the declared type holds it. `None`: reported.
    fn fit(&mut self, ty: ConstType, value: ConstValue, span: Span) -> Option<ConstValue> {
        match (ty, value) {
            (ConstType::Scalar(Scalar::F32 | Scalar::F64), ConstValue::Int(n)) =>
            {
                #[allow(clippy::cast_precision_loss, reason = "as C converts it")]
                Some(ConstValue::Float(n as f64))
            }
            (ConstType::Scalar(Scalar::F32), ConstValue::Float(f))
                if f.abs() > f64::from(f32::MAX) =>
            {
                self.out_of_range("float", span)
            }
            (ConstType::Scalar(Scalar::F32 | Scalar::F64), value @ ConstValue::Float(_))
            | (ConstType::String | ConstType::WideString, value @ ConstValue::String(_)) => {
                Some(value)
            }
            (ConstType::Scalar(scalar), ConstValue::Int(n)) if !is_float(scalar) => {
                let limits = limits(scalar)?;
                let n = if self.is_com { wrap(n, limits) } else { n };
                if limits.contains(n) {
                    return Some(ConstValue::Int(n));
                }
                self.out_of_range(&format!("{} to {}", limits.low, limits.high), span)
            }
            _ => {
                self.error(
                    codes::CONST_MISMATCH,
                    span,
                    "the value is not of the constant's type".to_owned(),
                    "write an integer for integer types, \"...\" for `char *`, L\"...\" for `wchar_t *`",
                );
                None
            }
        }
    }

    fn out_of_range(&mut self, range: &str, span: Span) -> Option<ConstValue> {
        self.sink.push(
            Diagnostic::error(
                codes::CONST_RANGE,
                span,
                "the value does not fit the constant's type",
            )
            .help(format!("the type holds {range}; choose a wider one")),
        );
        None
    }
}

fn is_float(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::F32 | Scalar::F64)
}

/// Least and greatest value of an integer type; `None` for floating point.
pub(super) fn limits(scalar: Scalar) -> Option<IntRange> {
    let (low, high) = match scalar {
        Scalar::Bool => (0, 1),
        Scalar::Char | Scalar::Byte | Scalar::U8 => (0, 0xFF),
        Scalar::I8 => (-0x80, 0x7F),
        Scalar::WChar | Scalar::U16 => (0, 0xFFFF),
        Scalar::I16 => (-0x8000, 0x7FFF),
        Scalar::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        Scalar::U32 | Scalar::ErrorStatus => (0, i128::from(u32::MAX)),
        Scalar::I64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
        Scalar::U64 => (0, i128::from(u64::MAX)),
        Scalar::F32 | Scalar::F64 => return None,
    };
    Some(IntRange { low, high })
}

/// The number that an integer of these limits holds where C puts `n` into it.
pub(super) fn wrap(n: i128, limits: IntRange) -> i128 {
    let IntRange { low, high } = limits;
    (n - low).rem_euclid(high - low + 1) + low
}
