//! The protocol library: a program's sessions, their moves and their readiness.
//!
//! It lives in the program and serves its calls; the shell around it (`sojourn-preload`) turns C
//! calls into these and tells it about signals ([`Host`]). What is here: the descriptor table,
//! where a data call goes, moving out and going home, waiting for one and for many, `fork`. What is
//! not: C, `errno`, packets. Read `docs/streams.md` first, then `table`, `session`, `engine`.

mod asks;
mod bulk;
mod call_flags;
mod calls;
mod carried;
mod carry_server;
mod datagrams;
mod descriptors;
mod directions;
mod ended;
mod engine;
mod environment;
mod epoll;
mod flush;
#[cfg(test)]
mod flush_tests;
mod fork;
mod from_kernel;
#[cfg(test)]
mod from_kernel_tests;
mod home;
mod host;
#[cfg(test)]
mod hostile_tests;
mod hot;
mod join;
mod kept;
mod kernel;
mod landing;
mod late;
#[cfg(test)]
mod late_tests;
mod lent;
mod library;
mod lock;
mod look;
mod looks;
mod measured;
#[cfg(test)]
mod measured_tests;
mod net;
pub mod numbers;
mod offer;
mod owed;
mod own;
mod own_numbers;
mod patience;
mod peeked;
mod policy;
mod poll;
mod poll_sleep;
#[cfg(test)]
mod poll_tests;
mod pollers;
mod pool;
mod prepare;
mod progress;
mod protocol;
mod put_back;
mod readiness;
#[cfg(test)]
mod recall_tests;
mod receive;
mod receive_step;
mod remembered;
mod residue;
mod rings;
mod search;
mod send;
#[cfg(test)]
mod send_tests;
mod session;
#[cfg(test)]
mod session_fakes;
mod set;
mod set_call;
mod set_entry;
#[cfg(test)]
mod set_fakes;
mod set_look;
mod set_member;
mod set_order;
#[cfg(test)]
mod set_order_tests;
mod set_ready;
#[cfg(test)]
mod set_ready_tests;
mod set_round;
mod set_state;
#[cfg(test)]
mod set_tests;
mod set_wait;
mod sets;
#[cfg(test)]
mod sets_tests;
mod sleep;
mod table;
mod threads;
mod together;
mod unmanaged_sets;
mod wanted;
mod watch;
mod within;

pub use asks::{Answer, Queue, Set};
pub use call_flags::{Recv, Send};
pub use calls::{Call, Path, Use};
pub use datagrams::{Attempt, Datagram, Got, PARTS_MAX};
pub use descriptors::{Origin, SocketOption};
pub use epoll::EpollEvent;
pub use from_kernel::{BytesOnly, FromKernel};
pub use host::{Host, Interrupt, Plain};
pub use kernel::PollFd;
pub use library::{Library, library};
pub use session::Session;

pub use table::Entry;

pub use sojourn_pump::ancillary;
pub use sojourn_pump::options::Change;
pub use sojourn_pump::tcp_info;
