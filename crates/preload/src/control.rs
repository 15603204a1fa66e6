//! `fcntl` and `ioctl`: the commands that change how a session behaves, and the questions for the
//! length of its queues.
//!
//! Not here: socket options (`options`).

use crate::descriptors::{duplicated, is_own, not_open, numbering};
use crate::first_calls::is_open_for;
use crate::guard::home;
use crate::guard::kernel;
use crate::guard::{is_initialized, tell, within};
use crate::library::Queue;
use crate::raw::Kernel;
use crate::trampoline::alias;
use crate::{buffers, errno, raw};
use core::ffi::{c_int, c_ulong};

// Both functions take their variable argument in the register of a third fixed argument (System V
// ABI, AMD64 supplement), so a fixed signature serves.
type FcntlFn = unsafe extern "C-unwind" fn(c_int, c_int, usize) -> c_int;
type IoctlFn = unsafe extern "C-unwind" fn(c_int, c_ulong, usize) -> c_int;

/// `SIOCOUTQNSD`: unix(7), tcp(7).
const SIOCOUTQNSD: c_ulong = 0x894b;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_fcntl, c"fcntl64" as FcntlFn; fd, command, argument) };
    fcntl_by(fd, command, argument, kernel) as c_int
}

/// Returns true if a call on `fd` concerns the library. One that is not initialized is concerned
/// only by calls after which the descriptor stays in the kernel.
#[inline]
fn concerns(fd: c_int, keeps_in_kernel: impl Fn() -> bool) -> bool {
    (is_initialized() || keeps_in_kernel()) && is_open_for(fd)
}

/// Returns true for commands of fcntl(2) after which a session stays in the kernel: a pipe's packet
/// mode, whose messages a ring does not keep apart (`O_DIRECT`, pipe(2)), and the size of its
/// buffer are the kernel's work.
fn keeps_in_kernel(command: c_int, argument: usize) -> bool {
    match command {
        libc::F_SETFL => argument as c_int & libc::O_DIRECT != 0,
        _ => matches!(command, libc::F_SETPIPE_SZ | libc::F_NOTIFY),
    }
}

/// Serves [`fcntl`]; `kernel` makes the kernel's call.
pub(crate) fn fcntl_by(fd: c_int, command: c_int, argument: usize, kernel: impl Kernel) -> isize {
    if !concerns(fd, || keeps_in_kernel(command, argument)) {
        return kernel();
    }
    if is_own(fd) {
        return not_open() as isize;
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            duplicated(fd, numbering(kernel) as c_int) as isize
        }
        libc::F_SETFL => {
            if keeps_in_kernel(command, argument) {
                home(fd, true);
            }
            let result = kernel();
            if result >= 0 {
                tell(|library| library.flags_changed(fd));
            }
            result
        }
        _ if keeps_in_kernel(command, argument) => {
            home(fd, true);
            kernel()
        }
        _ => kernel(),
    }
}

alias!(fcntl64 = fcntl, __fcntl = fcntl);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_ioctl, c"ioctl" as IoctlFn; fd, request, argument) };
    ioctl_by(fd, request, argument, kernel) as c_int
}

/// Serves [`ioctl`]; `kernel` makes the kernel's call.
pub(crate) fn ioctl_by(fd: c_int, request: c_ulong, argument: usize, kernel: impl Kernel) -> isize {
    let keeps = || !is_answered(c_ulong::from(request as u32));
    if !concerns(fd, keeps) {
        return kernel();
    }
    // The kernel's request is 32 bits wide.
    match c_ulong::from(request as u32) {
        libc::FIONREAD => {
            if let Some(result) = of_carried(fd, request, argument, Queue::Input) {
                return result;
            }
            tell(|library| library.recall_foreign(fd));
            // On a UDP socket `FIONREAD` returns the size of the next datagram (udp(7)).
            if let Some(Some(len)) = within(|library| library.next_datagram(fd)) {
                let result = kernel();
                if result == 0 {
                    // SAFETY: the kernel has just written the length there.
                    unsafe { (argument as *mut c_int).write_unaligned(len as c_int) };
                }
                return result;
            }
            let mut result = None;
            let ask = || result = Some(ask_kernel(fd, request, argument));
            let more = within(|library| library.input_queue(fd, ask)).flatten();
            queued(result.map_or_else(kernel, errno::kernel), argument, more)
        }
        libc::TIOCOUTQ | SIOCOUTQNSD => {
            let is_unsent = c_ulong::from(request as u32) == SIOCOUTQNSD;
            let queue = if is_unsent { Queue::Unsent } else { Queue::Output };
            if let Some(result) = of_carried(fd, request, argument, queue) {
                return result;
            }
            tell(|library| library.recall_foreign(fd));
            // The kernel is asked last: bytes that go from the ring to the kernel meanwhile count
            // twice then, not as gone.
            let more = within(|library| library.output_queue(fd)).flatten();
            queued(kernel(), argument, more)
        }
        libc::FIONBIO | libc::FIOASYNC => {
            let result = kernel();
            if result == 0 {
                tell(|library| library.flags_changed(fd));
            }
            result
        }
        request if is_answered(request) => kernel(),
        _ => {
            home(fd, true);
            kernel()
        }
    }
}

/// Returns true for requests after which a session can be away: those that [`ioctl_by`] serves,
/// those about close-on-exec, which is a property of the number, and those for others.
fn is_answered(request: c_ulong) -> bool {
    match request {
        libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD => true,
        libc::FIONBIO | libc::FIOASYNC => true,
        libc::FIOCLEX | libc::FIONCLEX => true,
        _ => is_for_others(request),
    }
}

/// Returns true for requests to terminals ('T', 0x54) and to network interfaces (0x89) that do not
/// concern a stream.
fn is_for_others(request: c_ulong) -> bool {
    const SIOCATMARK: c_ulong = 0x8905;
    match request {
        SIOCATMARK => false,
        _ => matches!(request >> 8 & 0xff, 0x54 | 0x89),
    }
}

/// Answers the length of a queue of a session with another host.
fn of_carried(fd: c_int, request: c_ulong, argument: usize, queue: Queue) -> Option<isize> {
    let count = argument as *mut c_int;
    let result = within(|library| {
        library.ask_queue(fd, queue, |all| {
            let result = ask_kernel(fd, request, argument);
            if result == 0 && buffers::is_writable(count) {
                // SAFETY: the kernel has just written the length there.
                let kernels = usize::try_from(unsafe { count.read_unaligned() }).unwrap_or(0);
                let all = c_int::try_from(all(kernels)).unwrap_or(c_int::MAX);
                // SAFETY: the kernel has just written the length there.
                unsafe { count.write_unaligned(all) };
            }
            result
        })
    });
    result.flatten().map(errno::kernel)
}

/// Makes the program's call for the library. A failed one returns a negative error number.
fn ask_kernel(fd: c_int, request: c_ulong, argument: usize) -> isize {
    // SAFETY: the kernel checks the program's arguments.
    unsafe { raw::call(libc::SYS_ioctl, [fd as usize, request as usize, argument, 0, 0, 0]) }
}

/// Adds the bytes that the library holds to the kernel's answer.
fn queued(result: isize, argument: usize, more: Option<usize>) -> isize {
    let count = argument as *mut c_int;
    if result == 0
        && buffers::is_writable(count)
        && let Some(more) = more
    {
        // SAFETY: the kernel has just written the length there.
        unsafe { count.write_unaligned(count.read_unaligned().saturating_add(more as c_int)) };
    }
    result
}
