//! The guard: decides if a call may enter the library, and marks the thread while it is inside.
//!
//! Not here: the routing of a data call after the guard has let it in (`transfer`). Read the theory
//! of operation of the crate (`lib.rs`) first.

use crate::library::{Library, ReasonT, library};
use crate::tls::{Thread, here};
use crate::{deferred, errno, older, raw, relocation, stack};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering, compiler_fence};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The constructor has not run yet.
const NOT_STARTED: u32 = 1;
/// The library has failed, or has stood down.
const OFF: u32 = 2;
/// The library has done nothing yet. The first call that asks whether the guard is open initializes
/// it (see [`start`]), so that a program that stays small does not pay for that.
const UNINITIALIZED: u32 = 4;
/// The guard's first state.
const NOT_READY: u32 = NOT_STARTED | UNINITIALIZED;
/// A thread is initializing the library.
const INITIALIZING: u32 = 8;
/// Added for each child of vfork(2) that shares this memory now: the process numbers must be
/// compared.
const VFORK: u32 = 16;

/// The state of the guard; 0 means open.
#[unsafe(link_section = ".data.start")]
static GUARD: AtomicU32 = AtomicU32::new(NOT_READY);
/// The number of the process that this memory belongs to; while a thread initializes the library,
/// the number of that thread's process; 0 before.
#[unsafe(link_section = ".data.start")]
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The function that initializes the library, an [`Initialize`]; null before the constructor.
#[unsafe(link_section = ".data.start")]
static INITIALIZER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// How often a thread yields to one that initializes the library. That takes some ten microseconds,
/// unless its thread was cancelled in the middle.
const PATIENCE: u32 = 10_000;

/// Returns true if this call may enter the library. Initializes the library if need be.
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

/// Returns the address of the guard's word, for callers outside this library: [`is_wide_open`] is
/// true outside its calls while the word is 0.
pub(crate) fn word() -> *const u32 {
    GUARD.as_ptr()
}

/// Returns true if the library has done nothing yet, and may: the guard is not closed for another
/// reason, and no thread is initializing the library.
#[inline(always)]
pub(crate) fn is_untouched() -> bool {
    // SeqCst: see `first_calls::note`.
    GUARD.load(Ordering::SeqCst) == UNINITIALIZED
}

/// Makes a system call if the caller is the library itself. The C library's function would be a
/// cancellation point, and a thread must not end inside the library.
#[inline(always)]
pub(crate) fn from_inside(number: i64, arguments: &[usize]) -> Option<isize> {
    if is_inside() { call_from_inside(number, arguments) } else { None }
}

#[cold]
#[inline(never)]
fn call_from_inside(number: i64, arguments: &[usize]) -> Option<isize> {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the library's own call, with valid arguments.
    Some(errno::kernel(unsafe { older::call(number, all) }))
}

/// Returns true if the calling thread is inside the library.
#[inline(always)]
pub(crate) fn is_inside() -> bool {
    here().depth.load(Ordering::Relaxed) != 0
}

#[cold]
#[inline(never)]
fn look_closer() -> bool {
    let guard = GUARD.load(Ordering::Relaxed);
    if guard & NOT_STARTED != 0 {
        // Another library's constructor calls, before this library's own. What such calls lead to
        // may need any relocated word.
        relocation::all();
        return false;
    }
    if guard & OFF != 0 || here().depth.load(Ordering::Relaxed) != 0 {
        return false;
    }
    if guard & UNINITIALIZED != 0 {
        // The memory may be a parent's, in which a child of vfork(2) must initialize nothing. Which
        // of the two this process is nobody knows before the initialization.
        let is_shared = guard >= VFORK;
        if is_shared || !initialize() {
            return false;
        }
    }
    raw::process_number() == PROCESS.load(Ordering::Relaxed)
}

/// Returns true if the constructor has run.
#[inline]
pub(crate) fn has_started() -> bool {
    GUARD.load(Ordering::Relaxed) & NOT_STARTED == 0
}

/// Returns true if the library has been initialized. Before that it knows of no descriptor, so that
/// there is no need to tell it that one ends.
#[inline(always)]
pub(crate) fn is_initialized() -> bool {
    GUARD.load(Ordering::Relaxed) & UNINITIALIZED == 0
}

