//! Sessions with other hosts: what drives the protocol engine in this process, who listens for
//! packets, how sessions are taken over and given back.

pub(crate) mod carried;
pub(crate) mod carry_server;
pub(crate) mod delegation;
pub(crate) mod net;
pub(crate) mod options;
pub(crate) mod watch;
