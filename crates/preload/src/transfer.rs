//! What all data calls have in common: whether a session or the kernel serves them, and the rest of
//! one that was half done when its session went home. Not here: the calls (`io`, `sockets`,
//! `messages`, `files`).

use crate::beside::Beside;
use crate::buffers;
use crate::datagrams;
use crate::errno;
use crate::guard::{home, is_open, within};
use crate::library::{Attempt, BytesOnly, Call, FromKernel, Recv, Route, Send, Use, library};
use crate::process::was_cancelled;
use crate::raw::{self, Kernel};
use crate::vectors::{self, IOV_MAX, Rounds};
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering;
use libc::iovec;
use rustix::io::Errno;

/// `UIO_MAXIOV`: the most messages that a plural call looks at.
pub(crate) const MESSAGES_MAX: usize = 1024;
/// Buffers that are put together at a time, on the program's stack.
const FEW: usize = 16;

/// The buffers of a call, as the program gave them.
#[derive(Clone, Copy)]
pub(crate) enum Buffers {
    One(iovec),
    Many(*const iovec, usize),
}

impl Buffers {
    #[inline(always)]
    pub(crate) fn one(at: *const c_void, len: usize) -> Self {
        Self::One(iovec { iov_base: at.cast_mut(), iov_len: len })
    }

    /// The buffers, if the kernel would look at them.
    fn all(&self) -> Option<&[iovec]> {
        match self {
            Self::One(one) => Some(core::slice::from_ref(one)),
            // SAFETY: plain data, which the program leaves alone during the call.
            Self::Many(at, count @ 1..=IOV_MAX) => unsafe { buffers::structures(*at, *count) },
            Self::Many(..) => None,
        }
    }
}

/// Whether the kernel serves calls on `fd` and nobody wants to know: the short way, with nothing
/// entered.
#[inline(always)]
pub(crate) fn is_plain(fd: c_int) -> bool {
    !is_open() || library().is_plain(fd)
}

/// Where a receiving call goes.
#[inline(always)]
pub(crate) fn way_in(fd: c_int) -> Route<'static> {
    if is_open() { ask_way_in(fd) } else { Route::Plain }
}

#[inline(never)]
fn ask_way_in(fd: c_int) -> Route<'static> {
    within(|library| library.reading(fd)).unwrap_or(Route::Plain)
}

/// Where a sending call goes.
#[inline(always)]
pub(crate) fn way_out(fd: c_int) -> Route<'static> {
    if is_open() { ask_way_out(fd) } else { Route::Plain }
}

#[inline(never)]
fn ask_way_out(fd: c_int) -> Route<'static> {
    within(|library| library.writing(fd)).unwrap_or(Route::Plain)
}

/// A kernel call that the library wants to know of. A thread that is cancelled in it never reports;
/// by then nothing moves any more.
#[inline(always)]
pub(crate) fn counted(usage: Use<'static>, kernel: impl Kernel) -> isize {
    let usage = ManuallyDrop::new(usage);
    let result = kernel();
    report(usage, result);
    result
}

#[inline(never)]
fn report(usage: ManuallyDrop<Use<'static>>, result: isize) {
    within(|_| ManuallyDrop::into_inner(usage).done(result));
}

/// A call whose arguments only the kernel can judge: mostly it refuses them, but some it takes
/// (buffers' list at an odd address).
#[cold]
#[inline(never)]
pub(crate) fn refused(fd: c_int, kernel: impl Kernel) -> isize {
    home(fd, false);
    kernel()
}

/// Receives; `kernel` is the kernel's call, for a session at home and for what the kernel refuses
/// anyway. `flags` are those of `recv`, if it is of that family.
#[inline(always)]
pub(crate) fn receive(
    fd: c_int,
    how: Recv,
    flags: Option<c_int>,
    buffers: Buffers,
    kernel: impl Kernel,
) -> isize {
    if is_plain(fd) { kernel() } else { receive_noted(fd, how, flags, buffers, None, kernel) }
}

/// Handlers that ended calls of this thread until now.
pub(crate) fn breaks() -> u32 {
    crate::tls::here().breaks.load(Ordering::Relaxed)
}

/// A session went home while this call waited, and a handler ran before it could wait in the
/// kernel, where that would have ended it.
#[cold]
pub(crate) fn is_broken(fd: c_int, before: u32, dont_wait: bool) -> bool {
    breaks() != before && !dont_wait && !raw::is_nonblocking(fd)
}

