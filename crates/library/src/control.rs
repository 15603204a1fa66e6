//! The protocol thread: what is said between this process and the server, and the threads for it.

pub(crate) mod prepare;
pub(crate) mod protocol;
pub(crate) mod search;
pub(crate) mod threads;
pub(crate) mod wanted;
