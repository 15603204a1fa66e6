//! `poll`, `epoll_wait` and their relatives. `select` is in `select`.
//!
//! A wait that the library serves is not a cancellation point; `process::was_cancelled` says how it
//! ends nevertheless.

use crate::buffers::overflow;
use crate::buffers::{self, Access, accessible};
use crate::descriptors::{numbering, opened};
use crate::errno;
use crate::guard::home;
use crate::guard::kernel;
use crate::guard::{is_open, tell, within};
use crate::library::{EpollEvent, Origin, PollFd};
use crate::next::{next, own};
use crate::process::was_cancelled;
use crate::prototypes::PollFn;
use crate::raw::{self, Kernel};
use crate::rings;
use crate::trampoline::alias;
use core::cell::Cell;
use core::ffi::c_int;
use core::time::Duration;
use libc::{nfds_t, sigset_t, timespec};
use rustix::event::epoll::{EventData, EventFlags};
use rustix::io::Errno;
use std::time::Instant;

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

/// A time limit and a signal mask that are valid. The kernel refuses calls with invalid ones.
#[derive(Clone, Copy)]
pub(crate) struct WaitTerms {
    pub(crate) limit: Option<Duration>,
    pub(crate) mask: Option<u64>,
}

impl WaitTerms {
    /// Makes a limit of milliseconds; a negative one means no limit.
    pub(crate) fn of_ms(limit: c_int) -> Self {
        Self { limit: u64::try_from(limit).ok().map(Duration::from_millis), mask: None }
    }
}

/// Measures the remaining time of a call that reports it, while the library serves the call. The
/// kernel reports the time by itself when it serves the call.
#[derive(Default)]
pub(crate) struct Countdown(Cell<Option<TimeLimit>>);

/// The limit of a call that has begun.
#[derive(Clone, Copy)]
struct TimeLimit {
    begun: Instant,
    limit: Duration,
}

impl Countdown {
    pub(crate) fn begin(&self, limit: Duration) {
        self.0.set(Some(TimeLimit { begun: Instant::now(), limit }));
    }

    /// Makes the kernel's call instead, and stops the measurement.
    pub(crate) fn left_to(&self, kernel: impl Kernel) -> isize {
        self.0.set(None);
        kernel()
    }

    pub(crate) fn left(&self) -> Option<Duration> {
        self.0.get().map(|one| one.limit.saturating_sub(one.begun.elapsed()))
    }
}

/// Returns the terms of a call with milliseconds and a signal mask, which may be null.
pub(crate) fn masked(limit: c_int, mask: *const sigset_t) -> Option<WaitTerms> {
    let mask = terms(core::ptr::null(), mask)?.mask;
    Some(WaitTerms { mask, ..WaitTerms::of_ms(limit) })
}

/// Returns the terms of a call with a `timespec` and a signal mask, of which each may be null;
/// `None` if they cannot be read or are invalid.
pub(crate) fn terms(limit: *const timespec, mask: *const sigset_t) -> Option<WaitTerms> {
    let limit = if limit.is_null() {
        None
    } else {
        // SAFETY: plain data, which the program leaves alone during the call.
        let limit = unsafe { buffers::structure(limit) }?;
        let nanoseconds =
            u32::try_from(limit.tv_nsec).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
        Some(Duration::new(u64::try_from(limit.tv_sec).ok()?, nanoseconds))
    };
    let mask = if mask.is_null() {
        None
    } else {
        // The kernel's signal set is the first word of the C library's larger set.
        // SAFETY: plain data, which the program leaves alone during the call.
        Some(unsafe { buffers::structure(mask.cast::<u64>()) }?)
    };
    Some(WaitTerms { limit, mask })
}

/// Waits for `fds` in the library; `None` if the kernel is to serve the call.
#[inline(never)]
pub(crate) fn poll_in_library(
    fds: &mut [PollFd],
    terms: WaitTerms,
) -> Option<Result<usize, Errno>> {
    within(|library| {
        let is_concerned = fds.iter().any(|fd| library.concerns(fd.fd));
        is_concerned.then(|| library.poll(fds, terms.limit, terms.mask))
    })
    .flatten()
    .filter(|result| *result != Err(Errno::INTR) || !was_cancelled())
}

