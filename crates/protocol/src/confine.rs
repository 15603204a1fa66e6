//! The rights of the process: no capability, no tracer, and the system calls that its work takes.
//!
//! Every call that is not listed fails with `EPERM`: a newer C library that tries a call and can do
//! without it goes on. No file can be opened and no program be run. Not here: the confinement of
//! the session server's other processes (`sojourn_server::seccomp`).

use rustix::thread::CapabilitySet;

pub use sojourn_confine::ConfineError;

/// Calls of the library's protocol thread: descriptors of the process.
const THREADS: [i64; 3] = [libc::SYS_close_range, libc::SYS_pidfd_open, libc::SYS_unshare];

/// Calls for sessions: sockets, events, shared memory. `connect` is for the session
/// server and for a socket that goes home, `readlinkat` for a look at the kinds of descriptors,
/// `unshare` for a thread with a table of descriptors of its own (the library's protocol thread).
const SESSIONS: [i64; 38] = [
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
];

/// Calls that write, for both.
const EVENTS: [i64; 2] = [libc::SYS_write, libc::SYS_writev];

/// Calls that only older kinds of processors have.
#[cfg(target_arch = "x86_64")]
const OLDER: [i64; 3] = [libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [i64; 0] = [];

fn calls() -> impl Iterator<Item = i64> {
    sojourn_confine::process().chain(THREADS).chain(SESSIONS).chain(EVENTS).chain(OLDER)
}

/// Gives up every right that the process does not need, for all its threads and for ever.
///
/// # Errors
/// [`ConfineError`]; then the process must not go on.
pub fn confine() -> Result<(), ConfineError> {
    sojourn_confine::confine(CapabilitySet::empty(), calls())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_opened_and_no_program_run() {
        assert!(sojourn_confine::filter(calls()).is_ok());
        let refused = [
            libc::SYS_execve,
            libc::SYS_openat,
            libc::SYS_bpf,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_setns,
            libc::SYS_process_vm_readv,
        ];
        assert!(refused.iter().all(|call| !calls().any(|one| one == *call)));
    }

    #[test]
    fn what_is_not_listed_is_refused_and_sockets_go_on() {
        let confined = || {
            sojourn_confine::apply_filter(&sojourn_confine::filter(calls()).unwrap()).unwrap();
            let opened = rustix::fs::open(
                "/dev/null",
                rustix::fs::OFlags::RDONLY,
                rustix::fs::Mode::empty(),
            );
            let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            (opened.map(drop), rustix::io::write(&one, b"!"))
        };
        // The filter is that thread's alone.
        let found = std::thread::spawn(confined).join().unwrap();
        assert_eq!(found, (Err(rustix::io::Errno::PERM), Ok(1)));
    }
}
