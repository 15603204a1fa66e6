//! Events of the whole process that end or restrict the use of sessions: `fork` and its relatives,
//! sandboxes, cancelled threads, standard descriptors that the C library replaces.
//!
//! Not here: `exec` and the end of the process (`exec`), the threads themselves (`threads`).

use crate::guard::{self, is_open, tell, tell_if_initialized, within};
use crate::library::{Inherited, Library, Origin, ReasonT, numbers};
use crate::next::next;
use crate::trampoline::{Interposer, asks_first};
use crate::{descriptors, notice, objects, raw, relocation, tls};
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

type HandlerFn = unsafe extern "C" fn();
/// The type of `__register_atfork`, the exported function behind pthread_atfork(3), which glibc
/// keeps in a static library.
type RegisterFn = unsafe extern "C" fn(
    prepare: Option<HandlerFn>,
    parent: Option<HandlerFn>,
    child: Option<HandlerFn>,
    object: *mut c_void,
) -> c_int;

/// True once the handlers of `fork` are registered, or about to be.
static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);

/// Registers for every `fork`, including those inside the C library (`daemon`, `forkpty`). Returns
/// false if the C library has no such hook, and so is not glibc.
pub(crate) fn watch_forks() -> bool {
    let Some(register) = objects::of_c_library(c"__register_atfork") else { return false };
    if WATCHES_FORKS.swap(true, Ordering::SeqCst) {
        return true;
    }
    // SAFETY: glibc's function has this type; the handlers live as long as the program.
    unsafe {
        let register = core::mem::transmute::<usize, RegisterFn>(register);
        let child = Some(in_child_of_library as unsafe extern "C" fn());
        register(Some(before_fork), Some(in_parent), child, core::ptr::null_mut());
    }
    true
}

/// Hooks pthread_atfork(3). In the child the handlers that were registered first run first, so this
/// library's must come before the program's, which may use sessions: until then all in this memory
/// says that the process is the parent.
unsafe extern "C" fn before_registration(entry: &Interposer, _: &[usize; 6]) -> usize {
    relocation::all();
    watch_forks();
    entry.next()
}

asks_first!(before_registration; __register_atfork = 0);

unsafe extern "C" fn before_fork() {
    tell_if_initialized(|library| library.before_fork());
    // No other thread makes a descriptor of the library's own during the `fork`: such a descriptor
    // would stay open in the child.
    numbers::begin();
    // With a closed guard the library has no part in the child. Nor does it make a system call here
    // that the program's filter (seccomp(2)) may not let through.
    if !guard::is_shut() && !is_first_thread() {
        FORKS_ELSEWHERE.store(1, Ordering::SeqCst);
    }
}

/// Not 0 once a thread other than the first one has called `fork`. In the child that thread is the
/// first one, but it still ends like any other thread, so the child may live on without it.
static FORKS_ELSEWHERE: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn in_parent() {
    numbers::end();
    tell_if_initialized(|library| library.child_made(Inherited::All));
}

unsafe extern "C" fn in_child_of_library() {
    // SAFETY: this is the child.
    unsafe { in_child() };
    if FORKS_ELSEWHERE.load(Ordering::SeqCst) != 0 {
        LAST_WORD.with(|_| ());
    }
}

/// A thread-local value whose destructor reports the end of its thread.
struct ThreadExitHook;

impl Drop for ThreadExitHook {
    fn drop(&mut self) {
        first_thread_ends();
    }
}

std::thread_local! {
    /// Set in a thread that has become the first one by a `fork`: the end of such a thread does not
    /// end the process.
    static LAST_WORD: ThreadExitHook = const { ThreadExitHook };
}

unsafe extern "C" fn in_child() {
    numbers::forget();
    guard::became_child();
    tell_if_initialized(|library| library.after_fork_child());
}

/// Replaces `_Fork`, the `fork` without the C library's handlers (POSIX.1-2024).
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn _Fork() -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let fork = || unsafe { next!(c"_Fork" as unsafe extern "C-unwind" fn() -> c_int)() };
    forked_by(|| fork().into()) as c_int
}

/// Makes a `fork` for which the C library calls no handlers. Returns the result of `fork`.
pub(crate) fn forked_by(fork: impl FnOnce() -> c_long) -> c_long {
    // SAFETY: before the fork, as the C library would call the handler.
    unsafe { before_fork() };
    let child = fork();
    if child == 0 {
        // SAFETY: this is the child.
        unsafe { in_child() };
    } else {
        // SAFETY: this is the parent, even if the fork failed.
        unsafe { in_parent() };
    }
    child
}

