//! `poll` and `epoll` with their relatives. `select` is in `select`.
//!
//! A wait that the library serves cannot be a cancellation point; see `process` for how it ends nevertheless.

use crate::buffers::{self, Access, accessible};
use crate::descriptors::{numbering, opened};
use crate::errno;
use crate::gate::{from_inside, is_open, tell, within};
use crate::io::overflow;
use crate::library::{EpollEvent, Origin, PollFd};
use crate::next::next;
use crate::process::was_cancelled;
use crate::rings;
use core::ffi::c_int;
use core::time::Duration;
use libc::{nfds_t, sigset_t, timespec};
use rustix::io::Errno;

type PollFn = unsafe extern "C-unwind" fn(*mut PollFd, nfds_t, c_int) -> c_int;
type PPollFn =
    unsafe extern "C-unwind" fn(*mut PollFd, nfds_t, *const timespec, *const sigset_t) -> c_int;
type CreateFn = unsafe extern "C-unwind" fn(c_int) -> c_int;
type ControlFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut EpollEvent) -> c_int;
type WaitFn = unsafe extern "C-unwind" fn(c_int, *mut EpollEvent, c_int, c_int) -> c_int;
type PWaitFn =
    unsafe extern "C-unwind" fn(c_int, *mut EpollEvent, c_int, c_int, *const sigset_t) -> c_int;
type PWait2Fn = unsafe extern "C-unwind" fn(
    c_int,
    *mut EpollEvent,
    c_int,
    *const timespec,
    *const sigset_t,
) -> c_int;

/// A limit in the program's terms that makes sense; what does not is for the kernel to refuse.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) limit: Option<Duration>,
    pub(crate) mask: Option<u64>,
}

/// Milliseconds; negative: for ever.
pub(crate) fn limit_ms(limit: c_int) -> Option<Duration> {
    u64::try_from(limit).ok().map(Duration::from_millis)
}

/// The terms of a call with a `timespec` and a signal mask, either of which may be missing.
pub(crate) fn terms(limit: *const timespec, mask: *const sigset_t) -> Option<Terms> {
    let limit = if limit.is_null() {
        None
    } else {
        // SAFETY: plain data, left alone meanwhile.
        let limit = unsafe { buffers::structure(limit) }?;
        let nanoseconds =
            u32::try_from(limit.tv_nsec).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
        Some(Duration::new(u64::try_from(limit.tv_sec).ok()?, nanoseconds))
    };
    let mask = if mask.is_null() {
        None
    } else {
        // The kernel's set is the first word of the C library's.
        // SAFETY: as above.
        Some(*unsafe { buffers::structure(mask.cast::<u64>()) }?)
    };
    Some(Terms { limit, mask })
}

/// Waits for `fds` with the library's help. `None`: the kernel serves the call.
#[inline(never)]
pub(crate) fn poll_in_library(fds: &mut [PollFd], terms: Terms) -> Option<Result<usize, Errno>> {
    within(|library| {
        let is_concerned = fds.iter().any(|fd| library.concerns(fd.fd));
        is_concerned.then(|| library.poll(fds, terms.limit, terms.mask))
    })
    .flatten()
    .filter(|result| *result != Err(Errno::INTR) || !was_cancelled())
}

/// The program's array, if it makes sense.
fn program_fds<'a>(at: *mut PollFd, count: nfds_t) -> Option<&'a mut [PollFd]> {
    let count = usize::try_from(count).ok().filter(|count| (1..=1 << 20).contains(count))?;
    let len = count * size_of::<PollFd>();
    let is_sound = (at as usize).is_multiple_of(align_of::<PollFd>())
        && accessible(at as usize, len, Access::Write) == len;
    // SAFETY: aligned and writable; the program leaves it alone during the call.
    is_sound.then(|| unsafe { core::slice::from_raw_parts_mut(at, count) })
}