/// Returns the program's array; `None` if the kernel would refuse its length or the array is not
/// accessible.
fn program_fds<'a>(at: *mut PollFd, count: nfds_t) -> Option<&'a mut [PollFd]> {
    /// Longer arrays are compared with `RLIMIT_NOFILE`, which is rarely lower than this.
    const FEW: usize = 256;
    let count = usize::try_from(count).ok().filter(|count| (1..=1 << 20).contains(count))?;
    if count > FEW && count as u64 > raw::most_descriptors() {
        return None;
    }
    let len = count * size_of::<PollFd>();
    if accessible(at as usize, len, Access::Write) != len {
        return None;
    }
    if !(at as usize).is_multiple_of(align_of::<PollFd>()) {
        // The kernel accepts an unaligned array, but a Rust slice must be aligned.
        for index in 0..count {
            // SAFETY: `index` is below `count`, and the array is readable.
            home(unsafe { at.add(index).read_unaligned() }.fd, true);
        }
        return None;
    }
    // SAFETY: aligned and writable; the program leaves the array alone during the call.
    Some(unsafe { core::slice::from_raw_parts_mut(at, count) })
}

/// Serves `poll` and `ppoll`; `kernel` makes the kernel's call. `terms` returns `None` if the
/// kernel is to refuse them.
#[inline]
pub(crate) fn poll_by(
    at: *mut PollFd,
    count: nfds_t,
    terms: impl FnOnce() -> Option<WaitTerms>,
    kernel: impl Kernel,
) -> isize {
    if !is_open() {
        return kernel();
    }
    let served = program_fds(at, count).and_then(|fds| poll_copied(fds, terms()?));
    served.map_or_else(kernel, errno::count)
}

/// Polls a copy of the program's array, as the kernel does: another thread may change or unmap the
/// array meanwhile.
#[inline]
fn poll_copied(fds: &mut [PollFd], terms: WaitTerms) -> Option<Result<usize, Errno>> {
    const FEW: usize = 32;
    let mut few = [PollFd::NONE; FEW];
    match few.get_mut(..fds.len()) {
        Some(copy) => poll_by_copy(fds, copy, terms),
        None => poll_long(fds, terms),
    }
}

/// Polls a copy, on the heap, of an array that is too long for the stack.
#[inline(never)]
fn poll_long(fds: &mut [PollFd], terms: WaitTerms) -> Option<Result<usize, Errno>> {
    // Only a call that concerns the library pays for the copy.
    within(|library| fds.iter().any(|fd| library.concerns(fd.fd))).filter(|is| *is)?;
    let mut copy = Vec::new();
    if copy.try_reserve_exact(fds.len()).is_err() {
        return Some(Err(Errno::NOMEM));
    }
    copy.resize(fds.len(), PollFd::NONE);
    poll_by_copy(fds, &mut copy, terms)
}

#[inline]
fn poll_by_copy(
    fds: &mut [PollFd],
    copy: &mut [PollFd],
    terms: WaitTerms,
) -> Option<Result<usize, Errno>> {
    copy.copy_from_slice(fds);
    let found = poll_in_library(copy, terms)?;
    if accessible(fds.as_ptr() as usize, size_of_val(copy), Access::Write) < size_of_val(copy) {
        return Some(Err(Errno::FAULT));
    }
    for (place, polled) in fds.iter_mut().zip(copy.iter()) {
        place.revents = polled.revents;
    }
    Some(found)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn poll(fds: *mut PollFd, count: nfds_t, limit: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(older SYS_poll, c"poll" as PollFn; fds, count, limit) };
    poll_by(fds, count, || Some(WaitTerms::of_ms(limit)), kernel) as c_int
}

