//! The system calls that each of the server's processes may make: seccomp(2) filters.
//!
//! Only the parent runs programs, only the carrier loads anything into the kernel, and only the
//! front and the carrier make memory that programs share. Every call that is not listed here fails
//! with `EPERM`: a newer C library that tries a call and can do without it goes on. A server of one
//! process has no filter but its unit's (`systemd/sojournd.service`).
//!
//! Not here: capabilities (`privileges`).

use sojourn_confine::{ConfineError, EVERY, Limit, Values};

/// A process of the server's that has a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Starts and watches the others (`apart`).
    Parent,
    /// Speaks with clients.
    Front,
    /// Looks into other users' processes.
    Prober,
    /// Carries sessions with other hosts.
    Carrier,
    /// Receives and looks at the objects that one user's programs send (`proxy`).
    Proxy,
    /// Holds the sockets and records that the next server needs (`sojourn_carrier::keep`).
    Keeper,
}

/// A child begins a session of its own.
const CHILD: [i64; 1] = [libc::SYS_setsid];

/// The calls of every process with threads and lines: waiting, sending, receiving.
const LINES: [i64; 26] = [
    libc::SYS_getcpu,
    libc::SYS_preadv2,
    libc::SYS_writev,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_dup,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_fstatfs,
    libc::SYS_futex_waitv,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_shutdown,
    libc::SYS_write,
];

/// The front's calls: clients, their memory and events. It opens no file and makes no socket but
/// pairs.
const FRONT: [i64; 20] = [
    libc::SYS_accept4,
    libc::SYS_clock_nanosleep,
    libc::SYS_eventfd2,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_geteuid,
    libc::SYS_ioctl,
    libc::SYS_memfd_create,
    libc::SYS_nanosleep,
    libc::SYS_pidfd_open,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_readlinkat,
    libc::SYS_fallocate,
    libc::SYS_setsockopt,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_membarrier,
];

/// The prober's calls: files of `/proc`, and watches.
const PROBER: [i64; 13] = [
    libc::SYS_capget,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_geteuid,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_statx,
    libc::SYS_pread64,
];

/// The carrier's calls: sockets of all kinds, interfaces, programs of the kernel's filter, and name
/// spaces of ports.
const CARRIER: [i64; 42] = [
    libc::SYS_fchmodat,
    libc::SYS_sched_setaffinity,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_bpf,
    libc::SYS_clock_nanosleep,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_eventfd2,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_geteuid,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_ioctl,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_open,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_pwrite64,
    libc::SYS_readlinkat,
    libc::SYS_setns,
    libc::SYS_setsockopt,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_unshare,
    libc::SYS_waitid,
    libc::SYS_capget,
];

/// The parent's calls beside those of all others, which have its filter, too: starting and ending
/// processes, and giving up rights.
const PARENT: [i64; 31] = [
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_dup3,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_getegid,
    libc::SYS_getgid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_kill,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pipe2,
    libc::SYS_prlimit64,
    libc::SYS_seccomp,
    libc::SYS_set_tid_address,
    libc::SYS_setgroups,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_signalfd4,
    libc::SYS_tgkill,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_faccessat2,
    libc::SYS_fchdir,
    libc::SYS_flock,
    libc::SYS_getcwd,
    libc::SYS_pidfd_open,
    libc::SYS_dup,
    libc::SYS_faccessat,
];

