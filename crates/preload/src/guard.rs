//! When a call may ask the library at all, and the way in and out.

use crate::library::{Library, ReasonT, library};
use crate::tls::{Thread, here};
use crate::{deferred, errno, raw, stack};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering, compiler_fence};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The constructor has not run.
const NOT_STARTED: u32 = 1;
/// The library has failed, or has no part in anything any more.
const OFF: u32 = 2;
/// One more child of `vfork` shares this memory: compare process numbers.
const VFORK: u32 = 4;

/// 0: open.
static GUARD: AtomicU32 = AtomicU32::new(NOT_STARTED);
/// The process that all this belongs to.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether this call may ask the library.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    if GUARD.load(Ordering::Relaxed) == 0 {
        return here().depth.load(Ordering::Relaxed) == 0;
    }
    look_closer()
}

/// As [`is_open`], where a no is no harm: without a look at what is rare.
#[inline(always)]
pub(crate) fn is_wide_open() -> bool {
    GUARD.load(Ordering::Relaxed) == 0 && here().depth.load(Ordering::Relaxed) == 0
}

/// Makes a system call if the caller is the library itself. The C library's function would be a
/// cancellation point, and a thread must not end in there.
#[inline(always)]
pub(crate) fn from_inside(number: i64, arguments: &[usize]) -> Option<isize> {
    if is_open() { None } else { call_from_inside(number, arguments) }
}

#[cold]
#[inline(never)]
fn call_from_inside(number: i64, arguments: &[usize]) -> Option<isize> {
    if !is_inside() {
        return None;
    }
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the library's own call.
    Some(errno::kernel(unsafe { raw::call(number, all) }))
}

/// Whether the caller is the library itself.
pub(crate) fn is_inside() -> bool {
    here().depth.load(Ordering::Relaxed) != 0
}

#[cold]
#[inline(never)]
fn look_closer() -> bool {
    let guard = GUARD.load(Ordering::Relaxed);
    if guard & (NOT_STARTED | OFF) != 0 || here().depth.load(Ordering::Relaxed) != 0 {
        return false;
    }
    raw::process_number() == PROCESS.load(Ordering::Relaxed)
}

/// Whether it has.
#[inline]
pub(crate) fn has_started() -> bool {
    GUARD.load(Ordering::Relaxed) & NOT_STARTED == 0
}

/// The constructor has run.
pub(crate) fn start() {
    PROCESS.store(raw::process_number(), Ordering::Relaxed);
    GUARD.fetch_and(!NOT_STARTED, Ordering::SeqCst);
}

/// This is the child of a `fork`.
pub(crate) fn became_child() {
    PROCESS.store(raw::process_number(), Ordering::Relaxed);
    stack::became_child();
    // The children that shared memory shared the parent's.
    GUARD.fetch_and(NOT_STARTED | OFF, Ordering::SeqCst);
}

/// A child of `vfork` is about to run in this memory, while its parent's thread waits.
pub(crate) fn vfork_begins() {
    GUARD.fetch_add(VFORK, Ordering::SeqCst);
}

/// That child runs its own program, or has ended. Called in the parent.
pub(crate) extern "C" fn vfork_ends() {
    GUARD.fetch_sub(VFORK, Ordering::SeqCst);
}

/// The kernel serves everything from now on, here and in every child.
pub(crate) fn shut() {
    GUARD.fetch_or(OFF, Ordering::SeqCst);
}

/// Marks the thread as inside.
#[inline(always)]
pub(crate) fn enter(thread: &Thread) {
    let depth = thread.depth.load(Ordering::Relaxed);
    thread.depth.store(depth + 1, Ordering::Relaxed);
    // For handlers on this thread: marked before anything is begun.
    compiler_fence(Ordering::SeqCst);
}

/// Outside again; signals that were put off come now.
#[inline(always)]
pub(crate) fn leave(thread: &Thread) {
    compiler_fence(Ordering::SeqCst);
    let depth = thread.depth.load(Ordering::Relaxed).saturating_sub(1);
    thread.depth.store(depth, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    // Looked at last: a signal that comes after the store above is not put off.
    if depth == 0 && thread.put_off.load(Ordering::Relaxed) != 0 {
        deferred::release(thread);
    }
}

/// Calls the library. `None`: it failed, now or before, and the kernel serves the call.
///
/// Not inlined, so that the caller's frame has nothing to clean up when a thread is cancelled below
/// it.
#[inline(never)]
pub(crate) fn within<R>(ask: impl FnOnce(&'static Library) -> R) -> Option<R> {
    let thread = here();
    let kept = errno::value();
    enter(thread);
    let answer = catch_unwind(AssertUnwindSafe(|| ask(library())));
    leave(thread);
    errno::set_raw(kept);
    match answer {
        Ok(answer) => Some(answer),
        Err(panic) => {
            // Dropping what it carries could panic again.
            core::mem::forget(panic);
            GUARD.fetch_or(OFF, Ordering::SeqCst);
            None
        }
    }
}

/// Tells the library something if the guard is open.
#[inline]
pub(crate) fn tell(what: impl FnOnce(&'static Library)) {
    if is_open() {
        within(what);
    }
}

/// A session is to be in the kernel for what follows.
#[cold]
#[inline(never)]
pub(crate) fn home(fd: c_int, stay: bool) {
    tell(|library| library.go_home(fd, ReasonT::Operation, stay));
}

/// The kernel's call as the next function named `$name` makes it, or as a bare system call for the
/// library itself: in there a thread must not end, as it may in the C library's function, and other
/// preloaded libraries are not meant. Unsafe as [`next!`].
macro_rules! kernel {
    ($number:ident, $name:literal as $type:ty; $($argument:expr),+ $(,)?) => {
        move || match $crate::guard::from_inside(libc::$number, &[$($argument as usize),+]) {
            Some(result) => result,
            None => $crate::next::next!($name as $type)($($argument),+) as isize,
        }
    };
}
pub(crate) use kernel;
