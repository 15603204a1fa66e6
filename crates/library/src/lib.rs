//! The protocol library: a program's sessions, their moves and their readiness.
//!
//! The library runs in the program's process and serves its calls. The shell around the library
//! (`sojourn-preload`) turns C calls into calls of this crate and reports signals ([`Host`]). The
//! crate has the descriptor table, the routing of data calls, moving out and going home, waiting
//! for one session and for many, and `fork`. It knows no C, no `errno` and no packets. Read
//! `docs/understand/streams.md` first, then `process`, `session`, `fds::entry`.

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
pub use host::{Host, Interrupt, OwnCalls, Plain};
pub use io::call_flags::{Recv, Send};
pub use io::calls::{Call, DatagramCall, Route, Use};
pub use io::cork::Corking;
pub use io::datagrams::{Attempt, PARTS_MAX, ReceiveOutcome};
pub use io::from_kernel::{BytesOnly, FromKernel};
pub use io::lend::{Amount, Lending, Lent, LentPiece};
pub use moves::descriptors::{Origin, SocketOption};
pub use moves::fork::Inherited;
pub use process::library::{Library, library};
pub use remote::options::{EngineAnswers, OptionAnswer, OptionChange, Queue};
pub use session::Session;
pub use session::datagram::{Datagram, Told};
pub use sojourn_shm::futex::Woken;

pub use fds::entry::{EntryLayout, FdEntry};

pub use sojourn_pump::ancillary;
pub use sojourn_pump::tcp_info;
