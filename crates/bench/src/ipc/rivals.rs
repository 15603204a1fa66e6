//! The rivals of the IPC, one per file: mechanisms of the kernel, and (feature `rivals`) other
//! crates.
//!
//! Each rival is used as its own documentation recommends for speed: it spins where it can be
//! polled, waits in its own blocking call where it has one, and uses shared memory for the bytes
//! where it carries none itself.

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

pub(crate) use futex::FutexWord;
pub(crate) use unix_socket::many as unix_crowd;

/// Returns every rival of the table of round trips.
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

/// Returns the rivals that also carry one-way messages, for the table of bandwidth.
pub(crate) fn streaming() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(pipe::Pipe { capacity: None }),
        Box::new(pipe::Pipe { capacity: Some(1 << 20) }),
        Box::new(unix_socket::UnixSocket),
    ]
}
