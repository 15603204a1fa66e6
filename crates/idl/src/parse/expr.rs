//! Expressions, with C's precedences.

use super::cursor::{Bail, Parsed};
use super::parser::Parser;
use crate::ast::{Expr, ExprKind, Name, TypeSpec};
use crate::ir::{BinaryOp, UnaryOp};
use crate::lex::Kind;

/// Binary operators from the loosest to the tightest.
const LEVELS: &[&[(&str, BinaryOp)]] = &[
    &[("||", BinaryOp::LogicalOr)],
    &[("&&", BinaryOp::LogicalAnd)],
    &[("|", BinaryOp::Or)],
    &[("^", BinaryOp::Xor)],
    &[("&", BinaryOp::And)],
    &[("==", BinaryOp::Eq), ("!=", BinaryOp::Ne)],
    &[("<=", BinaryOp::Le), (">=", BinaryOp::Ge), ("<", BinaryOp::Lt), (">", BinaryOp::Gt)],
    &[("<<", BinaryOp::Shl), (">>", BinaryOp::Shr)],
    &[("+", BinaryOp::Add), ("-", BinaryOp::Sub)],
    &[("*", BinaryOp::Mul), ("/", BinaryOp::Div), ("%", BinaryOp::Rem)],
];

/// Operators in one expression beyond this are refused, for the sake of those who walk the tree.
const OPERATORS_MAX: u32 = 200;

impl Parser<'_> {
    /// An expression.
    pub(crate) fn expr(&mut self) -> Parsed<Expr> {
        self.cursor.enter()?;
        let outer = self.operators;
        let result = self.conditional();
        self.cursor.leave();
        if outer == 0 {
            self.operators = 0;
        }
        result
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let condition = self.binary(0)?;
        if !self.cursor.eat("?") {
            return Ok(condition);
        }
        let then = self.expr()?;
        self.cursor.expect(":", "the first value of `?`")?;
        let other = self.expr()?;
        let span = condition.span.to(other.span);
        let kind = ExprKind::Cond(Box::new(condition), Box::new(then), Box::new(other));
        Ok(Expr { kind, span })
    }

    fn binary(&mut self, level: usize) -> Parsed<Expr> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some((_, op)) = operators.iter().find(|(p, _)| self.cursor.is(p)) {
            self.operators += 1;
            if self.operators > OPERATORS_MAX {
                return Err(self.cursor.unexpected("the end of this very long expression"));
            }
            self.cursor.advance();
            let right = self.binary(level + 1)?;
            let span = left.span.to(right.span);
            let kind = ExprKind::Binary(*op, Box::new(left), Box::new(right));
            left = Expr { kind, span };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let token = self.cursor.peek();
        let op = match token.kind {
            Kind::Punct("-") => UnaryOp::Neg,
            Kind::Punct("~") => UnaryOp::Not,
            Kind::Punct("!") => UnaryOp::LogicalNot,
            Kind::Punct("+") => {
                self.cursor.advance();
                return self.deeper_unary();
            }
            Kind::Punct("*") => {
                self.cursor.advance();
                let name = self.cursor.name("the name of a parameter or field")?;
                return Ok(Expr { span: token.span.to(name.span), kind: ExprKind::Deref(name) });
            }
            _ => return self.primary(),
        };
        self.cursor.advance();
        let operand = self.deeper_unary()?;
        let span = token.span.to(operand.span);
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(operand)), span })
    }

    fn deeper_unary(&mut self) -> Parsed<Expr> {
        self.cursor.enter()?;
        let result = self.unary();
        self.cursor.leave();
        result
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let token = self.cursor.peek();
        let span = token.span;
        let kind = match &token.kind {
            Kind::Int(n) => ExprKind::Int(*n),
            Kind::Float(n) => ExprKind::Float(*n),
            Kind::Char(c) | Kind::WideChar(c) => ExprKind::Char(*c),
            Kind::Str(first) => {
                let mut text = first.clone();
                self.cursor.advance();
                while let Kind::Str(more) = &self.cursor.peek().kind {
                    text.extend_from_slice(more);
                    self.cursor.advance();
                }
                return Ok(Expr { kind: ExprKind::Str(text), span });
            }
            Kind::WideStr(text) => ExprKind::WideStr(text.clone()),
            Kind::Ident(word) if word == "sizeof" && self.cursor.peek_at(1).is("(") => {
                self.cursor.advance();
                let ty = Box::new(self.bracketed_type()?);
                return Ok(Expr { span: span.to(ty.span), kind: ExprKind::SizeOf(ty) });
            }
            Kind::Ident(_) => {
                let Name { text, span } = self.cursor.name("a value")?;
                return Ok(Expr { kind: ExprKind::Name(text), span });
            }
            Kind::Punct("(") if self.is_cast() => {
                let ty = Box::new(self.bracketed_type()?);
                let operand = Box::new(self.deeper_unary()?);
                return Ok(Expr { span: span.to(operand.span), kind: ExprKind::Cast(ty, operand) });
            }
            Kind::Punct("(") => {
                self.cursor.advance();
                let inner = self.expr()?;
                self.cursor.expect(")", "the expression")?;
                return Ok(inner);
            }
            _ => return Err::<Expr, Bail>(self.cursor.unexpected("a value")),
        };
        self.cursor.advance();
        Ok(Expr { kind, span })
    }

    /// `(T)` before a value; `(a)` before an operator is an expression.
    fn is_cast(&self) -> bool {
        let mut words = 1;
        while self.cursor.peek_at(words).ident().is_some() {
            words += 1;
        }
        let mut end = words;
        while words > 1 && self.cursor.peek_at(end).is("*") {
            end += 1;
        }
        let is_type = end > words || self.is_scalar_word();
        let behind = self.cursor.peek_at(end + 1);
        // Behind the name of a parameter `-` and `*` go on with the expression.
        let is_value = match behind.kind {
            Kind::Ident(_) | Kind::Int(_) | Kind::Float(_) | Kind::Punct("~" | "(" | "!") => true,
            Kind::Punct("*" | "-") => is_type,
            _ => false,
        };
        words > 1 && self.cursor.peek_at(end).is(")") && is_value
    }

    /// Returns true if the word behind the bracket can be nothing but a type.
    fn is_scalar_word(&self) -> bool {
        self.cursor.peek_at(1).ident().is_some_and(super::keys::is_keyword)
    }

    fn bracketed_type(&mut self) -> Parsed<TypeSpec> {
        self.cursor.expect("(", "`sizeof`")?;
        let ty = self.type_spec()?;
        self.pointers();
        self.cursor.expect(")", "the type")?;
        Ok(ty)
    }
}