/// The same of a descriptor that somebody wants to know of; `beside`: where what comes with the
/// bytes goes.
#[inline(never)]
pub(crate) fn receive_noted(
    fd: c_int,
    how: Recv,
    flags: Option<c_int>,
    buffers: Buffers,
    mut beside: Option<&mut Beside>,
    kernel: impl Kernel,
) -> isize {
    let breaks = breaks();
    let mut attempt = Attempt::default();
    loop {
        let call = match way_in(fd) {
            Route::Plain => return kernel(),
            Route::Kernel(usage) => return counted(usage, kernel),
            Route::Session(call) => call,
        };
        if call.is_datagram() {
            // A read of nothing takes nothing.
            let is_empty = |all: &[iovec]| flags.is_none() && vectors::total(all) == Some(0);
            let Some(all) = buffers.all().filter(|all| !is_empty(all)) else {
                return refused(fd, kernel);
            };
            let mut header = datagrams::header_of(all);
            let flags = flags.unwrap_or(0);
            match datagrams::receive(fd, &call, &mut header, how, flags, &mut attempt) {
                Some(result) => return result,
                None if call.number_is_another() => return errno::count(Err(Errno::BADF)),
                None if is_broken(fd, breaks, how.dont_wait) => {
                    return errno::count(Err(Errno::INTR));
                }
                None => continue,
            }
        }
        let total = buffers.all().and_then(vectors::total);
        let (Some(buffers), Some(total)) = (buffers.all(), total) else {
            return refused(fd, kernel);
        };
        if flags.is_some() && !call.is_socket() {
            return kernel();
        }
        if total == 0 {
            // The kernel waits for the first byte, or does not, as the call may be.
            home(fd, true);
            return kernel();
        }
        match receive_on(&call, buffers, how, beside.as_deref_mut()) {
            Rounds::Left(0) => {}
            Rounds::Left(done) => {
                return receive_rest(fd, (buffers, done, total), how, flags, beside);
            }
            Rounds::Done(Ok(done)) if how.wait_all && done > 0 && done < total => {
                return receive_rest(fd, (buffers, done, total), how, flags, beside);
            }
            // The same call again, where a cancelled thread ends.
            Rounds::Done(Err(Errno::INTR)) if was_cancelled() => {}
            // When a bad buffer matters the kernel knows: it may wait first, or find the end.
            Rounds::Done(Err(Errno::FAULT)) => {
                home(fd, false);
                return kernel();
            }
            Rounds::Done(result) => return errno::count(result),
        }
        if call.number_is_another() {
            return errno::count(Err(Errno::BADF));
        }
        if is_broken(fd, breaks, how.dont_wait) {
            return errno::count(Err(Errno::INTR));
        }
    }
}

#[inline(never)]
fn receive_on(
    call: &Call<'static>,
    buffers: &[iovec],
    how: Recv,
    beside: Option<&mut Beside>,
) -> Rounds {
    let mut bytes_only = BytesOnly::default();
    let kernel: &mut dyn FromKernel = match beside {
        Some(beside) => beside,
        None => &mut bytes_only,
    };
    within(|_| {
        vectors::receive(buffers, how.peek, |slices, is_further| {
            if is_further && kernel.has_ended() {
                return Some(Ok(0));
            }
            let dont_wait = how.dont_wait || (is_further && !how.wait_all);
            call.recv(slices, Recv { dont_wait, ..how }, kernel)
        })
    })
    .unwrap_or(Rounds::Left(0))
}

/// The session went home in the middle of a call: what was asked for in full follows through the
/// kernel.
#[cold]
#[inline(never)]
fn receive_rest(
    fd: c_int,
    (buffers, done, total): (&[iovec], usize, usize),
    how: Recv,
    flags: Option<c_int>,
    beside: Option<&mut Beside>,
) -> isize {
    let (Some(flags), true, true) = (flags, how.wait_all, done < total) else {
        return done as isize;
    };
    if beside.as_ref().is_some_and(|beside| beside.has_ended()) {
        return done as isize;
    }
    if let Route::Session(_) = way_in(fd) {
        // Not home: a signal or a time limit cut it short.
        return done as isize;
    }
    if raw::has_failed(fd) {
        return done as isize;
    }
    let mut beside = beside;
    go_on(buffers, done, |rest| match &mut beside {
        // What came beside the bytes of one call ends the whole.
        Some(beside) if beside.has_ended() => 0,
        Some(beside) => beside.receive(fd, rest, flags),
        None => message_call(libc::SYS_recvmsg, fd, rest, flags),
    })
}

/// Makes a call for what is beyond the first `done` bytes, a few buffers at a time, until one is
/// cut short. How many bytes are done then.
fn go_on(buffers: &[iovec], done: usize, mut call: impl FnMut(&[iovec]) -> isize) -> isize {
    let (mut done, breaks) = (done, breaks());
    let mut room = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; FEW];
    loop {
        let rest = vectors::beyond(buffers, done, &mut room);
        let wanted = rest.iter().map(|buffer| buffer.iov_len).sum();
        let more = if rest.is_empty() { 0 } else { usize::try_from(call(rest)).unwrap_or(0) };
        done += more;
        // A handler that came between two calls would have ended the one of which these are parts.
        if more == 0 || more < wanted || breaks != self::breaks() {
            return done as isize;
        }
    }
}

