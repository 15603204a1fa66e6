//! The rights of the process: the system calls that its work takes, no capability but perhaps that
//! for packet sockets, and no tracer.
//!
//! Every call that is not listed fails with `EPERM`: a newer C library that tries a call and can do
//! without it goes on. No file can be opened and no program be run. Not here: the confinement of
//! other processes (`sojourn_server::seccomp`, `sojourn_protocol::confine`).

use rustix::thread::CapabilitySet;

pub use sojourn_confine::ConfineError;

/// What the process may do beside serving the packet sockets that it is handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Nothing.
    None,
    /// Open packet sockets, and accept clients.
    Packets,
}

/// Calls for frames and for the IPC: packet sockets, events, shared memory.
const FRAMES: [i64; 25] = [
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_memfd_create,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls that open packet sockets and accept clients.
const PACKETS: [i64; 3] = [libc::SYS_accept4, libc::SYS_bind, libc::SYS_socket];

/// Calls that only older kinds of processors have.
#[cfg(target_arch = "x86_64")]
const OLDER: [i64; 2] = [libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [i64; 0] = [];

fn calls(rights: Rights) -> impl Iterator<Item = i64> {
    let packets: &[i64] = if rights == Rights::Packets { &PACKETS } else { &[] };
    sojourn_confine::process().chain(FRAMES).chain(OLDER).chain(packets.iter().copied())
}

/// Gives up every right that the process does not need, for all its threads and for ever.
///
/// # Errors
/// [`ConfineError`]; then the process must not go on.
pub fn confine(rights: Rights) -> Result<(), ConfineError> {
    let kept = match rights {
        Rights::None => CapabilitySet::empty(),
        Rights::Packets => CapabilitySet::NET_RAW,
    };
    sojourn_confine::confine(kept, calls(rights))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_opened_no_program_run_and_only_a_listening_driver_opens_sockets() {
        let refused = [libc::SYS_execve, libc::SYS_openat, libc::SYS_bpf, libc::SYS_ptrace];
        for rights in [Rights::None, Rights::Packets] {
            assert!(sojourn_confine::filter(calls(rights)).is_ok());
            assert!(refused.iter().all(|call| !calls(rights).any(|one| one == *call)));
            let opens = calls(rights).any(|one| one == libc::SYS_socket);
            assert_eq!(opens, rights == Rights::Packets);
        }
    }
}
