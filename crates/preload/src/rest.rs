//! What is left of a data call whose session goes home in the middle: the kernel does the rest.
//!
//! As the calls themselves, the rest is done by the C library's functions where it may wait: only
//! these are cancellation points, at which a thread that is cancelled in the middle of a call ends.
//! No frame here has anything to drop.
//!
//! Not here: the choice between session and kernel (`transfer`).

use crate::beside::Beside;
use crate::flags::ReceiveFlags;
use crate::guard::kernel;
use crate::library::{FromKernel, PollFd};
use crate::prototypes::{PollFn, RecvMsgFn, SendMsgFn, VectorFn};
use crate::raw;
use crate::vectors;
use crate::{guests, taken};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::{iovec, msghdr};

/// Buffers that are collected at a time, on the program's stack.
const FEW: usize = 16;

/// The numbers of handlers of the program that have run in this thread until some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandlersRun {
    /// Without `SA_RESTART`.
    pub(crate) interrupting: u32,
    /// With `SA_RESTART`.
    pub(crate) restarting: u32,
}

impl HandlersRun {
    pub(crate) fn until_now() -> Self {
        let thread = crate::tls::here();
        Self {
            interrupting: thread.interrupting_handlers.load(Ordering::Relaxed),
            restarting: thread.restarting_handlers.load(Ordering::Relaxed),
        }
    }

    /// Returns true if a handler without `SA_RESTART` has run since.
    pub(crate) fn is_interrupted(self) -> bool {
        Self::until_now().interrupting != self.interrupting
    }
}

/// A call that has filled a part of its buffers.
pub(crate) struct Partial<'a> {
    pub(crate) buffers: &'a [iovec],
    /// Bytes.
    pub(crate) done: usize,
    /// Bytes for which there is room.
    pub(crate) total: usize,
}

/// Receives the rest in the kernel, if the session went home in the middle of a call that must fill
/// its buffers (`MSG_WAITALL`).
#[cold]
#[inline(never)]
pub(crate) fn receive_rest(
    fd: c_int,
    partial: &Partial<'_>,
    flags: ReceiveFlags,
    beside: Option<&mut Beside>,
) -> isize {
    let Partial { buffers, done, total } = *partial;
    let (Some(number), true, true) = (flags.given, flags.how.wait_all, done < total) else {
        return done as isize;
    };
    if beside.as_ref().is_some_and(|beside| beside.has_ended()) {
        return done as isize;
    }
    if raw::has_failed(fd) {
        return done as isize;
    }
    let mut beside = beside;
    let dont_wait = flags.how.dont_wait;
    go_on(buffers, done, |rest| match &mut beside {
        // Data beside the bytes of one part end the whole call.
        Some(beside) if beside.has_ended() => 0,
        _ if !has_bytes(fd, dont_wait) => 0,
        Some(beside) => {
            beside.receive(rest, number, |header, flags| receive_message(fd, header, flags))
        }
        None => receive_part(fd, rest, number),
    })
}

/// Makes calls for the bytes behind the first `done`, a few buffers at a time, until a call is cut
/// short. Returns the number of bytes done then.
pub(crate) fn go_on(
    buffers: &[iovec],
    done: usize,
    mut call: impl FnMut(&[iovec]) -> isize,
) -> isize {
    let (mut done, handlers) = (done, HandlersRun::until_now());
    let mut room = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; FEW];
    loop {
        let rest = vectors::beyond(buffers, done, &mut room);
        let wanted = rest.iter().map(|buffer| buffer.iov_len).sum();
        let more = if rest.is_empty() { 0 } else { usize::try_from(call(rest)).unwrap_or(0) };
        done += more;
        // A handler that ran between two calls would have ended the one call that these are parts
        // of.
        if more == 0 || more < wanted || handlers.is_interrupted() {
            return done as isize;
        }
    }
}

/// Sends the rest in the kernel. Returns the number of bytes sent in all.
#[cold]
#[inline(never)]
pub(crate) fn send_rest(fd: c_int, partial: &Partial<'_>, flags: Option<c_int>) -> isize {
    let Partial { buffers, done, .. } = *partial;
    // Room is awaited before sending. A call that has sent some bytes leaves a later error for the
    // next call to report; a call that waits in the kernel without having sent anything would
    // report the error itself, although this call as a whole has sent bytes.
    if !has_room(fd) {
        return done as isize;
    }
    go_on(buffers, done, |rest| send_part(fd, rest, flags))
}

