//! The confinement of a process that serves others and opens no file: it gives up its capabilities
//! and its tracer, and a seccomp filter leaves it the system calls that its work takes.
//!
//! Every call that is not listed fails with `EPERM`: a newer C library that tries a call and can do
//! without it goes on. Not here: the lists of calls of each process (`sojourn_protocol::confine`,
//! `sojourn_driver::confine`, `sojourn_server::seccomp`).

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;

pub use seccompiler::{BackendError, BpfProgram, apply_filter};

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

/// The calls that the C library and the Rust standard library make in every process: memory, locks,
/// signals, the end.
pub const EVERY: [i64; 20] = [
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
    libc::SYS_sigaltstack,
];

/// Their further calls in a process with threads; and the limit of descriptors, of which an
/// endpoint gives its clients shares.
const THREADED: [i64; 15] = [
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex_waitv,
    libc::SYS_geteuid,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_prlimit64,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sysinfo,
];

/// Iterates over the calls of both libraries in a process with threads.
pub fn process() -> impl Iterator<Item = i64> {
    EVERY.into_iter().chain(THREADED)
}

/// A system call of which one argument decides whether it is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The call's number.
    pub call: i64,
    /// The argument's place, from 0 on. The kernel takes 32 bits of it.
    pub argument: u8,
    /// The values with which the call is allowed.
    pub values: Values,
}

/// Values of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// This one.
    Only(u32),
    /// All but these.
    AllBut(&'static [u32]),
}

impl Limit {
    fn rule(&self) -> Result<SeccompRule, BackendError> {
        let (operator, values) = match &self.values {
            Values::Only(value) => (SeccompCmpOp::Eq, std::slice::from_ref(value)),
            Values::AllBut(values) => (SeccompCmpOp::Ne, *values),
        };
        let condition = |value: &u32| {
            let (argument, value) = (self.argument, u64::from(*value));
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator.clone(), value)
        };
        SeccompRule::new(values.iter().map(condition).collect::<Result<_, _>>()?)
    }
}

/// Makes the filter that allows these system calls.
///
/// # Errors
/// There is no filter for this kind of processor.
pub fn filter(calls: impl Iterator<Item = i64>) -> Result<BpfProgram, BackendError> {
    filter_within(calls, &[])
}

/// Makes the filter that allows these system calls, those of `limits` only within these.
///
/// # Errors
/// There is no filter for this kind of processor.
pub fn filter_within(
    calls: impl Iterator<Item = i64>,
    limits: &[Limit],
) -> Result<BpfProgram, BackendError> {
    let rules = calls.map(|call| {
        let limits = limits.iter().filter(|limit| limit.call == call);
        Ok((call, limits.map(Limit::rule).collect::<Result<_, _>>()?))
    });
    let rules = rules.collect::<Result<BTreeMap<_, _>, BackendError>>()?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

/// Gives up every right but `kept` and these system calls, for all threads of the process and for
/// ever.
///
/// # Errors
/// [`ConfineError`]; then the process must not go on.
pub fn confine(kept: CapabilitySet, calls: impl Iterator<Item = i64>) -> Result<(), ConfineError> {
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
    // The packet sockets that the process may have must not become a tracer's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    limit(calls)
}

/// Leaves all threads of the process these system calls, for ever.
///
/// # Errors
/// [`ConfineError`]; then there is no filter.
pub fn limit(calls: impl Iterator<Item = i64>) -> Result<(), ConfineError> {
    limit_within(calls, &[])
}

/// Leaves all threads of the process these system calls, for ever, those of `limits` only within
/// these.
///
/// # Errors
/// [`ConfineError`]; then there is no filter.
pub fn limit_within(
    calls: impl Iterator<Item = i64>,
    limits: &[Limit],
) -> Result<(), ConfineError> {
    Ok(apply_filter_all_threads(&filter_within(calls, limits)?)?)
}
