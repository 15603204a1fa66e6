//! Sessions with other hosts: the engine that runs in this process, the threads that sleep for
//! packets, taking sessions over and giving them back.
//!
//! Not here: the engine itself (`sojourn_pump`). Read `docs/understand/moves.md` first.

pub(crate) mod carried;
pub(crate) mod carry_server;
pub(crate) mod channel;
pub(crate) mod delegation;
pub(crate) mod direct;
pub(crate) mod net;
pub(crate) mod options;
pub(crate) mod protocol_server;
pub(crate) mod served;
pub(crate) mod watch;