/// A proxy's calls: threads, questions to descriptors and to `sock_diag` (in other network name
/// spaces, too), and files of `/proc`.
const PROXY: [i64; 35] = [
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
    libc::SYS_fstatfs,
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

/// A keeper's calls: one server at a time, descriptors, and the name of its socket. `connect` ends
/// the connection of a socket that nobody has taken over.
const KEEPER: [i64; 17] = [
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_capset,
    libc::SYS_connect,
    libc::SYS_geteuid,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ppoll,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_unlinkat,
    libc::SYS_capget,
];

/// Calls that only older kinds of processors have: the libraries make them there in place of those
/// above. First those for every process, then those for files.
#[cfg(target_arch = "x86_64")]
const OLDER: [i64; 3] = [libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_readlink];
#[cfg(target_arch = "x86_64")]
const OLDER_FILES: [i64; 5] =
    [libc::SYS_chmod, libc::SYS_lstat, libc::SYS_open, libc::SYS_stat, libc::SYS_unlink];
#[cfg(target_arch = "x86_64")]
const OLDER_PARENT: [i64; 5] =
    [libc::SYS_access, libc::SYS_arch_prctl, libc::SYS_dup2, libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [i64; 0] = [];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_FILES: [i64; 0] = [];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_PARENT: [i64; 0] = [];

/// `linux/sockios.h`.
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;
/// fcntl(2).
const F_SETOWN: u32 = 8;
const F_SETSIG: u32 = 10;
const F_SETOWN_EX: u32 = 15;

/// Calls that could be used against other processes of the same user, and as its unit starts the
/// server all of them are the same user's: the owner of a descriptor gets a signal of the setter's
/// choice from the kernel, `SIGKILL`, too (fcntl(2), `F_SETSIG`), and a limit may end a process.
const LIMITS: [Limit; 3] = [
    Limit {
        call: libc::SYS_fcntl,
        argument: 1,
        values: Values::AllBut(&[F_SETOWN, F_SETSIG, F_SETOWN_EX]),
    },
    Limit { call: libc::SYS_ioctl, argument: 1, values: Values::AllBut(&[FIOSETOWN, SIOCSPGRP]) },
    // Process 0 is the caller.
    Limit { call: libc::SYS_prlimit64, argument: 0, values: Values::Only(0) },
];

impl Part {
    /// Returns all calls that the process may make.
    fn calls(self) -> Vec<i64> {
        let all: [&[i64]; 9] = [
            &PARENT,
            &OLDER_PARENT,
            &OLDER_FILES,
            &LINES,
            &FRONT,
            &PROBER,
            &CARRIER,
            &PROXY,
            &KEEPER,
        ];
        let own: &[&[i64]] = match self {
            Self::Parent => &all,
            Self::Front => &[&LINES, &FRONT],
            Self::Prober => &[&OLDER_FILES, &LINES, &PROBER],
            Self::Carrier => &[&OLDER_FILES, &LINES, &CARRIER],
            Self::Proxy => &[&OLDER_FILES, &PROXY],
            Self::Keeper => &[&OLDER_FILES, &KEEPER],
        };
        let own = own.iter().copied().flatten();
        EVERY.iter().chain(&CHILD).chain(&OLDER).chain(own).copied().collect()
    }
}

/// Limits this process and its threads to the calls of `part`, from now on.
///
/// # Errors
/// [`ConfineError`]; then there is no filter.
pub fn confine(part: Part) -> Result<(), ConfineError> {
    sojourn_confine::limit_within(part.calls().into_iter(), &LIMITS)
}

#[cfg(test)]
#[allow(unsafe_code, reason = "calls that the filter is to refuse")]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd;
    use rustix::process::{Pid, Resource, Rlimit, getppid, getrlimit, prlimit};
    use sojourn_confine::{BackendError, BpfProgram};
    use std::os::unix::net::UnixStream;

    const CHILDREN: [Part; 5] =
        [Part::Front, Part::Prober, Part::Carrier, Part::Proxy, Part::Keeper];

    fn filter(part: Part) -> Result<BpfProgram, BackendError> {
        sojourn_confine::filter_within(part.calls().into_iter(), &LIMITS)
    }

    #[test]
    fn only_the_parent_runs_programs_and_only_the_carrier_loads_anything_into_the_kernel() {
        for part in CHILDREN {
            assert!(filter(part).is_ok());
            for call in [libc::SYS_execve, libc::SYS_execveat, libc::SYS_ptrace, libc::SYS_mount] {
                assert!(!part.calls().contains(&call), "{part:?}: {call}");
            }
            assert_eq!(part.calls().contains(&libc::SYS_bpf), part == Part::Carrier, "{part:?}");
        }
        assert!(!Part::Parent.calls().contains(&libc::SYS_ptrace));
    }

    #[test]
    fn who_speaks_with_clients_opens_no_files_and_connects_to_nobody() {
        let calls = Part::Front.calls();
        let forbidden = [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_unlinkat,
            libc::SYS_socket,
            libc::SYS_bind,
            libc::SYS_connect,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_kill,
            libc::SYS_pidfd_send_signal,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_vm_readv,
            libc::SYS_setresuid,
            libc::SYS_capset,
        ];
        assert!(!calls.iter().any(|call| forbidden.contains(call)));
        #[cfg(target_arch = "x86_64")]
        assert!(!calls.contains(&libc::SYS_open));
    }

    #[test]
    fn the_parents_filter_allows_what_the_others_allow_since_they_have_it_too() {
        let parents = Part::Parent.calls();
        for part in CHILDREN {
            assert!(part.calls().iter().all(|call| parents.contains(call)), "{part:?}");
        }
    }

    #[test]
    fn only_who_asks_of_networks_makes_sockets() {
        for part in CHILDREN {
            let makes = part.calls().contains(&libc::SYS_socket);
            assert_eq!(makes, matches!(part, Part::Carrier | Part::Proxy), "{part:?}");
        }
    }

    #[test]
    fn a_proxy_may_enlarge_the_buffer_that_answers_come_to() {
        let confined = || {
            sojourn_confine::apply_filter(&filter(Part::Proxy).unwrap()).unwrap();
            let (socket, _peer) = UnixStream::pair().unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 16)
        };
        // The filter is that thread's alone.
        assert_eq!(std::thread::spawn(confined).join().unwrap(), Ok(()));
    }

    /// The kernel signals for whoever owns a descriptor, and lets processes of one user limit each
    /// other.
    fn powers_over(other: Pid, socket: &UnixStream, files: Rlimit) -> Vec<&'static str> {
        let (fd, pid) = (socket.as_raw_fd(), other.as_raw_nonzero().get());
        let owner = [0, pid];
        // SAFETY: the calls take numbers, and memory that lives as long as they last.
        let done = unsafe {
            [
                ("F_SETOWN", libc::fcntl(fd, F_SETOWN as i32, pid)),
                ("F_SETSIG", libc::fcntl(fd, F_SETSIG as i32, libc::SIGKILL)),
                ("F_SETOWN_EX", libc::fcntl(fd, F_SETOWN_EX as i32, owner.as_ptr())),
                ("FIOSETOWN", libc::ioctl(fd, FIOSETOWN.into(), &raw const pid)),
                ("SIOCSPGRP", libc::ioctl(fd, SIOCSPGRP.into(), &raw const pid)),
            ]
        };
        let done = done.into_iter().filter_map(|(name, result)| (result == 0).then_some(name));
        let limits = prlimit(Some(other), Resource::Nofile, files).is_ok();
        done.chain(limits.then_some("prlimit")).collect()
    }

    #[test]
    fn no_process_has_others_of_its_user_signalled_or_limited() {
        let (parent, files) = (getppid().unwrap(), getrlimit(Resource::Nofile));
        for part in CHILDREN {
            let (socket, _peer) = UnixStream::pair().unwrap();
            let confined = move || {
                sojourn_confine::apply_filter(&filter(part).unwrap()).unwrap();
                powers_over(parent, &socket, files)
            };
            let none: [&str; 0] = [];
            assert_eq!(std::thread::spawn(confined).join().unwrap(), none, "{part:?}");
        }
        let (socket, _peer) = UnixStream::pair().unwrap();
        let all = powers_over(parent, &socket, files);
        assert!(all.len() >= 5, "without a filter: {all:?}");
    }
}
