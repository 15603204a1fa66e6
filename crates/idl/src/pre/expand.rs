//! Replacing the uses of macros by what they stand for.
//!
//! A macro is not replaced inside its own replacement, as in C. Not so in C: the arguments of a
//! use stand in one piece, without a line of the preprocessor in between.

use super::macros::{Macro, Macros};
use crate::diag::{Diagnostic, Sink, codes};
use crate::lex::{Kind, Token};
use crate::source::Span;

/// Macros inside macros beyond this are refused.
const DEPTH_MAX: usize = 64;

impl Macros {
    /// Appends `tokens` to `out` with every macro replaced.
    pub(super) fn expand(&mut self, tokens: Vec<Token>, out: &mut Vec<Token>, sink: &mut Sink) {
        // Most files have none but those of their own.
        let is_used = |t: &Token| t.ident().is_some_and(|name| self.is_defined(name));
        if tokens.iter().any(is_used) {
            self.replace(&tokens, &mut Vec::new(), out, sink);
        } else {
            out.extend(tokens);
        }
    }

    /// `hidden` are the macros whose replacement is being read.
    fn replace(
        &mut self,
        tokens: &[Token],
        hidden: &mut Vec<String>,
        out: &mut Vec<Token>,
        sink: &mut Sink,
    ) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            let name = token.ident().filter(|name| !hidden.iter().any(|h| h == name));
            let Some((name, found)) = name.and_then(|n| Some((n, self.table.get(n)?.clone())))
            else {
                out.push(token.clone());
                continue;
            };
            let mut args = Vec::new();
            if found.params.is_some() {
                let Some(arguments) = arguments(tokens, at) else {
                    out.push(token.clone());
                    continue;
                };
                (args, at) = (arguments.list, arguments.end);
            }
            if hidden.len() >= DEPTH_MAX {
                report(sink, token.span, "macros inside macros, more than 64 deep");
                continue;
            }
            let body = self.substitute(&found, &args, token, sink);
            if !self.spend(body.len(), token.span, sink) {
                return;
            }
            hidden.push(name.to_owned());
            self.replace(&body, hidden, out, sink);
            hidden.pop();
        }
    }

    /// Returns true if so many tokens more may be made.
    fn spend(&mut self, count: usize, span: Span, sink: &mut Sink) -> bool {
        let left = self.budget.checked_sub(count + 1);
        if left.is_none() {
            report(sink, span, "the macros of this file come to more than four million words");
        }
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    /// The body of a macro with its parameters replaced, at the place of its use.
    fn substitute(
        &mut self,
        found: &Macro,
        args: &[Vec<Token>],
        at: &Token,
        sink: &mut Sink,
    ) -> Vec<Token> {
        let params = found.params.as_deref().unwrap_or(&[]);
        let is_nothing = params.is_empty() && args.iter().all(Vec::is_empty);
        if found.params.is_some() && args.len() != params.len() && !is_nothing {
            let message = format!(
                "`{}` takes {} arguments, not {}",
                at.ident().unwrap_or(""),
                params.len(),
                args.len()
            );
            report(sink, at.span, &message);
        }
        let mut body: Vec<Token> = Vec::new();
        for (i, token) in found.body.iter().enumerate() {
            if token.is("##") {
                continue;
            }
            let param = token.ident().and_then(|n| params.iter().position(|p| p == n));
            let mut parts = match param {
                Some(param) => args.get(param).cloned().unwrap_or_default(),
                None => vec![Token { span: at.span, ..token.clone() }],
            };
            let joins = i > 0 && found.body.get(i - 1).is_some_and(|t| t.is("##"));
            if joins && let (Some(left), Some(right)) = (body.last_mut(), parts.first()) {
                join(left, right, sink);
                parts.remove(0);
            }
            body.append(&mut parts);
        }
        if let Some(first) = body.first_mut().filter(|t| t.doc.is_none()) {
            first.doc.clone_from(&at.doc);
        }
        body
    }
}

/// The arguments of a use of a macro.
struct Arguments {
    list: Vec<Vec<Token>>,
    /// The position after the last.
    end: usize,
}

/// Reads the arguments of a use whose name stands before `at`.
fn arguments(tokens: &[Token], at: usize) -> Option<Arguments> {
    if !tokens.get(at)?.is("(") {
        return None;
    }
    let (mut args, mut depth) = (vec![Vec::new()], 0_usize);
    for (i, token) in tokens.iter().enumerate().skip(at) {
        let opens = ["(", "[", "{"].iter().any(|p| token.is(p));
        let closes = [")", "]", "}"].iter().any(|p| token.is(p));
        if closes {
            depth -= 1;
            if depth == 0 {
                return Some(Arguments { list: args, end: i + 1 });
            }
        }
        match args.last_mut() {
            _ if depth == 1 && token.is(",") => args.push(Vec::new()),
            Some(last) if depth > 0 => last.push(token.clone()),
            _ => {}
        }
        depth += usize::from(opens);
    }
    None
}

/// `left ## right`: two words to one.
fn join(left: &mut Token, right: &Token, sink: &mut Sink) {
    let end = match &right.kind {
        Kind::Ident(name) => Some(name.clone()),
        Kind::Int(n) => Some(n.to_string()),
        _ => None,
    };
    match (&mut left.kind, end) {
        (Kind::Ident(name), Some(end)) => name.push_str(&end),
        _ => report(sink, left.span, "`##` joins a word with a word or a number"),
    }
}

fn report(sink: &mut Sink, span: Span, message: &str) {
    sink.push(Diagnostic::error(codes::PREPROCESSOR, span, message).help(
        "write what the macro stands for here, or put it through a preprocessor of your choice",
    ));
}
