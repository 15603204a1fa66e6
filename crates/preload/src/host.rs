//! What the library asks of its shell.

use crate::library::{EpollEvent, Host, Interrupt, PollFd, library};
use crate::{deferred, handlers, notice, pause, process, raw, rings, stack, stdio, tls};
use core::sync::atomic::{Ordering, compiler_fence};
use core::time::Duration;
use libc::timespec;
use rustix::io::Errno;
use sojourn_session::ReasonT;

/// The shell of this process.
#[derive(Debug)]
pub(crate) struct Shell;

pub(crate) static SHELL: Shell = Shell;

impl Host for Shell {
    fn wait_begins(&self) {
        let thread = tls::here();
        thread.ran.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        thread.waiting.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if thread.put_off.load(Ordering::Relaxed) != 0 {
            deferred::release(thread);
        }
    }

    fn wait_ends(&self) {
        compiler_fence(Ordering::SeqCst);
        tls::here().waiting.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    fn interrupt(&self) -> Interrupt {
        if process::is_cancelling() {
            return Interrupt::Break;
        }
        match tls::here().ran.load(Ordering::Relaxed) {
            0 => Interrupt::None,
            1 => Interrupt::Restart,
            _ => Interrupt::Break,
        }
    }

    fn on_own_stack(&self, work: &mut dyn FnMut()) {
        stack::run(work);
    }

    fn in_handler(&self) -> bool {
        handlers::in_handler(tls::here())
    }

    fn stdio_uses(&self, fd: i32) -> bool {
        stdio::uses(fd)
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
        rings::has_library()
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
            // Before Linux 5.11, or forbidden by somebody who does not know it.
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

    fn show(&self, reason: ReasonT) {
        notice::show(reason);
    }

    fn close(&self, fd: i32) {
        // SAFETY: a descriptor of the library's, which knows what it does.
        unsafe { raw::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Where the kernel finds a value, or null.
fn address<T>(value: &Option<T>) -> usize {
    value.as_ref().map_or(0, |value| core::ptr::from_ref(value) as usize)
}

fn to_timespec(span: Duration) -> timespec {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    timespec { tv_sec: seconds, tv_nsec: i64::from(span.subsec_nanos()) }
}

/// Rounded up, so that nobody wakes too early.
fn to_milliseconds(span: Option<Duration>) -> i32 {
    let span = span.map(|span| span.as_nanos().div_ceil(1_000_000));
    span.map_or(-1, |span| i32::try_from(span).unwrap_or(i32::MAX))
}

/// With a mask, only the kernel knows what may end the call.
fn sleep(number: i64, arguments: [usize; 6], mask: Option<u64>) -> Result<usize, Errno> {
    // SAFETY: the caller's arrays and values, which live until the call is over.
    let result = unsafe {
        match mask {
            Some(_) => raw::call(number, arguments),
            None => pause::call(tls::here(), number, arguments),
        }
    };
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result as i32))
}
