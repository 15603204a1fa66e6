//! The protocol thread: this process's conversation with the server, and the threads for it.
//!
//! Not here: the steps of moves (`moves`). Read `protocol` first.

pub(crate) mod prepare;
pub(crate) mod protocol;
pub(crate) mod search;
pub(crate) mod threads;
pub(crate) mod wanted;
