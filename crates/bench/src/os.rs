//! The system calls that the benchmarks need and the standard library lacks: fork, pinning, clocks,
//! shared anonymous memory, futexes, epoll.
//!
//! This is not a general wrapper: every function is only as general as its one or two callers need.
//! Read `ipc/worker.rs` next, which builds measured processes from these functions.
#![allow(unsafe_code, reason = "system calls without a safe wrapper; one place for all of them")]

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes; both clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns monotonic time in nanoseconds.
#[inline]
pub(crate) fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time (user and system) of this process and all its threads, in
/// nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Measures the rate of the processor's time-stamp counter in cycles per nanosecond; returns 0 on
/// architectures without one.
pub(crate) fn cycles_per_ns() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: reads a counter that every x86-64 processor has.
        let counter = || unsafe { core::arch::x86_64::_rdtsc() };
        let (start, first) = (now_ns(), counter());
        std::thread::sleep(Duration::from_millis(50));
        (counter() - first) as f64 / (now_ns() - start) as f64
    }
    #[cfg(not(target_arch = "x86_64"))]
    0.0
}

/// Returns the processors on which this process may run, in ascending order.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is the empty set; the call writes at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: indices are below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Ties the calling thread to one processor.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    ensure!(cpu < libc::CPU_SETSIZE as usize, "processor {cpu} is out of range");
    // SAFETY: `set` is a valid set and `cpu` is in range.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    ensure!(result == 0, "pinning to processor {cpu}: {}", io::Error::last_os_error());
    Ok(())
}

/// Makes this process run before all processes of the normal policy, until it sleeps (sched(7),
/// `SCHED_FIFO`).
pub(crate) fn before_all_others() -> Result<()> {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives through the call.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
    ensure!(done == 0, "real time: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Forks. `child` runs in the new process, which dies with this one and never returns from here.
/// Other threads of the caller may exist, but must hold no lock that the child needs: only the
/// calling thread goes on in the child (fork(2)).
pub(crate) fn fork(child: impl FnOnce() -> i32) -> Result<libc::pid_t> {
    let parent = std::process::id();
    // SAFETY: the caller promises that no thread that is not copied holds a lock that the child
    // needs; the C library handles its own locks.
    let pid = unsafe { libc::fork() };
    ensure!(pid >= 0, "fork: {}", io::Error::last_os_error());
    if pid != 0 {
        return Ok(pid);
    }
    // SAFETY: plain system calls. The check of the parent closes the race with a parent that died
    // before prctl(2) took effect.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() as u32 != parent {
            libc::_exit(1);
        }
    }
    let status = child();
    // SAFETY: _exit(2) leaves without running the coordinator's exit handlers a second time.
    unsafe { libc::_exit(status) }
}

/// Collects a child that has been told to end; kills it after `patience`.
pub(crate) fn reap(pid: libc::pid_t, patience: Duration) {
    let deadline = Instant::now() + patience;
    // SAFETY: `pid` is a child that has not been collected yet, so it cannot name another process.
    unsafe {
        while libc::waitpid(pid, ptr::null_mut(), libc::WNOHANG) == 0 {
            if Instant::now() > deadline {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, ptr::null_mut(), 0);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Lets any process of this user read this process's memory with `process_vm_readv`, where the
/// security module Yama would forbid it (`PR_SET_PTRACER`, prctl(2)).
pub(crate) fn allow_reading_us() {
    // SAFETY: takes integers only; fails harmlessly where the module is absent.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// Zeroed memory that is shared with processes forked later. It is never unmapped and lives as long
/// as its process.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    start: NonNull<u8>,
    len: usize,
}

impl Shared {
    /// Maps and touches `len` bytes.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        ensure!(start != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        Ok(Self { start: NonNull::new(start.cast()).context("mmap gave address 0")?, len })
    }

    /// Returns the 32-bit word at byte `offset`, a multiple of 4.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: in bounds, aligned, mapped for the life of the process, and only accessed as an
        // atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: in bounds; the protocol of the row lets one side at a time touch the data.
        unsafe {
            let to = self.start.as_ptr().add(offset);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies from `offset` into `bytes`.
    #[inline]
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: in bounds; the protocol of the row lets one side at a time touch the data.
        unsafe {
            let from = self.start.as_ptr().add(offset);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }
}

/// Sleeps while `word` is `value`; the futex is shared between processes.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
    let forever = ptr::null::<libc::timespec>();
    // SAFETY: `word` is valid; spurious returns are allowed, as callers check the word again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, forever) };
}

/// Wakes one process that sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Copies from `address` in process `pid` into `to`.
pub(crate) fn read_process(pid: libc::pid_t, address: u64, to: &mut [u8]) -> Result<()> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: `local` covers `to`; the kernel checks the remote side.
    let copied = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    ensure!(copied == to.len() as isize, "process_vm_readv: {}", io::Error::last_os_error());
    Ok(())
}

/// Sets the capacity of a pipe.
pub(crate) fn set_pipe_capacity(pipe: &impl AsRawFd, bytes: usize) -> Result<()> {
    // SAFETY: takes a valid descriptor and an integer.
    let result = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes as libc::c_int) };
    ensure!(result >= 0, "F_SETPIPE_SZ: {}", io::Error::last_os_error());
    Ok(())
}

