//! The mechanisms Sojourn is measured beside, one a file: the kernel's own, and (feature `rivals`)
//! other crates.
//!
//! Each is used as its own documentation says a fast program should: spinning where it can be
//! polled, its own blocking wait where it has one, and shared memory for the bytes where it carries
//! none itself.

mod eventfd;
mod futex;
#[cfg(feature = "rivals")]
mod iceoryx;
#[cfg(feature = "rivals")]
mod ipc_channel;
mod mqueue;
mod pipe;
#[cfg(feature = "rivals")]
mod shmem_ipc;
mod stream_io;
mod unix_socket;
mod vm_readv;

use super::row::Row;

pub(crate) use futex::Word;
pub(crate) use unix_socket::many as unix_crowd;

/// Every rival of the table of round trips.
pub(crate) fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(pipe::Pipe { capacity: None }),
        Box::new(unix_socket::UnixSocket),
        Box::new(eventfd::EventFd),
        Box::new(futex::Futex),
        Box::new(mqueue::MessageQueue),
        Box::new(vm_readv::ProcessVmReadv),
        #[cfg(feature = "rivals")]
        Box::new(iceoryx::Iceoryx { in_place: false }),
        #[cfg(feature = "rivals")]
        Box::new(iceoryx::Iceoryx { in_place: true }),
        #[cfg(feature = "rivals")]
        Box::new(shmem_ipc::ShmemIpc),
        #[cfg(feature = "rivals")]
        Box::new(ipc_channel::IpcChannel),
    ]
}

/// Rivals that also carry one-way messages, for the table of bandwidth.
pub(crate) fn streaming() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(pipe::Pipe { capacity: None }),
        Box::new(pipe::Pipe { capacity: Some(1 << 20) }),
        Box::new(unix_socket::UnixSocket),
    ]
}