/// Moves all sessions into the kernel for good, and closes the guard: this library takes no part in
/// anything from now on.
pub(crate) fn shut(reason: ReasonT) {
    if is_open() {
        within(|library| {
            library.all_home(reason, true);
            // The library's threads have no more work. They would also be in the way: setns(2) and
            // unshare(2) partly demand a process of one thread, and a seccomp filter may apply to
            // all threads.
            library.end_threads();
        });
        guard::shut();
        let is_sandbox = reason == ReasonT::Sandbox;
        notice::show(if is_sandbox { reason } else { ReasonT::StoodDown });
    }
}

/// Hooks `clone`. The C library calls no handlers for such a child, so the library stands down
/// first. The same goes for a thread (`CLONE_THREAD`): it may have a descriptor table of its own,
/// and it has no thread-local storage, or one that the C library does not know. The C library
/// itself makes threads by another way.
unsafe extern "C" fn before_clone(entry: &Interposer, _: &[usize; 6]) -> usize {
    shut(ReasonT::Fork);
    entry.next()
}

unsafe extern "C" fn before_sandbox(entry: &Interposer, _: &[usize; 6]) -> usize {
    shut(ReasonT::Sandbox);
    entry.next()
}

unsafe extern "C" fn before_prctl(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    if is_filter(arguments[0] as c_int) {
        shut(ReasonT::Sandbox);
    }
    entry.next()
}

/// Returns true if this prctl(2) installs a seccomp filter, after which the process may not make
/// every system call.
pub(crate) fn is_filter(option: c_int) -> bool {
    option == libc::PR_SET_SECCOMP
}

/// Hooks the end of a thread. If the first thread ends here, the process usually goes on with
/// others.
unsafe extern "C" fn before_thread_exit(entry: &Interposer, _: &[usize; 6]) -> usize {
    if is_first_thread() {
        first_thread_ends();
    }
    entry.next()
}

/// Tells the library that the first thread may end before the process. Runs with a closed guard,
/// too: the library's own threads may still exist.
fn first_thread_ends() {
    within(|library| library.may_outlive_first());
}

pub(crate) fn is_first_thread() -> bool {
    // SAFETY: these system calls only return numbers.
    unsafe { raw::call(libc::SYS_gettid, [0; 6]) == raw::call(libc::SYS_getpid, [0; 6]) }
}

/// Ends the process when only the library's own threads are left, as the C library ends a process
/// after its last thread: with exit(3) and status 0.
pub(crate) fn end_without_threads() -> ! {
    let thread = tls::here();
    thread.depth.store(0, Ordering::SeqCst);
    crate::threads::take_signals();
    // SAFETY: this thread holds no lock of the library's.
    unsafe { libc::exit(0) }
}

