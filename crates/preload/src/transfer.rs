//! The common part of all data calls: the choice between session and kernel.
//!
//! Not here: the calls themselves (`io`, `sockets`, `messages`, `files`), and what is left of one
//! whose session goes home in the middle (`rest`).

use crate::beside::Beside;
use crate::buffers;
use crate::datagrams;
use crate::errno;
use crate::first_calls;
use crate::flags::ReceiveFlags;
use crate::guard::{home, is_open, is_wide_open, within};
use crate::library::{Attempt, BytesOnly, Call, FromKernel, Recv, Route, Send, Use, library};
use crate::process::{end_if_cancelled, was_cancelled};
use crate::raw::{self, Kernel};
use crate::rest::{HandlersRun, Partial, go_on, receive_part, receive_rest, send_part, send_rest};
use crate::vectors::{self, IOV_MAX, Rounds};
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use libc::iovec;
use rustix::io::Errno;

/// `UIO_MAXIOV`: the most messages that sendmmsg(2) and recvmmsg(2) look at.
pub(crate) const MESSAGES_MAX: usize = 1024;

/// The buffers of a call, as the program passes them.
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

    /// Returns the buffers; `None` if the kernel would refuse them or they are not readable.
    fn all(&self) -> Option<&[iovec]> {
        match self {
            Self::One(one) => Some(core::slice::from_ref(one)),
            // SAFETY: plain data, which the program leaves alone during the call.
            Self::Many(at, count @ 1..=IOV_MAX) => unsafe { buffers::structures(*at, *count) },
            Self::Many(..) => None,
        }
    }
}

/// Returns true if the kernel serves calls on `fd` and the library does not count them. This is the
/// short way: nothing is entered.
#[inline(always)]
pub(crate) fn is_kernel_only(fd: c_int) -> bool {
    !is_open() || library().is_kernel_only(fd)
}

/// Makes a data call that the kernel serves and the library does not count. Returns its result.
#[inline(always)]
fn by_kernel(fd: c_int, kernel: impl Kernel) -> Option<isize> {
    if is_wide_open() {
        return library().is_kernel_only(fd).then(kernel);
    }
    first_calls::pass(fd, kernel).or_else(|| is_kernel_only(fd).then(kernel))
}

/// Returns the route of a receiving call.
#[inline(always)]
pub(crate) fn receive_route(fd: c_int) -> Route<'static> {
    if is_open() { ask_receive_route(fd) } else { Route::Plain }
}

#[inline(never)]
fn ask_receive_route(fd: c_int) -> Route<'static> {
    within(|library| library.reading(fd)).unwrap_or(Route::Plain)
}

/// Returns the route of a sending call.
#[inline(always)]
pub(crate) fn send_route(fd: c_int) -> Route<'static> {
    if is_open() { ask_send_route(fd) } else { Route::Plain }
}

#[inline(never)]
fn ask_send_route(fd: c_int) -> Route<'static> {
    within(|library| library.writing(fd)).unwrap_or(Route::Plain)
}

/// Makes a kernel call that the library counts. A thread that is cancelled in the call never
/// reports its end; after a cancellation no session moves any more (`process`).
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

/// Leaves a call to the kernel whose arguments only the kernel can judge, and moves the session
/// home for it. The kernel refuses most of these calls, but serves some (a list of buffers at an
/// unaligned address).
#[cold]
#[inline(never)]
pub(crate) fn refused(fd: c_int, kernel: impl Kernel) -> isize {
    home(fd, false);
    kernel()
}

/// Receives. `kernel` makes the kernel's call: for a session in the kernel, and for arguments that
/// the kernel refuses.
#[inline(always)]
pub(crate) fn receive(
    fd: c_int,
    flags: ReceiveFlags,
    buffers: Buffers,
    kernel: impl Kernel,
) -> isize {
    match by_kernel(fd, kernel) {
        Some(result) => result,
        None => receive_noted(fd, flags, buffers, None, kernel),
    }
}