#[inline]
fn serve_poll(at: *mut PollFd, count: nfds_t, terms: Option<Terms>) -> Option<c_int> {
    if !is_open() {
        return None;
    }
    let result = poll_in_library(program_fds(at, count)?, terms?)?;
    Some(errno::count(result) as c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut PollFd, count: nfds_t, limit: c_int) -> c_int {
    let words = [fds as usize, count as usize, limit as usize];
    if let Some(result) = from_inside(libc::SYS_poll, words) {
        return result as c_int;
    }
    match serve_poll(fds, count, Some(Terms { limit: limit_ms(limit), mask: None })) {
        Some(result) => result,
        // SAFETY: passed on.
        None => unsafe { next!(c"poll" as PollFn)(fds, count, limit) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll(fds: *mut PollFd, count: nfds_t, limit: c_int) -> c_int {
    // SAFETY: the same function.
    unsafe { poll(fds, count, limit) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut PollFd,
    count: nfds_t,
    limit: c_int,
    room: usize,
) -> c_int {
    if room / size_of::<PollFd>() < count as usize {
        overflow();
    }
    // SAFETY: the same function.
    unsafe { poll(fds, count, limit) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut PollFd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let terms = if is_open() { terms(limit, mask) } else { None };
    match serve_poll(fds, count, terms) {
        Some(result) => result,
        // SAFETY: passed on.
        None => unsafe { next!(c"ppoll" as PPollFn)(fds, count, limit, mask) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut PollFd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    if room / size_of::<PollFd>() < count as usize {
        overflow();
    }
    // SAFETY: the same function.
    unsafe { ppoll(fds, count, limit, mask) }
}

/// A new set.
fn made(set: c_int) -> c_int {
    if set >= 0 {
        opened(set, Origin::Fresh);
        tell(|library| library.epoll_made(set));
    }
    set
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: passed on.
    made(numbering(|| unsafe { next!(c"epoll_create" as CreateFn)(size) }))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: passed on.
    made(numbering(|| unsafe { next!(c"epoll_create1" as CreateFn)(flags) }))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut EpollEvent,
) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { next!(c"epoll_ctl" as ControlFn)(set, operation, fd, event) };
    if !is_open() {
        return kernel();
    }
    let event = if event.is_null() {
        None
    } else {
        // SAFETY: plain data, left alone meanwhile.
        match unsafe { buffers::structure(event) } {
            Some(event) => Some(*event),
            None if operation == libc::EPOLL_CTL_DEL => None,
            None => return kernel(),
        }
    };
    match within(|library| library.epoll_ctl(set, operation, fd, event.as_ref())) {
        Some(result) => errno::count(result.map(|()| 0)) as c_int,
        None => kernel(),
    }
}

/// Waits for a set with the library's help. `None`: the kernel serves the call.
#[inline]
fn serve_wait(
    set: c_int,
    at: *mut EpollEvent,
    count: c_int,
    terms: Option<Terms>,
) -> Option<c_int> {
    let wanted = usize::try_from(count).ok().filter(|count| (1..=1 << 24).contains(count))?;
    let terms = terms?;
    let len = accessible(at as usize, wanted * size_of::<EpollEvent>(), Access::Write);
    let room = len / size_of::<EpollEvent>();
    if room == 0 {
        return None;
    }
    // SAFETY: writable; a packed structure needs no alignment; the program leaves it alone during the call.
    let events = unsafe { core::slice::from_raw_parts_mut(at, room) };
    let result = within(|library| {
        if rings::has_lost_one(library) {
            library.ring_unseen(false);
        }
        library.epoll_wait(set, events, terms.limit, terms.mask)
    })?;
    if result == Err(Errno::INTR) && was_cancelled() {
        return None;
    }
    Some(errno::count(result) as c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: c_int,
) -> c_int {
    if is_open() {
        let terms = Terms { limit: limit_ms(limit), mask: None };
        if let Some(result) = serve_wait(set, events, count, Some(terms)) {
            return result;
        }
    }
    // SAFETY: passed on.
    unsafe { next!(c"epoll_wait" as WaitFn)(set, events, count, limit) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: c_int,
    mask: *const sigset_t,
) -> c_int {
    if is_open() {
        let terms =
            terms(core::ptr::null(), mask).map(|terms| Terms { limit: limit_ms(limit), ..terms });
        if let Some(result) = serve_wait(set, events, count, terms) {
            return result;
        }
    }
    // SAFETY: passed on.
    unsafe { next!(c"epoll_pwait" as PWaitFn)(set, events, count, limit, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if is_open()
        && let Some(result) = serve_wait(set, events, count, terms(limit, mask))
    {
        return result;
    }
    // SAFETY: passed on.
    unsafe { next!(c"epoll_pwait2" as PWait2Fn)(set, events, count, limit, mask) }
}
