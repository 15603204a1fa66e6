//! The implementation of `Host`: the services that the protocol library needs from its shell.
//!
//! This file mostly forwards to the modules that do the work. The trait `Host` in `sojourn-library`
//! says when the library calls each function, and why.

use crate::buffers::{Access, accessible};
#[cfg(target_arch = "x86_64")]
use crate::library::OwnCalls;
use crate::library::{EpollEvent, Host, Interrupt, PollFd, Woken, library};
#[cfg(target_arch = "x86_64")]
use crate::rewriting;
use crate::tls::{ADMITS, WAITS};
use crate::{
    deferred, door, handlers, link_map, mask, notice, pause, process, raw, rings, stack, stdio,
    threads, tls,
};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use core::time::Duration;
use libc::timespec;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::process::Pid;
use sojourn_session::ReasonT;

/// The stack of a thread of the library's own, in bytes.
const THREAD_STACK: usize = 256 << 10;

/// Implements `Host` for this process.
#[derive(Debug)]
pub(crate) struct Shell;

pub(crate) static SHELL: Shell = Shell;

impl Host for Shell {
    fn wait_begins(&self) {
        let thread = tls::here();
        thread.ran.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        thread.waiting.store(ADMITS, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if thread.put_off.load(Ordering::Relaxed) != 0 {
            deferred::release(thread);
        }
        thread.has_waited.store(1, Ordering::Relaxed);
        let waits = thread.handler_waits.load(Ordering::Relaxed);
        if waits != 0 {
            thread.ran.store(waits, Ordering::Relaxed);
        }
        compiler_fence(Ordering::SeqCst);
        thread.waiting.store(WAITS, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    fn wait_ends(&self) {
        compiler_fence(Ordering::SeqCst);
        tls::here().waiting.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    fn can_read(&self, bufs: &[IoSlice<'_>]) -> bool {
        bufs.iter()
            .all(|buf| accessible(buf.as_ptr() as usize, buf.len(), Access::Read) == buf.len())
    }

    fn can_write(&self, bufs: &[IoSliceMut<'_>]) -> bool {
        bufs.iter()
            .all(|buf| accessible(buf.as_ptr() as usize, buf.len(), Access::Write) == buf.len())
    }

    fn has_thread_ended(&self, process: Pid, thread: Pid) -> bool {
        let [process, thread] = [process, thread].map(|id| id.as_raw_nonzero().get() as usize);
        // SAFETY: signal 0 is none: the kernel only looks for the thread, in that process.
        let found = unsafe { raw::call(libc::SYS_tgkill, [process, thread, 0, 0, 0, 0]) };
        found == -(libc::ESRCH as isize)
    }

    fn interrupt(&self) -> Interrupt {
        if process::is_cancelling() {
            return Interrupt::Break;
        }
        let thread = tls::here();
        match thread.ran.load(Ordering::Relaxed) {
            0 => Interrupt::None,
            // The handler runs when the guest's call has ended (`guests`).
            1 if thread.handler_waits.load(Ordering::Relaxed) != 0 => {
                thread.restarts.store(1, Ordering::Relaxed);
                Interrupt::Break
            }
            1 => Interrupt::Restart,
            _ => Interrupt::Break,
        }
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
        let limit = timeout.map(to_timespec);
        let word = core::ptr::from_ref(word) as usize;
        let wait = libc::FUTEX_WAIT as usize;
        let arguments = [word, wait, expected as usize, address(&limit), 0, 0];
        match sleep(libc::SYS_futex, arguments, None) {
            Err(Errno::TIMEDOUT) => Woken::TimedOut,
            _ => Woken::Look,
        }
    }

    fn sleeps_on(&self, word: Option<&AtomicU32>) {
        let word = word.map_or(0, |word| core::ptr::from_ref(word) as usize);
        tls::here().sleeps_on.store(word, Ordering::Relaxed);
        // Before the look at what has been put off; a handler on this thread sees the same order.
        compiler_fence(Ordering::SeqCst);
    }

    fn is_wanted_outside(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        tls::here().put_off.load(Ordering::Relaxed) != 0 || process::is_cancelling()
    }

    fn on_own_stack(&self, work: &mut dyn FnMut()) {
        stack::run(work);
    }

    fn without_sigpipe(&self, write: &mut dyn FnMut() -> bool) {
        mask::without_sigpipe(write);
    }

    fn in_handler(&self) -> bool {
        handlers::in_handler(tls::here())
    }

    fn stdio_uses(&self, fd: i32) -> bool {
        stdio::uses(fd)
    }

    #[cfg(target_arch = "x86_64")]
    fn own_calls(&self, numbers: &[i32]) -> OwnCalls {
        rewriting::own_calls(numbers)
    }

    fn when_hot(&self) -> Option<extern "C" fn()> {
        door::note_of_loader()
    }

    fn sees_ring(&self, fd: i32) -> bool {
        rings::sees(library(), fd)
    }

    fn number_closing(&self, fd: i32) {
        rings::closing(fd);
    }

    fn has_polled_ring(&self) -> bool {
        rings::has_polled()
    }

    fn has_ring_library(&self) -> bool {
        link_map::has_liburing()
    }

    fn epoll_wait(
        &self,
        epfd: i32,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let at = events.as_mut_ptr() as usize;
        let wait = |number, limit| {
            sleep(number, [epfd as usize, at, events.len(), limit, address(&mask), 8], mask)
        };
        // epoll_pwait(2) takes whole milliseconds. Only a time limit between "none" and "at once"
        // needs the nanoseconds of epoll_pwait2(2), which is newer.
        let whole = match timeout {
            None => Some(-1),
            Some(Duration::ZERO) => Some(0),
            Some(_) => None,
        };
        if let Some(limit_ms) = whole {
            return wait(libc::SYS_epoll_pwait, limit_ms as usize);
        }
        let limit = timeout.map(to_timespec);
        match wait(libc::SYS_epoll_pwait2, address(&limit)) {
            // The kernel is older than 5.11, or a seccomp filter that predates the call refuses it
            // (some filters answer `EPERM` to unknown calls). epoll_pwait(2) does the same with
            // milliseconds.
            Err(Errno::NOSYS | Errno::PERM) => {
                wait(libc::SYS_epoll_pwait, to_milliseconds(timeout) as usize)
            }
            other => other,
        }
    }

    fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let limit = timeout.map(to_timespec);
        let at = fds.as_mut_ptr() as usize;
        sleep(libc::SYS_ppoll, [at, fds.len(), address(&limit), address(&mask), 8, 0], mask)
    }

    fn last_thread_ended(&self) -> ! {
        process::end_without_threads()
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> bool {
        threads::spawn(name, THREAD_STACK, work)
    }

    fn show(&self, reason: ReasonT) {
        notice::show(reason);
    }

    fn close(&self, fd: i32) {
        // SAFETY: the library owns this descriptor, and closes it only when nothing uses it any
        // more.
        unsafe { raw::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Returns the address of the value, for the kernel; 0 (null) for `None`.
fn address<T>(value: &Option<T>) -> usize {
    value.as_ref().map_or(0, |value| core::ptr::from_ref(value) as usize)
}

fn to_timespec(span: Duration) -> timespec {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    timespec { tv_sec: seconds, tv_nsec: i64::from(span.subsec_nanos()) }
}

/// Returns the time in milliseconds, rounded up, so that no wait ends before its time; -1 for
/// `None`.
fn to_milliseconds(span: Option<Duration>) -> i32 {
    let span = span.map(|span| span.as_nanos().div_ceil(1_000_000));
    span.map_or(-1, |span| i32::try_from(span).unwrap_or(i32::MAX))
}

/// Makes a call during which handlers run at any moment. Also a call that does not sleep: a signal
/// that only its mask lets through cannot be put off, because it is blocked before and afterwards.
fn admitting<R>(thread: &tls::Thread, call: impl FnOnce() -> R) -> R {
    let before = thread.waiting.load(Ordering::Relaxed);
    thread.waiting.store(ADMITS, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let result = call();
    compiler_fence(Ordering::SeqCst);
    thread.waiting.store(before, Ordering::Relaxed);
    result
}

/// Makes a system call that may sleep, and counts the thread as waiting for signal handlers
/// meanwhile.
///
/// With a signal mask the call is made directly: only the kernel knows which signals the mask lets
/// end the call.
fn sleep(number: i64, arguments: [usize; 6], mask: Option<u64>) -> Result<usize, Errno> {
    let thread = tls::here();
    // SAFETY: the arrays and values are the caller's, and live until the call returns.
    let result = unsafe {
        match mask {
            Some(_) => admitting(thread, || pause::call_masked(thread, number, arguments)),
            None => pause::call(thread, number, arguments),
        }
    };
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result as i32))
}
