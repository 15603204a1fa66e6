//! The library's own threads, which are always inside the library and take no signals.
//!
//! Not here: other functions of the C library that this library calls (`inside`).

use crate::inside::{INTERNAL, hidden};
use crate::next::c_library;
use crate::{guard, raw, tls};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

type StartFn = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type CreateFn = unsafe extern "C-unwind" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    StartFn,
    *mut c_void,
) -> c_int;

hidden!(pthread_create = create);

/// The start function of a new thread, and its argument.
struct Task {
    start: StartFn,
    argument: *mut c_void,
}

unsafe extern "C-unwind" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: StartFn,
    argument: *mut c_void,
) -> c_int {
    let task = Box::into_raw(Box::new(Task { start, argument }));
    let before = set_mask(!INTERNAL);
    // SAFETY: the caller's arguments, except the start function, which is `run` with the argument
    // that it expects.
    let result =
        unsafe { c_library!(c"pthread_create" as CreateFn)(thread, attributes, run, task.cast()) };
    set_mask(before);
    if result != 0 {
        // SAFETY: no thread was started that could take the task.
        drop(unsafe { Box::from_raw(task) });
    }
    result
}

extern "C-unwind" fn run(task: *mut c_void) -> *mut c_void {
    let thread = tls::here();
    guard::enter(thread);
    thread.own_stack.store(1, Ordering::Relaxed);
    // SAFETY: `create` made the task for this thread.
    let Task { start, argument } = *unsafe { Box::from_raw(task.cast::<Task>()) };
    start(argument)
}

/// Unblocks all signals in this thread, as in a thread of the program's.
pub(crate) fn take_signals() {
    set_mask(0);
}

/// Sets this thread's signal mask. Returns the previous one.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let arguments = [
        libc::SIG_SETMASK as usize,
        (&raw const mask) as usize,
        (&raw mut before) as usize,
        8,
        0,
        0,
    ];
    // SAFETY: both masks are local.
    unsafe { raw::call(libc::SYS_rt_sigprocmask, arguments) };
    before
}
