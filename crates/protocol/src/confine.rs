//! The rights of the process: no capability, no tracer, and the system calls that its work takes.
//!
//! Every call that is not listed fails with `EPERM`: a newer C library that tries a call and can do
//! without it goes on. No file can be opened and no program be run. Not here: the confinement of
//! the session server's other processes (`sojourn_server::seccomp`).

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// The reason why the process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The kernel keeps the capabilities.
    #[error("capabilities cannot be given up: {0}")]
    Capabilities(#[from] rustix::io::Errno),
    /// There is no filter for this kind of processor.
    #[error("no seccomp filter: {0}")]
    Made(#[from] BackendError),
    /// The kernel refused it.
    #[error("the kernel refused the seccomp filter: {0}")]
    Refused(#[from] seccompiler::Error),
}

/// Calls of the C library and the standard library: memory, locks, threads, time, the end.
const PROCESS: [i64; 38] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pidfd_open,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_nanosleep,
    libc::SYS_unshare,
];

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
    PROCESS.into_iter().chain(SESSIONS).chain(EVENTS).chain(OLDER)
}

fn filter() -> Result<BpfProgram, BackendError> {
    let rules: BTreeMap<_, _> = calls().map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

/// Gives up every right that the process does not need, for all its threads and for ever.
///
/// # Errors
/// [`ConfineError`]; then the process must not go on.
pub fn confine() -> Result<(), ConfineError> {
    set_no_new_privs(true)?;
    // Dropping from the bounding set takes CAP_SETPCAP, so it comes first. A process that lacks
    // that cannot gain anything any more either.
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    // The packet sockets that the process may have must not become a program's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(apply_filter_all_threads(&filter()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_opened_and_no_program_run() {
        assert!(filter().is_ok());
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
            seccompiler::apply_filter(&filter().unwrap()).unwrap();
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
