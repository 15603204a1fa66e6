//! The parser's state. Not here: the grammar, which is in the files beside this one.

use super::cursor::Cursor;

/// The parser of IDL files.
pub(crate) struct Parser<'a> {
    pub(crate) cursor: Cursor<'a>,
    /// Operators so far in the outermost expression being read.
    pub(super) operators: u32,
    /// The file is one of COM's: see `com`.
    pub(super) is_com: bool,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(cursor: Cursor<'a>) -> Self {
        Self { cursor, operators: 0, is_com: false }
    }
}