/// Makes reads and writes of a descriptor return at once instead of blocking.
pub(crate) fn set_nonblocking(descriptor: &impl AsRawFd) -> Result<()> {
    let raw = descriptor.as_raw_fd();
    // SAFETY: takes a valid descriptor and integers.
    let result = unsafe {
        let flags = libc::fcntl(raw, libc::F_GETFL);
        libc::fcntl(raw, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    ensure!(result >= 0, "O_NONBLOCK: {}", io::Error::last_os_error());
    Ok(())
}

/// Makes an event descriptor (eventfd(2)).
pub(crate) fn eventfd() -> Result<std::fs::File> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: takes integers.
    let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    ensure!(raw >= 0, "eventfd: {}", io::Error::last_os_error());
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { std::fs::File::from_raw_fd(raw) })
}

/// Kills this process after `seconds`, in whatever call it is then: the last watchdog.
pub(crate) fn die_after(seconds: u32) {
    // SAFETY: takes an integer; the default action of SIGALRM ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Raises the limit of open descriptors to the hard limit.
pub(crate) fn raise_descriptor_limit() {
    // SAFETY: `limit` is valid for reads and writes.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// An epoll(7) instance.
pub(crate) struct Poller(std::os::fd::OwnedFd);

impl Poller {
    /// Makes an instance that watches no descriptor.
    pub(crate) fn new() -> Result<Self> {
        use std::os::fd::FromRawFd as _;
        // SAFETY: takes an integer.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        ensure!(raw >= 0, "epoll_create1: {}", io::Error::last_os_error());
        // SAFETY: a fresh descriptor that nothing else owns.
        Ok(Self(unsafe { std::os::fd::OwnedFd::from_raw_fd(raw) }))
    }

    /// Watches `descriptor` for input, level-triggered, as `token`.
    pub(crate) fn add(&self, descriptor: &impl AsRawFd, token: u64) -> Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        let (own, raw) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: `event` is valid for reads.
        let result = unsafe { libc::epoll_ctl(own, libc::EPOLL_CTL_ADD, raw, &mut event) };
        ensure!(result == 0, "epoll_ctl: {}", io::Error::last_os_error());
        Ok(())
    }

    /// Sleeps until a descriptor is ready, and puts the tokens of all ready descriptors into
    /// `ready`.
    pub(crate) fn wait(&self, ready: &mut Vec<u64>) -> Result<()> {
        self.collect(ready, -1)
    }

    /// Does the same without sleeping; `ready` may stay empty.
    pub(crate) fn look(&self, ready: &mut Vec<u64>) -> Result<()> {
        self.collect(ready, 0)
    }

    fn collect(&self, ready: &mut Vec<u64>, patience_ms: libc::c_int) -> Result<()> {
        const MANY: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MANY];
        // SAFETY: `events` is valid for writes of MANY events.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                MANY as libc::c_int,
                patience_ms,
            )
        };
        ensure!(count >= 0, "epoll_wait: {}", io::Error::last_os_error());
        ready.clear();
        ready.extend(events[..count as usize].iter().map(|event| event.u64));
        Ok(())
    }
}
