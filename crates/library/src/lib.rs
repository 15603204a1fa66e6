//! The protocol library: a program's sessions, their moves and their readiness.
//!
//! It lives in the program and serves its calls; the shell around it (`sojourn-preload`) turns C
//! calls into these and tells it about signals ([`Host`]). What is here: the descriptor table,
//! where a data call goes, moving out and going home, waiting for one and for many, `fork`. What is
//! not: C, `errno`, packets. Read `docs/understand/streams.md` first, then `process`, `session`,
//! `fds::table`.

mod control;
mod fds;
mod host;
mod io;
mod moves;
mod policy;
mod process;
mod ready;
mod remote;
mod session;
#[cfg(test)]
mod session_fakes;

pub use host::epoll::EpollEvent;
pub use host::kernel::PollFd;
pub use host::numbers;
pub use host::{Host, Interrupt, Plain};
pub use io::call_flags::{Recv, Send};
pub use io::calls::{Call, Route, Use};
pub use io::datagrams::{Attempt, Datagram, Got, PARTS_MAX};
pub use io::from_kernel::{BytesOnly, FromKernel};
pub use moves::descriptors::{Origin, SocketOption};
pub use process::library::{Library, library};
pub use remote::options::{Known, Queue, Set};
pub use session::Session;

pub use fds::table::FdEntry;

pub use sojourn_pump::ancillary;
pub use sojourn_pump::tcp_info;
