//! Shared buffers: a program fills in place what it sends, and reads in place what has arrived.
//!
//! A [`Sender`] reserves space, the program fills it, and a commit sends it. A [`Receiver`] lends
//! bytes that have arrived, and takes them back. Both work on any stream: a TCP or Unix socket, or
//! a pipe. If the preload library is in the process, and the session is away from the kernel with
//! its peer on this host, space and bytes lie in the session's ring and nothing is copied
//! (`sojourn-lending`). Else the same calls copy through a private buffer.
//!
//! Not here: the rings, and what happens when a session moves (`sojourn-library`, `io::lend`).
//! Datagrams are not supported. Read `docs/understand/buffers.md` first.
//!
//! ```
//! use sojourn_buffers::{Deadline, Receiver, Sender};
//! use std::os::unix::net::UnixStream;
//!
//! let (one, two) = UnixStream::pair()?;
//! let mut sender = Sender::new(&one)?;
//! let mut space = sender.reserve(5, 4096, Deadline::NEVER)?;
//! space.put(0, b"hello");
//! space.commit(5, Deadline::NEVER)?;
//!
//! let mut receiver = Receiver::new(&two)?;
//! let loan = receiver.loan(5, 4096, Deadline::NEVER)?;
//! let mut word = [0; 5];
//! assert_eq!(loan.copy_to(0, &mut word), 5);
//! loan.give_back(5);
//! assert_eq!(&word, b"hello");
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code, reason = "memory that a ring lends, and a C interface")]

mod c;
mod descriptor;
mod error;
mod incoming;
mod lender;
mod outgoing;
mod piece;
mod receiver;
mod sender;

pub use error::Error;
pub use piece::Piece;
pub use receiver::{Copied, Loan, Receiver};
pub use sender::{Reservation, Sender};
pub use sojourn_shm::Deadline;
