//! Why bytes are not a session record, in words.

use core::fmt;

/// The version that `encode` writes and `decode` accepts; any other is refused.
pub const VERSION: u16 = 1;

/// Why bytes are not a record that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The first bytes are not `MAGIC`.
    NotARecord,
    /// Written by another version of the format, which is given.
    Version(u16),
    /// The bytes end before the record does.
    Truncated,
    /// The record ends before the bytes do.
    Excess,
    /// The checksum does not fit the bytes.
    Damaged,
    /// A field has a value that it cannot have; the text says which.
    Value(&'static str),
    /// Every field is possible, but not together; the text says which.
    Inconsistent(&'static str),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::NotARecord => f.write_str("not a session record"),
            RecordError::Version(version) => {
                write!(f, "session record of version {version}, this program reads {VERSION}")
            }
            RecordError::Truncated => f.write_str("session record is cut short"),
            RecordError::Excess => f.write_str("session record is followed by other bytes"),
            RecordError::Damaged => f.write_str("session record is damaged (checksum)"),
            RecordError::Value(what) => write!(f, "session record: {what}"),
            RecordError::Inconsistent(what) => {
                write!(f, "session record contradicts itself: {what}")
            }
        }
    }
}

impl core::error::Error for RecordError {}