/// Returns a socket's own time limit, for poll(2): `SO_RCVTIMEO` or `SO_SNDTIMEO`.
fn limit_ms(fd: c_int, option: c_int) -> c_int {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let is_limited = raw::option(fd, option, &mut limit) && (limit.tv_sec, limit.tv_usec) != (0, 0);
    // Rounded up: the wait must not be shorter than the socket's own limit.
    let ms = limit.tv_sec.saturating_mul(1000).saturating_add((limit.tv_usec + 999) / 1000);
    if is_limited { ms.min(i64::from(i32::MAX)) as c_int } else { -1 }
}

/// Waits until a socket has bytes, at most for its own `SO_RCVTIMEO`.
///
/// Returns false if it has none, has an error, or if the next byte was sent out of band: there a
/// call ends that has received something. The kernel does not know of this call that it has.
fn has_bytes(fd: c_int, dont_wait: bool) -> bool {
    let waits = !dont_wait && !raw::is_nonblocking(fd);
    let mut one = PollFd { fd, events: libc::POLLIN | libc::POLLPRI, revents: 0 };
    let found = wait(&raw mut one, if waits { limit_ms(fd, libc::SO_RCVTIMEO) } else { 0 });
    found > 0 && one.revents & (libc::POLLERR | libc::POLLNVAL) == 0 && !raw::is_at_mark(fd)
}

/// Waits until a TCP socket can be written, at most for the socket's own `SO_SNDTIMEO`.
///
/// Returns false if the socket has a pending error, if a signal handler ran, or if the time limit
/// has passed. Sockets of other families are not waited for: their `POLLOUT` says nothing about a
/// peer that has stopped reading.
fn has_room(fd: c_int) -> bool {
    let mut domain = 0i32;
    let is_inet = raw::option(fd, libc::SO_DOMAIN, &mut domain)
        && (domain == libc::AF_INET || domain == libc::AF_INET6);
    if !is_inet {
        return !raw::has_failed(fd);
    }
    let mut one = PollFd { fd, events: libc::POLLOUT, revents: 0 };
    let found = wait(&raw mut one, limit_ms(fd, libc::SO_SNDTIMEO));
    let is_bad = one.revents & (libc::POLLERR | libc::POLLNVAL) != 0;
    found > 0 && one.revents & libc::POLLOUT != 0 && !is_bad
}

/// Sends `part` in the kernel, as a message if the call has flags.
pub(crate) fn send_part(fd: c_int, part: &[iovec], flags: Option<c_int>) -> isize {
    match flags {
        Some(flags) => send_message(fd, &header_of(part), flags),
        None => write_vector(fd, part.as_ptr(), part.len() as c_int),
    }
}

/// Receives `part` from the kernel.
pub(crate) fn receive_part(fd: c_int, part: &[iovec], flags: c_int) -> isize {
    receive_message(fd, &mut header_of(part), flags)
}

fn header_of(buffers: &[iovec]) -> msghdr {
    // SAFETY: zeroes are an empty header.
    let mut header: msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = buffers.as_ptr().cast_mut();
    header.msg_iovlen = buffers.len();
    header
}

fn receive_message(fd: c_int, header: *mut msghdr, flags: c_int) -> isize {
    if taken::is_taken() {
        return guests::make(
            libc::SYS_recvmsg,
            [fd as usize, header as usize, flags as usize, 0, 0, 0],
        );
    }
    // SAFETY: the callers' headers are valid; the kernel checks the program's pointers in them.
    unsafe { kernel!(SYS_recvmsg, c"recvmsg" as RecvMsgFn; fd, header, flags)() }
}

fn send_message(fd: c_int, header: *const msghdr, flags: c_int) -> isize {
    if taken::is_taken() {
        return guests::make(
            libc::SYS_sendmsg,
            [fd as usize, header as usize, flags as usize, 0, 0, 0],
        );
    }
    // SAFETY: the callers' headers are valid; the kernel checks the program's pointers in them.
    unsafe { kernel!(SYS_sendmsg, c"sendmsg" as SendMsgFn; fd, header, flags)() }
}

fn write_vector(fd: c_int, at: *const iovec, count: c_int) -> isize {
    if taken::is_taken() {
        return guests::make(libc::SYS_writev, [fd as usize, at as usize, count as usize, 0, 0, 0]);
    }
    // SAFETY: the kernel checks the program's buffers.
    unsafe { kernel!(SYS_writev, c"writev" as VectorFn; fd, at, count)() }
}

fn wait(one: *mut PollFd, ms: c_int) -> isize {
    #[cfg(target_arch = "x86_64")]
    if taken::is_taken() {
        return guests::make(libc::SYS_poll, [one as usize, 1, ms as usize, 0, 0, 0]);
    }
    // SAFETY: the caller's descriptor.
    unsafe { kernel!(older SYS_poll, c"poll" as PollFn; one, 1, ms)() }
}