/// Handles a thread that ends by the system call exit(2) itself, with `status`. The kernel ends a
/// process after its last thread, with the status of the first one, and runs no exit handlers.
pub(crate) fn ends_by_call(status: usize) {
    if within(|library| library.is_last_thread()) == Some(true) {
        within(|library| library.before_exit());
        // SAFETY: ends the process, which the library's own threads would keep alive.
        unsafe { raw::call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
    if is_first_thread() {
        first_thread_ends();
    }
}

asks_first!(before_thread_exit; pthread_exit = 0, thrd_exit = 0);

/// Hooks mq_notify(3). The kernel removes a message queue's notification when the process closes
/// any descriptor of the queue, even in a copy of the descriptor table. So the library must not
/// begin to need such a copy (`sojourn_shm::aside`): if it has none yet, all sessions go home for
/// good.
unsafe extern "C" fn before_notification(entry: &Interposer, _: &[usize; 6]) -> usize {
    has_notification();
    entry.next()
}

pub(crate) fn has_notification() {
    tell(|library| {
        if !library.has_threads() {
            library.all_home(ReasonT::Operation, true);
        }
    });
}

asks_first!(before_notification; mq_notify = 0);
asks_first!(before_clone; clone = 0, __clone = 0);
asks_first!(before_sandbox; unshare = 0, setns = 0);
asks_first!(before_prctl; prctl = 0);

/// Counts the cancellations until now.
static CANCELS: AtomicU32 = AtomicU32::new(0);
/// The signal that glibc cancels threads with.
const SIGCANCEL: c_int = 32;

/// Returns true if a thread was cancelled and this thread has not checked yet whether it is that
/// thread.
pub(crate) fn is_cancelling() -> bool {
    CANCELS.load(Ordering::Relaxed) != tls::here().cancels_seen.load(Ordering::Relaxed)
}

/// Returns true if a thread was cancelled since this thread last asked. Called after a wait was cut
/// short: the call is then made again with the C library's function, which ends this thread if it
/// is the cancelled one.
pub(crate) fn was_cancelled() -> bool {
    let is_cancelling = is_cancelling();
    tls::here().cancels_seen.store(CANCELS.load(Ordering::Relaxed), Ordering::Relaxed);
    is_cancelling
}

/// Ends this thread if it is cancelled (pthread_testcancel(3)). The callers' frames have nothing to
/// drop, and the thread is not inside the library.
pub(crate) fn end_if_cancelled() {
    // SAFETY: the frames above have nothing to drop.
    unsafe { next!(c"pthread_testcancel" as unsafe extern "C-unwind" fn())() }
}

/// Replaces pthread_cancel(3). A thread that waits in the library is in no cancellation point, so
/// all sessions go home for good: the thread repeats its call in the kernel.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    CANCELS.fetch_add(1, Ordering::SeqCst);
    if number_of(thread) == Some(raw::process_number()) {
        first_thread_ends();
    }
    shut(ReasonT::Operation);
    // SAFETY: the program's arguments, passed on unchanged.
    let result = unsafe {
        next!(c"pthread_cancel" as unsafe extern "C-unwind" fn(libc::pthread_t) -> c_int)(thread)
    };
    if result == 0 {
        // Again, for a thread that has looked between the first count and the C library's note.
        CANCELS.fetch_add(1, Ordering::SeqCst);
        wake(thread);
    }
    result
}

/// Returns the kernel's number of a thread that has not been joined.
fn number_of(thread: libc::pthread_t) -> Option<i32> {
    let mut clock = 0;
    // SAFETY: the thread has not been joined, or the caller could not cancel it either.
    let found = unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } == 0;
    // The clock's identifier contains the thread's number: `CPUCLOCK_PID` in
    // include/linux/posix-timers_types.h.
    found.then_some(!(clock >> 3))
}

/// Interrupts a system call in which `thread` may be sleeping. The C library has installed its
/// handler for this signal by now; the handler does not end a thread whose cancellation is deferred
/// to a cancellation point.
fn wake(thread: libc::pthread_t) {
    if let Some(number) = number_of(thread) {
        let arguments =
            [raw::process_number() as usize, number as usize, SIGCANCEL as usize, 0, 0, 0];
        // SAFETY: sends a signal to a thread of this process.
        unsafe { raw::call(libc::SYS_tgkill, arguments) };
    }
}

/// Notes that the C library has put other files on descriptors 0, 1 and 2.
fn standard_replaced() {
    tell(Library::ended);
    for fd in 0..3 {
        descriptors::opened(fd, Origin::Unknown);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn daemon(keep_directory: c_int, keep_open: c_int) -> c_int {
    is_open(); // Registers the handlers of `fork`, at the latest.
    if keep_open == 0 {
        (0..3).for_each(|fd| tell(|library| library.replacing(fd)));
    }
    // SAFETY: the program's arguments, passed on unchanged.
    let result = unsafe {
        next!(c"daemon" as unsafe extern "C-unwind" fn(c_int, c_int) -> c_int)(
            keep_directory,
            keep_open,
        )
    };
    if keep_open == 0 {
        standard_replaced();
    }
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn login_tty(fd: c_int) -> c_int {
    (0..3).chain([fd]).for_each(|fd| tell(|library| library.replacing(fd)));
    // SAFETY: the program's arguments, passed on unchanged.
    let result = unsafe { next!(c"login_tty" as unsafe extern "C-unwind" fn(c_int) -> c_int)(fd) };
    standard_replaced();
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn forkpty(
    main: *mut c_int,
    name: *mut libc::c_char,
    modes: *const c_void,
    size: *const c_void,
) -> c_int {
    type ForkPtyFn = unsafe extern "C-unwind" fn(
        *mut c_int,
        *mut libc::c_char,
        *const c_void,
        *const c_void,
    ) -> c_int;
    is_open(); // Registers the handlers of `fork`, at the latest.
    // SAFETY: the program's arguments, passed on unchanged.
    let child = unsafe { next!(c"forkpty" as ForkPtyFn)(main, name, modes, size) };
    if child == 0 {
        standard_replaced();
    }
    child
}
