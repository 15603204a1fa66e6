//! Expressions over siblings as C: evaluated in 64 bits, overflow becomes a value nothing has.

use crate::ir::{BinaryOp, Expr, Scalar, Ty, TypeKind, UnaryOp};

use super::model::Model;
use super::text::int64;

/// A sibling: where its value is.
#[derive(Clone)]
pub(super) struct Sibling<'a> {
    pub(super) lv: String,
    pub(super) ty: &'a Ty,
}

impl Model<'_> {
    pub(super) fn expr(self, e: &Expr, siblings: &[Sibling<'_>]) -> String {
        match e {
            Expr::Const(n) => int64(*n),
            Expr::Var { index, .. } => match siblings.get(*index as usize) {
                Some(s) => self.value(s.ty, &s.lv),
                None => "SJ_NO_VALUE".to_owned(),
            },
            Expr::Unary(op, a) => {
                let a = self.expr(a, siblings);
                match op {
                    UnaryOp::Neg => format!("sj_x_sub(0, {a})"),
                    UnaryOp::Not => format!("(~{a})"),
                    UnaryOp::LogicalNot => format!("(int64_t)({a} == 0)"),
                }
            }
            Expr::Binary(op, a, b) => binary(*op, &self.expr(a, siblings), &self.expr(b, siblings)),
            Expr::Cond(c, a, b) => format!(
                "({} != 0 ? {} : {})",
                self.expr(c, siblings),
                self.expr(a, siblings),
                self.expr(b, siblings)
            ),
        }
    }

    /// The value of a sibling as `int64_t`, through a pointer if it is one.
    fn value(self, ty: &Ty, lv: &str) -> String {
        match self.strip(ty) {
            Ty::Scalar(Scalar::Char) => format!("(int64_t)(unsigned char){lv}"),
            Ty::Scalar(Scalar::I64) => lv.to_owned(),
            Ty::Pointer(_, t) => {
                format!("({lv} ? {} : SJ_NO_VALUE)", self.value(t, &format!("(*{lv})")))
            }
            Ty::Named(id) if matches!(self.def(*id).map(|d| &d.kind), Some(TypeKind::Enum(_))) => {
                format!("(int64_t)(int32_t){lv}")
            }
            _ => format!("(int64_t){lv}"),
        }
    }
}

fn binary(op: BinaryOp, a: &str, b: &str) -> String {
    let call = |f: &str| format!("sj_x_{f}({a}, {b})");
    let compare = |o: &str| format!("(int64_t)({a} {o} {b})");
    match op {
        BinaryOp::Add => call("add"),
        BinaryOp::Sub => call("sub"),
        BinaryOp::Mul => call("mul"),
        BinaryOp::Div => call("div"),
        BinaryOp::Rem => call("rem"),
        BinaryOp::Shl => call("shl"),
        BinaryOp::Shr => call("shr"),
        BinaryOp::And => format!("({a} & {b})"),
        BinaryOp::Or => format!("({a} | {b})"),
        BinaryOp::Xor => format!("({a} ^ {b})"),
        BinaryOp::LogicalAnd => format!("(int64_t)({a} != 0 && {b} != 0)"),
        BinaryOp::LogicalOr => format!("(int64_t)({a} != 0 || {b} != 0)"),
        BinaryOp::Eq => compare("=="),
        BinaryOp::Ne => compare("!="),
        BinaryOp::Lt => compare("<"),
        BinaryOp::Le => compare("<="),
        BinaryOp::Gt => compare(">"),
        BinaryOp::Ge => compare(">="),
    }
}
