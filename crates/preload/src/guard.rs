//! The guard: decides if a call may enter the library, and marks the thread while it is inside.
//!
//! Not here: the routing of a data call after the guard has let it in (`transfer`). Read the theory
//! of operation of the crate (`lib.rs`) first.

use crate::library::{Library, ReasonT, library};
use crate::tls::{Thread, here};
use crate::{deferred, errno, older, raw, stack};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering, compiler_fence};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The constructor has not run yet.
const NOT_STARTED: u32 = 1;
/// The library has failed, or has stood down.
const OFF: u32 = 2;
/// Added for each child of vfork(2) that shares this memory now: the process numbers must be
/// compared.
const VFORK: u32 = 4;

/// The state of the guard; 0 means open.
static GUARD: AtomicU32 = AtomicU32::new(NOT_STARTED);
/// The number of the process that this memory belongs to.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Returns true if this call may enter the library.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    if GUARD.load(Ordering::Relaxed) == 0 {
        return here().depth.load(Ordering::Relaxed) == 0;
    }
    look_closer()
}

/// Returns true if this call may enter the library and no rare state needs a closer look. For
/// callers to which a wrong "false" does no harm.
#[inline(always)]
pub(crate) fn is_wide_open() -> bool {
    GUARD.load(Ordering::Relaxed) == 0 && here().depth.load(Ordering::Relaxed) == 0
}

/// Makes a system call if the caller is the library itself. The C library's function would be a
/// cancellation point, and a thread must not end inside the library.
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
    // SAFETY: the library's own call, with valid arguments.
    Some(errno::kernel(unsafe { older::call(number, all) }))
}

/// Returns true if the calling thread is inside the library.
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

/// Returns true if the constructor has run.
#[inline]
pub(crate) fn has_started() -> bool {
    GUARD.load(Ordering::Relaxed) & NOT_STARTED == 0
}

/// Opens the guard at the end of the constructor.
pub(crate) fn start() {
    PROCESS.store(raw::process_number(), Ordering::Relaxed);
    GUARD.fetch_and(!NOT_STARTED, Ordering::SeqCst);
}

/// Takes note that this process is the child of a `fork`.
pub(crate) fn became_child() {
    PROCESS.store(raw::process_number(), Ordering::Relaxed);
    stack::became_child();
    // Children of `vfork` share the memory of the parent process, not of this one.
    GUARD.fetch_and(NOT_STARTED | OFF, Ordering::SeqCst);
}

/// Notes that a child of `vfork` is about to run in this memory, while its parent's thread waits.
pub(crate) fn vfork_begins() {
    GUARD.fetch_add(VFORK, Ordering::SeqCst);
}

/// Notes in the parent that a child of `vfork` runs its own program, or has ended.
pub(crate) extern "C" fn vfork_ends() {
    GUARD.fetch_sub(VFORK, Ordering::SeqCst);
}

/// Closes the guard for good: the kernel serves everything from now on, in this process and its
/// children.
pub(crate) fn shut() {
    GUARD.fetch_or(OFF, Ordering::SeqCst);
}

/// Marks the thread as inside the library.
#[inline(always)]
pub(crate) fn enter(thread: &Thread) {
    let depth = thread.depth.load(Ordering::Relaxed);
    thread.depth.store(depth + 1, Ordering::Relaxed);
    // For signal handlers on this thread: the mark is set before any state is changed.
    compiler_fence(Ordering::SeqCst);
}

/// Marks the thread as one level less deep inside. At level 0, signals that were put off are
/// delivered.
#[inline(always)]
pub(crate) fn leave(thread: &Thread) {
    compiler_fence(Ordering::SeqCst);
    let depth = thread.depth.load(Ordering::Relaxed).saturating_sub(1);
    thread.depth.store(depth, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    // Checked after the store: a signal that arrives later than the store is not put off any more.
    if depth == 0 && thread.put_off.load(Ordering::Relaxed) != 0 {
        deferred::release(thread);
    }
}

/// Calls the library. Returns `None` if the library panics, now or before; then the kernel serves
/// the call.
///
/// Not inlined, so that the caller's frame has nothing to drop if the thread is cancelled below it.
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
            // Dropping the panic's payload could panic again.
            core::mem::forget(panic);
            GUARD.fetch_or(OFF, Ordering::SeqCst);
            None
        }
    }
}

/// Tells the library something, if the guard is open.
#[inline]
pub(crate) fn tell(what: impl FnOnce(&'static Library)) {
    if is_open() {
        within(what);
    }
}

/// Moves a session into the kernel for the calls that follow; for good if `stay` is true.
#[cold]
#[inline(never)]
pub(crate) fn home(fd: c_int, stay: bool) {
    tell(|library| library.go_home(fd, ReasonT::Operation, stay));
}

/// Makes a closure that calls the next function named `$name`, or the bare system call if the
/// caller is the library itself. Inside the library a thread must not end, as it may in the C
/// library's function, and other preloaded libraries are not meant to see the call. Unsafe as
/// [`next!`]. `older` precedes a call that not every architecture has.
macro_rules! kernel {
    (older $number:ident, $($call:tt)+) => {
        $crate::guard::kernel!(@ $crate::older::$number, $($call)+)
    };
    (@ $number:path, $name:literal as $type:ty; $($argument:expr),+ $(,)?) => {
        move || match $crate::guard::from_inside($number, &[$($argument as usize),+]) {
            Some(result) => result,
            None => $crate::next::next!($name as $type)($($argument),+) as isize,
        }
    };
    ($number:ident, $($call:tt)+) => {
        $crate::guard::kernel!(@ libc::$number, $($call)+)
    };
}
pub(crate) use kernel;
