//! The reasons why bytes are not a usable session record, with their texts.

use core::fmt;

/// The version that `encode` writes and `decode` accepts; any other is refused.
pub const VERSION: u16 = 1;

/// The reason why bytes are not a usable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The first bytes are not `MAGIC`.
    NotARecord,
    /// The record has another version of the format, which is given.
    Version(u16),
    /// The bytes end before the record does.
    Truncated,
    /// The record ends before the bytes do.
    Excess,
    /// The checksum does not fit the bytes.
    Damaged,
    /// A field has an impossible value; the text names it.
    Value(&'static str),
    /// Fields contradict each other; the text names them.
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