alias!(__poll = poll);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut PollFd,
    count: nfds_t,
    limit: c_int,
    room: usize,
) -> c_int {
    if room / size_of::<PollFd>() < count as usize {
        overflow();
    }
    let same = own!(poll);
    // SAFETY: the same function, after the check of the buffer's length.
    unsafe { core::mem::transmute::<usize, PollFn>(same)(fds, count, limit) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut PollFd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = || unsafe { next!(c"ppoll" as PPollFn)(fds, count, limit, mask) } as isize;
    poll_by(fds, count, || terms(limit, mask), kernel) as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
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
    let same = own!(ppoll);
    // SAFETY: the same function, after the check of the buffer's length.
    unsafe { core::mem::transmute::<usize, PPollFn>(same)(fds, count, limit, mask) }
}

/// Serves the calls that make an epoll set; `kernel` makes the kernel's call.
pub(crate) fn epoll_create_by(kernel: impl Kernel) -> isize {
    let set = numbering(kernel);
    if set >= 0 {
        opened(set as c_int, Origin::Fresh);
        tell(|library| library.epoll_made(set as c_int));
    }
    set
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    epoll_create_by(unsafe { kernel!(older SYS_epoll_create, c"epoll_create" as CreateFn; size) })
        as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    epoll_create_by(unsafe { kernel!(SYS_epoll_create1, c"epoll_create1" as CreateFn; flags) })
        as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut EpollEvent,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        unsafe { kernel!(SYS_epoll_ctl, c"epoll_ctl" as ControlFn; set, operation, fd, event) };
    epoll_ctl_by(set, operation, fd, event, kernel) as c_int
}

/// Serves [`epoll_ctl`]; `kernel` makes the kernel's call.
pub(crate) fn epoll_ctl_by(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut EpollEvent,
    kernel: impl Kernel,
) -> isize {
    if !is_open() {
        return kernel();
    }
    let event = if event.is_null() {
        None
    } else {
        // SAFETY: plain data, which the program leaves alone during the call.
        match unsafe { buffers::structure(event) } {
            Some(event) => Some(event),
            // The kernel ignores the event of `EPOLL_CTL_DEL` (epoll_ctl(2)).
            None if operation == libc::EPOLL_CTL_DEL => None,
            None => return kernel(),
        }
    };
    match within(|library| library.epoll_ctl(set, operation, fd, event.as_ref())) {
        Some(result) => errno::count(result.map(|()| 0)),
        None => kernel(),
    }
}

/// Waits for an epoll set in the library; `None` if the kernel is to serve the call.
fn serve_wait(
    set: c_int,
    at: *mut EpollEvent,
    count: c_int,
    terms: WaitTerms,
) -> Option<Result<usize, Errno>> {
    /// Programs may pass a larger count, but never receive so many events at once.
    const MOST: usize = 1 << 24;
    /// `EP_MAX_EVENTS` of fs/eventpoll.c.
    const LIMIT: usize = i32::MAX as usize / size_of::<EpollEvent>();
    let wanted = usize::try_from(count).ok().filter(|count| (1..=LIMIT).contains(count))?;
    let len = accessible(at as usize, wanted.min(MOST) * size_of::<EpollEvent>(), Access::Write);
    let room = len / size_of::<EpollEvent>();
    let mut nowhere = [EpollEvent { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
    let events = match room {
        // The array is not accessible. The kernel would wait first and then fail with `EFAULT`; so
        // does this call, with room for one event that is thrown away.
        0 => &mut nowhere[..],
        // SAFETY: writable; the structure is packed and needs no alignment; the program leaves the
        // array alone during the call.
        _ => unsafe { core::slice::from_raw_parts_mut(at, room) },
    };
    let result = within(|library| {
        if rings::has_lost_one(library) {
            library.ring_unseen(false);
        }
        library.epoll_wait(set, events, terms.limit, terms.mask)
    })?;
    match result {
        Err(Errno::INTR) if was_cancelled() => None,
        Ok(1..) if room == 0 => Some(Err(Errno::FAULT)),
        result => Some(result),
    }
}

/// Serves `epoll_wait` and its relatives; `kernel` makes the kernel's call. `terms` returns `None`
/// if the kernel is to refuse them.
#[inline]
pub(crate) fn epoll_wait_by(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    terms: impl FnOnce() -> Option<WaitTerms>,
    kernel: impl Kernel,
) -> isize {
    if !is_open() {
        return kernel();
    }
    let served = terms().and_then(|terms| serve_wait(set, events, count, terms));
    served.map_or_else(kernel, errno::count)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: c_int,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe {
        kernel!(older SYS_epoll_wait, c"epoll_wait" as WaitFn; set, events, count, limit)
    };
    epoll_wait_by(set, events, count, || Some(WaitTerms::of_ms(limit)), kernel) as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        || unsafe { next!(c"epoll_pwait" as PWaitFn)(set, events, count, limit, mask) } as isize;
    epoll_wait_by(set, events, count, || masked(limit, mask), kernel) as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        || unsafe { next!(c"epoll_pwait2" as PWait2Fn)(set, events, count, limit, mask) } as isize;
    epoll_wait_by(set, events, count, || terms(limit, mask), kernel) as c_int
}
