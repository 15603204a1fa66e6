//! The table of descriptors, and the descriptors that are the library's own.
//!
//! This folder knows nothing of sessions but the words by which an entry names one.

pub(crate) mod entry;
pub(crate) mod own;
pub(crate) mod pool;
pub(crate) mod slot;
pub(crate) mod table;