/// As [`is_open`], but true as well if the guard would open once the library is initialized.
#[inline(always)]
pub(crate) fn can_open() -> bool {
    match GUARD.load(Ordering::Relaxed) {
        UNINITIALIZED => here().depth.load(Ordering::Relaxed) == 0,
        NOT_READY => false,
        _ => is_open(),
    }
}

/// Initializes the library. Returns false if the guard must stay closed.
pub(crate) type Initialize = fn() -> bool;

/// Opens the guard at the end of the constructor. The first call that enters the library calls
/// `initialize`.
pub(crate) fn start(initialize: Initialize) {
    INITIALIZER.store(initialize as *mut (), Ordering::Relaxed);
    GUARD.fetch_and(!NOT_STARTED, Ordering::SeqCst);
}

/// Initializes the library, or waits until another thread has done so. Returns true if the library
/// may be entered then.
///
/// Handlers of signals do not come here in the middle of it: the thread is marked as inside, so
/// that they are put off (`signals`).
#[cold]
#[inline(never)]
fn initialize() -> bool {
    for _ in 0..PATIENCE {
        let [from, to] = [UNINITIALIZED, UNINITIALIZED | INITIALIZING];
        match GUARD.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return initialize_alone(),
            Err(guard) if guard & UNINITIALIZED == 0 => return guard & OFF == 0,
            Err(_) => {}
        }
        let process = PROCESS.load(Ordering::SeqCst);
        if process != 0 && process != raw::process_number() {
            // The child of a `fork` in another thread: the thread that initialized does not exist
            // here.
            GUARD.fetch_and(!INITIALIZING, Ordering::SeqCst);
        } else {
            // SAFETY: no arguments; lets other threads run.
            unsafe { raw::call(libc::SYS_sched_yield, [0; 6]) };
        }
    }
    false
}

fn initialize_alone() -> bool {
    let thread = here();
    let kept = errno::value();
    enter(thread);
    PROCESS.store(raw::process_number(), Ordering::SeqCst);
    // SAFETY: the constructor, which has run, has stored a function of this type ([`start`]).
    let initialize =
        unsafe { core::mem::transmute::<*mut (), Initialize>(INITIALIZER.load(Ordering::Relaxed)) };
    let is_usable = initialize();
    if !is_usable {
        GUARD.fetch_or(OFF, Ordering::SeqCst);
    }
    GUARD.fetch_and(!(UNINITIALIZED | INITIALIZING), Ordering::SeqCst);
    leave(thread);
    errno::set_raw(kept);
    is_usable
}

/// Takes note that this process is the child of a `fork`.
pub(crate) fn became_child() {
    // Not with a guard that is closed for good, perhaps because of a filter that refuses this call.
    if !is_shut() {
        PROCESS.store(raw::process_number(), Ordering::Relaxed);
    }
    stack::became_child();
    // Children of `vfork` share the memory of the parent process, not of this one.
    GUARD.fetch_and(NOT_STARTED | UNINITIALIZED | OFF, Ordering::SeqCst);
}

/// Notes that a child of `vfork` is about to run in this memory, while its parent's thread waits.
pub(crate) fn vfork_begins() {
    GUARD.fetch_add(VFORK, Ordering::SeqCst);
}

/// Notes in the parent that a child of `vfork` runs its own program, or has ended.
pub(crate) fn vfork_ends() {
    GUARD.fetch_sub(VFORK, Ordering::SeqCst);
}

/// Closes the guard for good: the kernel serves everything from now on, in this process and its
/// children.
pub(crate) fn shut() {
    GUARD.fetch_or(OFF, Ordering::SeqCst);
}

/// Returns true if the guard is closed for good.
#[inline]
pub(crate) fn is_shut() -> bool {
    GUARD.load(Ordering::Relaxed) & OFF != 0
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
    if !is_initialized() {
        // One of the few callers that do not ask for the guard.
        relocation::all();
    }
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

/// Tells the library something that is only of interest if it knows of a descriptor.
#[inline]
pub(crate) fn tell_if_initialized(what: impl FnOnce(&'static Library)) {
    if is_initialized() {
        tell(what);
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
