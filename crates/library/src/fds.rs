//! The table of descriptors, and which descriptors are the library's own.
//!
//! It knows nothing of sessions but the words by which an entry names one.

pub(crate) mod own;
pub(crate) mod table;
