//! The system calls that the server's other processes may make: seccomp(2) filters.
//!
//! A proxy has what one user's programs send, and a keeper outlives its server. Neither runs
//! programs or loads anything into the kernel, so neither may. Every other call than those listed
//! here fails with `EPERM`: a newer C library that tries one and does without goes on. The server
//! itself is limited by its unit (`systemd/sojournd.service`).
//!
//! Not here: capabilities (`privileges`).

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// A process of the server's that has a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Receives and looks at what one user's programs send (`proxy`).
    Proxy,
    /// Holds what the next server needs (`sojourn_carrier::keep`).
    Keeper,
}

/// Why a process has no filter.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// There is none for this kind of processor.
    #[error("no seccomp filter: {0}")]
    Made(#[from] BackendError),
    /// The kernel refused it.
    #[error("the kernel refused the seccomp filter: {0}")]
    Refused(#[from] seccompiler::Error),
}

/// What the C library and the Rust standard library do in every process: memory, locks, the end.
const EVERY: [i64; 21] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_setsid,
    libc::SYS_sigaltstack,
];

/// A proxy's: threads, questions to descriptors and to `sock_diag` (in other network name spaces,
/// too), and files of `/proc`.
const PROXY: [i64; 34] = [
    libc::SYS_bind,
    libc::SYS_chdir,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_dup,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_fstat,
    libc::SYS_getpeername,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setns,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_statx,
];

/// A keeper's: one server at a time, descriptors, and the name of its socket. `connect` ends the
/// connection of a socket that nobody has taken over.
const KEEPER: [i64; 13] = [
    libc::SYS_accept4,
    libc::SYS_capset,
    libc::SYS_connect,
    libc::SYS_geteuid,
    libc::SYS_getsockopt,
    libc::SYS_ppoll,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_unlinkat,
    libc::SYS_capget,
];

/// Calls that only older kinds of processors have: what the libraries make there in place of those
/// above.
#[cfg(target_arch = "x86_64")]
const OLDER: [i64; 7] = [
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [i64; 0] = [];

impl Part {
    fn calls(self) -> &'static [i64] {
        match self {
            Self::Proxy => &PROXY,
            Self::Keeper => &KEEPER,
        }
    }

    fn filter(self) -> Result<BpfProgram, BackendError> {
        let calls = EVERY.iter().chain(&OLDER).chain(self.calls());
        let rules: BTreeMap<_, _> = calls.map(|call| (*call, Vec::new())).collect();
        let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let architecture = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
    }
}

/// From now on this process and its threads make no other calls than those of `part`.
///
/// # Errors
/// [`SeccompError`]; then there is no filter.
pub fn confine(part: Part) -> Result<(), SeccompError> {
    Ok(apply_filter_all_threads(&part.filter()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_runs_programs_nor_loads_anything_into_the_kernel() {
        for part in [Part::Proxy, Part::Keeper] {
            assert!(part.filter().is_ok());
            for call in [libc::SYS_execve, libc::SYS_bpf, libc::SYS_ptrace, libc::SYS_mount] {
                assert!(!EVERY.iter().chain(&OLDER).chain(part.calls()).any(|one| *one == call));
            }
        }
    }

    #[test]
    fn only_a_proxy_makes_sockets() {
        assert!(!KEEPER.contains(&libc::SYS_socket) && PROXY.contains(&libc::SYS_socket));
    }

    #[test]
    fn a_proxy_may_enlarge_the_buffer_that_answers_come_to() {
        let confined = || {
            seccompiler::apply_filter(&Part::Proxy.filter().unwrap()).unwrap();
            let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 16)
        };
        // The filter is that thread's alone.
        assert_eq!(std::thread::spawn(confined).join().unwrap(), Ok(()));
    }
}
