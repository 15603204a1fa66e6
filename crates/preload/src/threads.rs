//! The library's own threads, which are always inside the library and take no signals.
//!
//! They are started without Rust's standard library, which allocates a thread's handle with the
//! program's `malloc` and ends the process if that has no memory. A program that has used up its
//! memory must not end because this object needs a thread; it goes without one. Not here: other
//! functions of the C library that this library calls (`inside`).

use crate::inside::{INTERNAL, hidden};
use crate::next::c_library;
use crate::{guard, link_map, mask, raw, tls};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
    let before = mask::change(libc::SIG_SETMASK, !INTERNAL);
    // SAFETY: the caller's arguments, except the start function, which is `run` with the argument
    // that it expects.
    let result =
        unsafe { c_library!(c"pthread_create" as CreateFn)(thread, attributes, run, task.cast()) };
    mask::change(libc::SIG_SETMASK, before);
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

/// The work of a new thread, and the name that tools show for it.
struct Named {
    name: [u8; NAME_LEN],
    work: Box<dyn FnOnce() + Send>,
}

/// The longest name of a thread, its final zero included (prctl(2)).
const NAME_LEN: usize = 16;

/// Starts a thread with a stack of `stack_len` bytes, without the thread-local variables, which the
/// C library puts there, too; false if it refuses.
pub(crate) fn spawn(name: &str, stack_len: usize, work: Box<dyn FnOnce() + Send>) -> bool {
    let mut named = Named { name: [0; NAME_LEN], work };
    let room = named.name.iter_mut().take(NAME_LEN - 1);
    room.zip(name.bytes()).for_each(|(at, byte)| *at = byte);
    let named = Box::into_raw(Box::new(named));
    if create_detached(stack_len.saturating_add(link_map::thread_local_len()), named.cast()) {
        return true;
    }
    // SAFETY: no thread was started that could take it.
    drop(unsafe { Box::from_raw(named) });
    false
}

/// Starts a thread that nobody joins, with what [`spawn`] has made.
fn create_detached(stack_len: usize, named: *mut c_void) -> bool {
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are initialized before use, and ended afterwards; `work` takes
    // the argument. Only a thread that was created is detached.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        let is_created = libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_len) == 0
            && create(thread.as_mut_ptr(), attributes.as_ptr(), work, named) == 0;
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if is_created {
            libc::pthread_detach(thread.assume_init());
        }
        is_created
    }
}

extern "C-unwind" fn work(named: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made it for this thread.
    let Named { name, work } = *unsafe { Box::from_raw(named.cast::<Named>()) };
    let arguments = [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the name ends with a zero.
    unsafe { raw::call(libc::SYS_prctl, arguments) };
    // A panic ends this thread only.
    let _ = catch_unwind(AssertUnwindSafe(work));
    core::ptr::null_mut()
}

/// Unblocks all signals in this thread, as in a thread of the program's.
pub(crate) fn take_signals() {
    mask::change(libc::SIG_SETMASK, 0);
}
