//! The rights of the process: the system calls that its work takes, no capability but perhaps that
//! for packet sockets, and no tracer.
//!
//! Every call that is not listed fails with `EPERM`: a newer C library that tries a call and can do
//! without it goes on. No file can be opened and no program be run. Not here: the confinement of
//! other processes (`sojourn_server::seccomp`, `sojourn_protocol::confine`).

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// What the process may do beside serving the packet sockets that it is handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Nothing.
    None,
    /// Open packet sockets, and accept clients.
    Packets,
}

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
const PROCESS: [i64; 34] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
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
    libc::SYS_prctl,
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
];

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
    PROCESS.into_iter().chain(FRAMES).chain(OLDER).chain(packets.iter().copied())
}

fn filter(rights: Rights) -> Result<BpfProgram, BackendError> {
    let rules: BTreeMap<_, _> = calls(rights).map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
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
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: none })?;
    // The packet sockets must not become a tracer's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(apply_filter_all_threads(&filter(rights)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_opened_no_program_run_and_only_a_listening_driver_opens_sockets() {
        let refused = [libc::SYS_execve, libc::SYS_openat, libc::SYS_bpf, libc::SYS_ptrace];
        for rights in [Rights::None, Rights::Packets] {
            assert!(filter(rights).is_ok());
            assert!(refused.iter().all(|call| !calls(rights).any(|one| one == *call)));
            let opens = calls(rights).any(|one| one == libc::SYS_socket);
            assert_eq!(opens, rights == Rights::Packets);
        }
    }
}
