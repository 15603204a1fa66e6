//! The preprocessor: conditions, macros and `#include`; from the text of a file to its tokens.
//!
//! # Theory of operation
//! `lines` finds the lines that begin with `#`. What stands between two of them is lexed as a
//! whole, if no condition hides it, and its macros are replaced token by token (`expand`). A token
//! that comes out of a macro keeps the place where the macro is used, one of an included file its
//! place there. Each imported file begins anew: only `#include` shares macros.
//!
//! Not all of C's: no `#` operator, no variadic macros, no `#line`. Read `lex` first.

mod condition;
mod directive;
mod expand;
mod lines;
mod macros;
mod preprocessor;

pub(crate) use self::preprocessor::Includes;

use self::condition::Branch;
use self::macros::Macros;
use self::preprocessor::Preprocessor;
use crate::diag::Sink;
use crate::lex::{Kind, Token, Tokens, lex_part};
use crate::source::{FileNumber, Span};

/// The tokens of file number `file`, with [`Kind::End`] behind them.
pub(crate) fn preprocess(
    file: FileNumber,
    text: &str,
    includes: &mut dyn Includes,
    sink: &mut Sink,
) -> Tokens {
    let mut pre = Preprocessor {
        includes,
        sink,
        macros: Macros::default(),
        tokens: Tokens::default(),
        brackets: 0,
        depth: 0,
    };
    pre.file(file, text);
    let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let span = Span { file, start: end, end };
    pre.tokens.list.push(Token { kind: Kind::End, span, doc: None, doc_after: None });
    pre.tokens
}

impl Preprocessor<'_> {
    fn file(&mut self, file: FileNumber, text: &str) {
        let mut branches: Vec<Branch> = Vec::new();
        let mut at = 0;
        for line in lines::directives(text) {
            self.part(file, text, at..line.start, &branches);
            at = line.end;
            self.line(file, text, line, &mut branches);
        }
        self.part(file, text, at..text.len(), &branches);
        for branch in branches {
            self.error(branch.span, "this condition has no `#endif`", "add `#endif` behind it");
        }
    }

    /// What stands between two lines of the preprocessor.
    fn part(
        &mut self,
        file: FileNumber,
        text: &str,
        part: std::ops::Range<usize>,
        open: &[Branch],
    ) {
        if part.is_empty() || open.last().is_some_and(|branch| !branch.is_live) {
            return;
        }
        let mut read = lex_part(file, text, part, &mut self.brackets, self.sink);
        self.tokens.comments.append(&mut read.comments);
        self.macros.expand(read.list, &mut self.tokens.list, self.sink);
    }
}

#[cfg(test)]
mod tests;
