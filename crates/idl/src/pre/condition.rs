//! `#if` and its kin: which parts of a file are read.

use super::preprocessor::Preprocessor;
use crate::ast::{Expr, ExprKind};
use crate::ir::UnaryOp;
use crate::lex::{Kind, Token, Tokens};
use crate::source::Span;

/// A condition whose `#endif` has not come yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    /// True if the lines of this branch are read.
    pub(super) is_live: bool,
    /// A part of this condition has been read, or none may be.
    is_done: bool,
    has_else: bool,
    /// The line that opened it.
    pub(super) span: Span,
}

impl Preprocessor<'_> {
    /// `#if`, `#ifdef`, `#ifndef`. `rest` is what follows the word.
    pub(super) fn open(
        &mut self,
        word: &str,
        rest: &[Token],
        span: Span,
        branches: &mut Vec<Branch>,
    ) {
        let outer = branches.last().is_none_or(|b| b.is_live);
        let is_live = outer
            && match word {
                "if" => self.is_true(rest, span),
                _ => self.is_named(word, rest, span) == (word == "ifdef"),
            };
        branches.push(Branch { is_live, is_done: is_live || !outer, has_else: false, span });
    }

    fn is_named(&mut self, word: &str, rest: &[Token], span: Span) -> bool {
        let Some(name) = rest.first().and_then(Token::ident) else {
            self.error(span, format!("`#{word}` needs the name of a macro"), "write `#ifdef NAME`");
            return false;
        };
        self.macros.is_defined(name)
    }

    /// `#elif` and `#else`.
    pub(super) fn other(
        &mut self,
        word: &str,
        rest: &[Token],
        span: Span,
        branches: &mut [Branch],
    ) {
        let Some(mut branch) = branches.last().copied() else {
            return self.without_if(word, span);
        };
        if branch.has_else {
            self.error(span, format!("`#{word}` behind `#else`"), "take one of them out");
        }
        branch.is_live = !branch.is_done && (word == "else" || self.is_true(rest, span));
        branch.is_done |= branch.is_live;
        branch.has_else |= word == "else";
        if let Some(last) = branches.last_mut() {
            *last = branch;
        }
    }

    pub(super) fn close(&mut self, span: Span, branches: &mut Vec<Branch>) {
        if branches.pop().is_none() {
            self.without_if("endif", span);
        }
    }

    fn without_if(&mut self, word: &str, span: Span) {
        self.error(span, format!("`#{word}` without `#if`"), "take it out, or add `#if` before it");
    }

    /// The value of a condition; names that are no macros are 0, as in C.
    fn is_true(&mut self, rest: &[Token], span: Span) -> bool {
        let mut list = Vec::new();
        let known = self.without_defined(rest);
        self.macros.expand(known, &mut list, self.sink);
        list.push(Token { kind: Kind::End, span, doc: None, doc_after: None });
        let tokens = Tokens { list, ..Tokens::default() };
        let Some(expr) = crate::parse::parse_condition(&tokens, self.sink) else { return false };
        let value = value(&expr);
        if value.is_none() {
            self.error(
                span,
                "this condition has no value",
                "conditions are C's integer expressions",
            );
        }
        value.is_some_and(|n| n != 0)
    }

    /// `defined NAME` and `defined(NAME)` replaced by 1 and 0.
    fn without_defined(&self, rest: &[Token]) -> Vec<Token> {
        let (mut list, mut at) = (Vec::new(), 0);
        while let Some(token) = rest.get(at) {
            at += 1;
            let in_brackets = rest.get(at).is_some_and(|t| t.is("("));
            let name = rest.get(at + usize::from(in_brackets)).and_then(Token::ident);
            let (Some("defined"), Some(name)) = (token.ident(), name) else {
                list.push(token.clone());
                continue;
            };
            at += if in_brackets { 3 } else { 1 };
            let kind = Kind::Int(i128::from(self.macros.is_defined(name)));
            list.push(Token { kind, ..token.clone() });
        }
        list
    }
}

fn value(expr: &Expr) -> Option<i128> {
    match &expr.kind {
        ExprKind::Int(n) => Some(*n),
        ExprKind::Char(c) => Some(i128::from(*c)),
        ExprKind::Name(_) => Some(0),
        ExprKind::Unary(UnaryOp::Neg, operand) => value(operand)?.checked_neg(),
        ExprKind::Unary(UnaryOp::Not, operand) => Some(!value(operand)?),
        ExprKind::Unary(UnaryOp::LogicalNot, operand) => Some(i128::from(value(operand)? == 0)),
        ExprKind::Binary(op, left, right) => op.of(value(left)?, value(right)?),
        ExprKind::Cond(condition, then, other) => {
            value(if value(condition)? != 0 { then } else { other })
        }
        _ => None,
    }
}