/// Sends; the rest as for [`receive`].
#[inline(always)]
pub(crate) fn send(
    fd: c_int,
    how: Send,
    flags: Option<c_int>,
    buffers: Buffers,
    kernel: impl Kernel,
) -> isize {
    if is_plain(fd) { kernel() } else { send_noted(fd, how, flags, buffers, kernel) }
}

#[inline(never)]
fn send_noted(
    fd: c_int,
    how: Send,
    flags: Option<c_int>,
    buffers: Buffers,
    kernel: impl Kernel,
) -> isize {
    let breaks = breaks();
    loop {
        let call = match way_out(fd) {
            Route::Plain => return kernel(),
            Route::Kernel(usage) => return counted(usage, kernel),
            Route::Session(call) => call,
        };
        if call.is_datagram() {
            let flags = flags.unwrap_or(0) | if how.dont_wait { libc::MSG_DONTWAIT } else { 0 };
            let sent = buffers
                .all()
                .and_then(|all| datagrams::send(fd, &call, &datagrams::header_of(all), flags));
            return sent.unwrap_or_else(kernel);
        }
        let total = buffers.all().and_then(vectors::total);
        let (Some(buffers), Some(total @ 1..)) = (buffers.all(), total) else {
            return refused(fd, kernel);
        };
        if flags.is_some() && !call.is_socket() {
            return kernel();
        }
        match send_on(&call, buffers, how) {
            Rounds::Left(0) => {}
            Rounds::Left(done) | Rounds::Done(Ok(done)) if done < total => {
                return send_rest(fd, buffers, done, flags);
            }
            Rounds::Left(done) => return done as isize,
            Rounds::Done(Err(Errno::INTR)) if was_cancelled() => {}
            Rounds::Done(result) => return errno::count(result),
        }
        if call.number_is_another() {
            return errno::count(Err(Errno::BADF));
        }
        if is_broken(fd, breaks, how.dont_wait) {
            return errno::count(Err(Errno::INTR));
        }
    }
}

/// Sends a message with something beside its bytes, which is the kernel's to carry: after what the
/// session holds. A kernel that is full is waited for as by a call of bytes.
#[cold]
#[inline(never)]
pub(crate) fn send_by_kernel(fd: c_int, dont_wait: bool, kernel: impl Kernel) -> isize {
    let breaks = breaks();
    loop {
        crate::guard::tell(|library| library.go_home_with_control(fd));
        let call = match way_out(fd) {
            Route::Plain => return kernel(),
            Route::Kernel(usage) => return counted(usage, kernel),
            Route::Session(call) if call.is_datagram() => return kernel(),
            Route::Session(call) => call,
        };
        // It has moved once more, or not everything that it held is in the kernel yet: then sending
        // nothing waits for that.
        match within(|_| call.send(&[], Send { dont_wait })).flatten() {
            None | Some(Ok(_)) => {}
            Some(Err(Errno::INTR)) if was_cancelled() => {}
            Some(Err(error)) => return errno::count(Err(error)),
        }
        if call.number_is_another() {
            return errno::count(Err(Errno::BADF));
        }
        if is_broken(fd, breaks, dont_wait) {
            return errno::count(Err(Errno::INTR));
        }
    }
}

#[inline(never)]
fn send_on(call: &Call<'static>, buffers: &[iovec], how: Send) -> Rounds {
    within(|_| vectors::send(buffers, |slices| call.send(slices, how))).unwrap_or(Rounds::Left(0))
}

#[cold]
#[inline(never)]
fn send_rest(fd: c_int, buffers: &[iovec], done: usize, flags: Option<c_int>) -> isize {
    if let Route::Session(_) = way_out(fd) {
        return done as isize;
    }
    // For room first: a call that has sent something leaves an error that comes later for the next
    // one to say, and that would not be so for one that waits without having sent anything.
    if !raw::has_room(fd) {
        return done as isize;
    }
    go_on(buffers, done, |rest| match flags {
        Some(flags) => message_call(libc::SYS_sendmsg, fd, rest, flags),
        None => {
            let arguments = [fd as usize, rest.as_ptr() as usize, rest.len(), 0, 0, 0];
            // SAFETY: the program's buffers, for the kernel to check.
            unsafe { raw::call(libc::SYS_writev, arguments) }
        }
    })
}

/// `sendmsg` or `recvmsg` of nothing but bytes.
fn message_call(number: i64, fd: c_int, buffers: &[iovec], flags: c_int) -> isize {
    // SAFETY: zeroes are an empty header.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = buffers.as_ptr().cast_mut();
    header.msg_iovlen = buffers.len();
    let arguments = [fd as usize, (&raw mut header) as usize, flags as usize, 0, 0, 0];
    // SAFETY: the header is good; the buffers are the program's, for the kernel to check.
    unsafe { raw::call(number, arguments) }
}
