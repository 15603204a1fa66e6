//! Expressions: constants are computed, mentions of siblings stay.

use super::analyzer::{Analyzer, plain};
use super::consts::{limits, wrap};
use super::scope::{Meaning, SiblingUse, Siblings};
use crate::ast::{Expr as Tree, ExprKind, Name, TypeKind, TypeSpec};
use crate::diag::{Diagnostic, codes, nearest};
use crate::ir::{BinaryOp, ConstValue, Expr, UnaryOp};
use crate::layout::scalar_size;
use crate::source::Span;

/// The result of folding an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Folded {
    /// A constant.
    Value(ConstValue),
    /// Something that depends on siblings.
    Open(Expr),
}

impl Analyzer<'_> {
    /// A constant of any type. `None`: reported.
    pub(super) fn constant(&mut self, tree: &Tree) -> Option<ConstValue> {
        match self.fold(tree, &mut Siblings::default())? {
            Folded::Value(value) => Some(value),
            Folded::Open(_) => None,
        }
    }

    /// An integer constant. `None`: reported.
    pub(super) fn int_constant(&mut self, tree: &Tree) -> Option<i128> {
        let value = self.constant(tree)?;
        self.as_int(value, tree.span)
    }

    fn as_int(&mut self, value: ConstValue, span: Span) -> Option<i128> {
        if let ConstValue::Int(n) = value {
            return Some(n);
        }
        self.error(
            codes::NOT_AN_INTEGER,
            span,
            "an integer is needed here".to_owned(),
            "write a whole number, or the name of a constant that is one",
        );
        None
    }

    /// An integer expression that may name siblings. `None`: reported.
    pub(super) fn expression(&mut self, tree: &Tree, siblings: &mut Siblings) -> Option<Expr> {
        match self.fold(tree, siblings)? {
            Folded::Open(expr) => Some(expr),
            Folded::Value(value) => self.as_int(value, tree.span).map(Expr::Const),
        }
    }

    fn fold(&mut self, tree: &Tree, siblings: &mut Siblings) -> Option<Folded> {
        match &tree.kind {
            ExprKind::Int(n) => Some(int(*n)),
            ExprKind::Char(c) => Some(int(i128::from(*c))),
            ExprKind::Float(f) => Some(Folded::Value(ConstValue::Float(*f))),
            ExprKind::Str(text) => Some(Folded::Value(ConstValue::String(text.clone()))),
            ExprKind::WideStr(text) => {
                Some(Folded::Value(ConstValue::String(text.clone().into_bytes())))
            }
            ExprKind::Name(name) => self.fold_name(name, tree.span, siblings),
            ExprKind::Deref(name) => self.fold_deref(name, tree.span, siblings),
            ExprKind::Unary(op, operand) => {
                let folded = self.fold(operand, siblings)?;
                self.fold_unary(*op, folded, tree.span)
            }
            ExprKind::Binary(op @ (BinaryOp::Sub | BinaryOp::Mul), left, right)
                if self.names_type(left, siblings) =>
            {
                self.fold_hidden_cast(*op, left, right, siblings)
            }
            ExprKind::Binary(op, left, right) => {
                let (left_tree, right_tree) = (left, right);
                let left = self.fold(left_tree, siblings);
                let right = self.fold(right_tree, siblings);
                self.fold_binary(*op, left?, right?, tree.span)
            }
            ExprKind::Cast(ty, operand) => {
                let folded = self.fold(operand, siblings)?;
                self.fold_cast(ty, folded)
            }
            ExprKind::SizeOf(ty) => self.fold_size(ty),
            ExprKind::Cond(condition, then, other) => {
                let condition = self.expression(condition, siblings)?;
                let then = self.fold(then, siblings);
                let other = self.fold(other, siblings);
                self.fold_conditional(condition, then?, other?, tree.span)
            }
        }
    }

    fn fold_name(&mut self, name: &str, span: Span, siblings: &mut Siblings) -> Option<Folded> {
        if let Some(index) = siblings.index_of(name) {
            return Some(Self::sibling(siblings, index, false, span));
        }
        match name {
            "TRUE" | "true" => return Some(int(1)),
            "FALSE" | "false" => return Some(int(0)),
            _ => {}
        }
        match self.scope.symbols.get(name).map(|s| (&s.meaning, s.span)) {
            Some((Meaning::Const(index), _)) => {
                let value = self.module.consts.get(*index)?.value.clone();
                Some(Folded::Value(value))
            }
            Some((Meaning::Member(value), _)) => Some(int(i128::from(*value))),
            Some((_, at)) => {
                self.sink.push(
                    Diagnostic::error(codes::NOT_A_VALUE, span, format!("`{name}` is no value"))
                        .label(at, "it is declared here")
                        .help("constants, members of enumerations and siblings have values"),
                );
                None
            }
            None => {
                self.unknown_value(name, span, siblings);
                None
            }
        }
    }

    /// `(T) - 1` and `(T) * p` look like a difference and a product until it is known that T is a
    /// type.
    fn fold_hidden_cast(
        &mut self,
        op: BinaryOp,
        left: &Tree,
        right: &Tree,
        siblings: &mut Siblings,
    ) -> Option<Folded> {
        let operand = match (op, &right.kind) {
            (BinaryOp::Mul, ExprKind::Name(name)) => {
                let name = Name { text: name.clone(), span: right.span };
                self.fold_deref(&name, right.span, siblings)?
            }
            _ => {
                let folded = self.fold(right, siblings)?;
                self.fold_unary(UnaryOp::Neg, folded, right.span)?
            }
        };
        let kind = TypeKind::Named(Name { text: name_of(left), span: left.span });
        self.fold_cast(&TypeSpec { kind, span: left.span }, operand)
    }

    fn names_type(&self, tree: &Tree, siblings: &Siblings) -> bool {
        let ExprKind::Name(name) = &tree.kind else { return false };
        let known = self.scope.symbols.get(name).map(|s| &s.meaning);
        siblings.index_of(name).is_none() && matches!(known, Some(Meaning::Type { .. }))
    }

    /// `(T) value`: as C converts constants; what depends on siblings has their type.
    fn fold_cast(&mut self, ty: &TypeSpec, operand: Folded) -> Option<Folded> {
        let base = self.base(ty, None)?;
        let limits = plain(&base).and_then(|ty| self.scalar_of(ty)).and_then(limits);
        Some(match (operand, limits) {
            (Folded::Value(ConstValue::Int(n)), Some(limits)) => int(wrap(n, limits)),
            (operand, _) => operand,
        })
    }

    /// `sizeof(T)` of a scalar; that of others depends on the compiler.
    fn fold_size(&mut self, ty: &TypeSpec) -> Option<Folded> {
        let base = self.base(ty, None)?;
        let scalar = plain(&base).and_then(|ty| self.scalar_of(ty));
        if let Some(scalar) = scalar {
            return Some(int(i128::from(scalar_size(scalar))));
        }
        self.error(
            codes::NOT_AN_INTEGER,
            ty.span,
            "the size of this type is each compiler's own".to_owned(),
            "write the number, or count elements with size_is",
        );
        None
    }

    fn fold_deref(&mut self, name: &Name, span: Span, siblings: &mut Siblings) -> Option<Folded> {
        if let Some(index) = siblings.index_of(&name.text) {
            return Some(Self::sibling(siblings, index, true, span));
        }
        self.unknown_value(&name.text, name.span, siblings);
        None
    }

    fn sibling(siblings: &mut Siblings, index: u32, starred: bool, span: Span) -> Folded {
        let (owner, role) = (siblings.owner, siblings.role);
        siblings.uses.push(SiblingUse { owner, index, starred, role, span });
        Folded::Open(Expr::Var { index, deref: starred && siblings.are_fields })
    }

    fn unknown_value(&mut self, name: &str, span: Span, siblings: &Siblings) {
        let values = self.scope.symbols.iter().filter_map(|(name, symbol)| {
            matches!(symbol.meaning, Meaning::Const(_) | Meaning::Member(_))
                .then_some(name.as_str())
        });
        let known = siblings.names.iter().map(|n| n.text.as_str()).chain(values);
        let help = match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if siblings.names.is_empty() => {
                format!("declare it before its use: `const long {name} = ...;`")
            }
            None => "it must be a constant, or a parameter (field) of the same list".to_owned(),
        };
        self.sink.push(
            Diagnostic::error(
                codes::UNKNOWN_VALUE,
                span,
                format!("nothing is called `{name}` here"),
            )
            .help(help),
        );
    }

    fn fold_unary(&mut self, op: UnaryOp, operand: Folded, span: Span) -> Option<Folded> {
        let value = match operand {
            Folded::Open(expr) => return Some(Folded::Open(Expr::Unary(op, Box::new(expr)))),
            Folded::Value(ConstValue::Float(f)) if op == UnaryOp::Neg => {
                return Some(Folded::Value(ConstValue::Float(-f)));
            }
            Folded::Value(value) => self.as_int(value, span)?,
        };
        let result = match op {
            UnaryOp::Neg => value.checked_neg(),
            UnaryOp::Not => Some(!value),
            UnaryOp::LogicalNot => Some(i128::from(value == 0)),
        };
        self.in_range(result, span)
    }

    fn fold_binary(
        &mut self,
        op: BinaryOp,
        left: Folded,
        right: Folded,
        span: Span,
    ) -> Option<Folded> {
        if let (Folded::Value(a), Folded::Value(b)) = (&left, &right)
            && let Some(value) = float_arithmetic(op, a, b)
        {
            return self.finite(value, span);
        }
        match (left, right) {
            (Folded::Value(a), Folded::Value(b)) => {
                let (a, b) = (self.as_int(a, span)?, self.as_int(b, span)?);
                if b == 0 && matches!(op, BinaryOp::Div | BinaryOp::Rem) {
                    self.error(
                        codes::DIVISION_BY_ZERO,
                        span,
                        "division by zero".to_owned(),
                        "change the divisor",
                    );
                    return None;
                }
                self.in_range(op.of(a, b), span)
            }
            (left, right) => {
                let (left, right) = (self.open(left, span)?, self.open(right, span)?);
                Some(Folded::Open(Expr::Binary(op, Box::new(left), Box::new(right))))
            }
        }
    }

    fn open(&mut self, folded: Folded, span: Span) -> Option<Expr> {
        match folded {
            Folded::Open(expr) => Some(expr),
            Folded::Value(value) => self.as_int(value, span).map(Expr::Const),
        }
    }

    fn fold_conditional(
        &mut self,
        condition: Expr,
        then: Folded,
        other: Folded,
        span: Span,
    ) -> Option<Folded> {
        if let Expr::Const(n) = condition {
            return Some(if n != 0 { then } else { other });
        }
        let (then, other) = (self.open(then, span)?, self.open(other, span)?);
        Some(Folded::Open(Expr::Cond(Box::new(condition), Box::new(then), Box::new(other))))
    }

    fn finite(&mut self, value: f64, span: Span) -> Option<Folded> {
        if value.is_finite() {
            return Some(Folded::Value(ConstValue::Float(value)));
        }
        self.in_range(None, span)
    }

    /// Values between the least `hyper` and the greatest `unsigned hyper` are kept.
    fn in_range(&mut self, value: Option<i128>, span: Span) -> Option<Folded> {
        let limits = i128::from(i64::MIN)..=i128::from(u64::MAX);
        match value.filter(|v| limits.contains(v)) {
            Some(value) => Some(int(value)),
            None => {
                self.error(
                    codes::OVERFLOW,
                    span,
                    "the value does not fit into 64 bits".to_owned(),
                    "choose smaller numbers; a shift is by 0 to 63 bits",
                );
                None
            }
        }
    }
}

fn name_of(tree: &Tree) -> String {
    match &tree.kind {
        ExprKind::Name(name) => name.clone(),
        _ => String::new(),
    }
}

fn int(n: i128) -> Folded {
    Folded::Value(ConstValue::Int(n))
}

fn float_arithmetic(op: BinaryOp, a: &ConstValue, b: &ConstValue) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "as C converts integers in mixed arithmetic")]
    let number = |v: &ConstValue| match v {
        ConstValue::Float(f) => Some(*f),
        ConstValue::Int(n) => Some(*n as f64),
        ConstValue::String(_) => None,
    };
    if !matches!((a, b), (ConstValue::Float(_), _) | (_, ConstValue::Float(_))) {
        return None;
    }
    let (a, b) = (number(a)?, number(b)?);
    match op {
        BinaryOp::Add => Some(a + b),
        BinaryOp::Sub => Some(a - b),
        BinaryOp::Mul => Some(a * b),
        BinaryOp::Div => Some(a / b),
        _ => None,
    }
}