/// Fails if a call must end whose session went home.
///
/// With `EINTR`: a handler ran before the call could wait in the kernel, where the handler would
/// have interrupted it. With `EBADF`: another thread has given the number to another file or to
/// none (`is_another`). Where a handler of this thread did that the call is made again, as the
/// kernel restarts it, with the number as it is now.
#[cold]
pub(crate) fn homecoming(
    fd: c_int,
    is_another: bool,
    before: HandlersRun,
    dont_wait: bool,
) -> Result<(), Errno> {
    if is_another && before == HandlersRun::until_now() {
        return Err(Errno::BADF);
    }
    let may_wait = || !dont_wait && (is_another || !raw::is_nonblocking(fd));
    if before.is_interrupted() && may_wait() { Err(Errno::INTR) } else { Ok(()) }
}

/// Receives from a descriptor that the library counts or serves. `beside` takes the data that come
/// with the bytes.
#[inline(never)]
pub(crate) fn receive_noted(
    fd: c_int,
    flags: ReceiveFlags,
    buffers: Buffers,
    mut beside: Option<&mut Beside>,
    kernel: impl Kernel,
) -> isize {
    let how = flags.how;
    let handlers = HandlersRun::until_now();
    let mut attempt = Attempt::default();
    loop {
        let call = match receive_route(fd) {
            Route::Plain => return kernel(),
            Route::Kernel(usage) => return counted(usage, kernel),
            Route::Datagrams(call) => {
                // A `read` of 0 bytes takes no datagram, but a `recv` of 0 bytes does.
                let is_empty =
                    |all: &[iovec]| flags.given.is_none() && vectors::total(all) == Some(0);
                let Some(all) = buffers.all().filter(|all| !is_empty(all)) else {
                    return refused(fd, kernel);
                };
                let mut header = datagrams::header_of(all);
                match datagrams::receive(fd, &call, &mut header, flags, &mut attempt) {
                    Some(result) => return result,
                    None => match homecoming(fd, call.number_is_another(), handlers, how.dont_wait)
                    {
                        Ok(()) => continue,
                        Err(error) => return errno::count(Err(error)),
                    },
                }
            }
            Route::Stream(call) => call,
        };
        let total = buffers.all().and_then(vectors::total);
        let (Some(buffers), Some(total)) = (buffers.all(), total) else {
            return refused(fd, kernel);
        };
        if flags.given.is_some() && !call.is_socket() {
            return kernel();
        }
        if total == 0 {
            // The kernel decides if a call for 0 bytes waits for the first byte.
            home(fd, true);
            return kernel();
        }
        match receive_on(&call, buffers, how, beside.as_deref_mut()) {
            Rounds::Left(0) => {}
            Rounds::Left(done) => {
                return receive_more(fd, &Partial { buffers, done, total }, flags, beside);
            }
            Rounds::Done(Ok(done)) if how.wait_all && done > 0 && done < total => {
                return receive_more(fd, &Partial { buffers, done, total }, flags, beside);
            }
            // The call is made again: after a cancellation its session is in the kernel, where the
            // cancelled thread ends, or is on its way there.
            Rounds::Done(Err(Errno::INTR)) if was_cancelled() => end_if_cancelled(),
            // The kernel decides when a bad buffer matters: the call may wait first, or find the
            // end of the stream.
            Rounds::Done(Err(Errno::FAULT)) => {
                home(fd, false);
                return kernel();
            }
            Rounds::Done(result) => return errno::count(result),
        }
        if let Err(error) = homecoming(fd, call.number_is_another(), handlers, how.dont_wait) {
            return errno::count(Err(error));
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

/// Receives the rest of a call that must fill its buffers (`MSG_WAITALL`).
#[cold]
#[inline(never)]
fn receive_more(
    fd: c_int,
    partial: &Partial<'_>,
    flags: ReceiveFlags,
    beside: Option<&mut Beside>,
) -> isize {
    let Partial { buffers, done, .. } = *partial;
    let (Route::Stream(_) | Route::Datagrams(_)) = receive_route(fd) else {
        return receive_rest(fd, partial, flags, beside);
    };
    // The session is not home: a signal or a time limit ended the call, or a thread was cancelled,
    // this one or another, and the session is on its way.
    if !flags.how.wait_all || beside.is_some() || !was_cancelled() {
        return done as isize;
    }
    end_if_cancelled();
    go_on(buffers, done, |rest| {
        let by_kernel = || receive_part(fd, rest, flags.number());
        receive_noted(fd, flags, Buffers::Many(rest.as_ptr(), rest.len()), None, by_kernel)
    })
}

/// Sends; the arguments are as for [`receive`].
#[inline(always)]
pub(crate) fn send(
    fd: c_int,
    how: Send,
    flags: Option<c_int>,
    buffers: Buffers,
    kernel: impl Kernel,
) -> isize {
    match by_kernel(fd, kernel) {
        Some(result) => result,
        None => send_noted(fd, how, flags, buffers, kernel),
    }
}

#[inline(never)]
fn send_noted(
    fd: c_int,
    how: Send,
    flags: Option<c_int>,
    buffers: Buffers,
    kernel: impl Kernel,
) -> isize {
    let handlers = HandlersRun::until_now();
    loop {
        let call = match send_route(fd) {
            Route::Plain => return kernel(),
            Route::Kernel(usage) => return counted(usage, kernel),
            Route::Datagrams(call) => {
                let dont_wait = if how.dont_wait { libc::MSG_DONTWAIT } else { 0 };
                let flags = flags.unwrap_or(0) | dont_wait;
                let sent = buffers
                    .all()
                    .and_then(|all| datagrams::send(fd, &call, &datagrams::header_of(all), flags));
                return sent.unwrap_or_else(kernel);
            }
            Route::Stream(call) => call,
        };
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
                return send_more(fd, how, &Partial { buffers, done, total }, flags);
            }
            Rounds::Left(done) => return done as isize,
            Rounds::Done(Err(Errno::INTR)) if was_cancelled() => end_if_cancelled(),
            // The kernel decides how much it sends of a buffer with a bad end.
            Rounds::Done(Err(Errno::FAULT)) => {
                home(fd, false);
                return kernel();
            }
            Rounds::Done(result) => return errno::count(result),
        }
        if let Err(error) = homecoming(fd, call.number_is_another(), handlers, how.dont_wait) {
            return errno::count(Err(error));
        }
    }
}

/// Sends a message with control data, which only the kernel can carry, after the bytes that the
/// session still holds. If the kernel's buffer is full, the call waits like a call with bytes only.
#[cold]
#[inline(never)]
pub(crate) fn send_by_kernel(fd: c_int, dont_wait: bool, kernel: impl Kernel) -> isize {
    let handlers = HandlersRun::until_now();
    loop {
        crate::guard::tell(|library| library.go_home_with_control(fd));
        let call = match send_route(fd) {
            Route::Plain => return kernel(),
            Route::Kernel(usage) => return counted(usage, kernel),
            Route::Datagrams(_) => return kernel(),
            Route::Stream(call) => call,
        };
        // Either the session has moved out again, or some of its bytes are not in the kernel yet.
        // In the second case, sending 0 bytes waits until they are.
        match within(|_| call.send(&[], Send { dont_wait })).flatten() {
            None | Some(Ok(_)) => {}
            Some(Err(Errno::INTR)) if was_cancelled() => end_if_cancelled(),
            Some(Err(error)) => return errno::count(Err(error)),
        }
        if let Err(error) = homecoming(fd, call.number_is_another(), handlers, dont_wait) {
            return errno::count(Err(error));
        }
    }
}

#[inline(never)]
fn send_on(call: &Call<'static>, buffers: &[iovec], how: Send) -> Rounds {
    within(|_| vectors::send(buffers, |slices| call.send(slices, how))).unwrap_or(Rounds::Left(0))
}

/// Sends the rest of a call.
#[cold]
#[inline(never)]
fn send_more(fd: c_int, how: Send, partial: &Partial<'_>, flags: Option<c_int>) -> isize {
    let Partial { buffers, done, .. } = *partial;
    let (Route::Stream(_) | Route::Datagrams(_)) = send_route(fd) else {
        return send_rest(fd, partial, flags);
    };
    if !was_cancelled() {
        return done as isize;
    }
    // A thread was cancelled, this one or another, and the session is on its way home.
    end_if_cancelled();
    go_on(buffers, done, |rest| {
        let by_kernel = || send_part(fd, rest, flags);
        send_noted(fd, how, flags, Buffers::Many(rest.as_ptr(), rest.len()), by_kernel)
    })
}
