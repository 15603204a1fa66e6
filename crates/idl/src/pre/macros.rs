//! The table of macros. Not here: how uses are replaced; see `expand`.

use std::collections::HashMap;

use crate::lex::{Kind, Token};
use crate::source::Span;

/// Names that are defined before the first line: compilers of COM's IDL have them, and headers
/// that are written for both C and IDL ask for them.
const PREDEFINED: &[(&str, i128)] = &[("__midl", 501), ("__WIDL__", 1)];

/// What a name is replaced by.
#[derive(Clone, Debug)]
pub(super) struct Macro {
    /// `None` for one without parentheses.
    pub(super) params: Option<Vec<String>>,
    pub(super) body: Vec<Token>,
}

/// All macros that are defined at a place in a file.
pub(super) struct Macros {
    pub(super) table: HashMap<String, Macro>,
    /// Tokens that expansion may still make: nested macros double with each step.
    pub(super) budget: usize,
}

/// Tokens that the macros of one file may make.
const BUDGET: usize = 1 << 22;

impl Default for Macros {
    fn default() -> Self {
        let one = |value: i128| {
            let token =
                Token { kind: Kind::Int(value), span: Span::default(), doc: None, doc_after: None };
            Macro { params: None, body: vec![token] }
        };
        let table = PREDEFINED.iter().map(|(name, value)| ((*name).to_owned(), one(*value)));
        Self { table: table.collect(), budget: BUDGET }
    }
}

impl Macros {
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }
}
