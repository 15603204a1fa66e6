//! What the lexer hands to the parser.

use crate::source::{FileNumber, Span};

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Identifier or keyword; the language's keywords are keywords only where they are expected.
    Ident(String),
    /// Integer with its value.
    Int(i128),
    /// Floating point; `version(1.10)` reads its text instead.
    Float(f64),
    /// `"..."` after escapes.
    Str(Vec<u8>),
    /// `L"..."` as text, after escapes.
    WideStr(String),
    /// `'c'`.
    Char(u32),
    /// `L'c'`.
    WideChar(u32),
    /// What stands between the parentheses of `uuid(...)`, unchecked.
    Uuid(String),
    /// An operator or separator.
    Punct(&'static str),
    /// End of the file.
    End,
}

/// A token with what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// Where it is.
    pub(crate) span: Span,
    /// Documentation comments before it.
    pub(crate) doc: Option<String>,
    /// Documentation comment behind it on the same line (`///<`, `/**<`).
    pub(crate) doc_after: Option<String>,
}

impl Token {
    /// The identifier, if it is one.
    pub(crate) fn ident(&self) -> Option<&str> {
        match &self.kind {
            Kind::Ident(name) => Some(name),
            _ => None,
        }
    }

    /// Returns true if it is this operator or separator.
    pub(crate) fn is(&self, punct: &str) -> bool {
        matches!(self.kind, Kind::Punct(p) if p == punct)
    }

    /// As a diagnostic names it.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Ident(name) => format!("`{name}`"),
            Kind::Int(n) => format!("number `{n}`"),
            Kind::Float(_) => "a floating point number".to_owned(),
            Kind::Str(_) | Kind::WideStr(_) => "a string".to_owned(),
            Kind::Char(_) | Kind::WideChar(_) => "a character constant".to_owned(),
            Kind::Uuid(_) => "a uuid".to_owned(),
            Kind::Punct(p) => format!("`{p}`"),
            Kind::End => "the end of the file".to_owned(),
        }
    }
}

/// A comment that is kept for the formatter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comment {
    /// Where, marks included.
    pub(crate) span: Span,
}

/// Everything the lexer has found in one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    /// Tokens; the last is [`Kind::End`].
    pub(crate) list: Vec<Token>,
    /// Comments of every kind in order.
    pub(crate) comments: Vec<Comment>,
    /// Files that `#include` has put in between.
    pub(crate) included: Vec<IncludedFile>,
}

/// A file that `#include` names.
#[derive(Clone, Debug)]
pub(crate) struct IncludedFile {
    /// Its number in the source map.
    pub(crate) file: FileNumber,
    pub(crate) text: String,
}

/// All operators and separators, longer ones first.
pub(crate) const PUNCTS: &[&str] = &[
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "..", "::", "##", "{", "}", "(", ")", "[", "]",
    ";", ",", ":", "=", "*", "+", "-", "/", "%", "&", "|", "^", "~", "!", "<", ">", "?", ".",
];
