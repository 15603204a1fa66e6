//! Processes and what ends the use of sessions in one: `fork` and its kind, sandboxes, cancelled
//! threads.

use crate::guard::{self, is_open, tell, within};
use crate::library::{Library, Origin, ReasonT, numbers};
use crate::next::next;
use crate::trampoline::{Interposer, asks_first};
use crate::{descriptors, errno, notice, objects, raw, tls};
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

type HandlerFn = unsafe extern "C" fn();
/// `pthread_atfork`, which glibc keeps in a static library, under the name that it is exported by.
type RegisterFn = unsafe extern "C" fn(
    prepare: Option<HandlerFn>,
    parent: Option<HandlerFn>,
    child: Option<HandlerFn>,
    object: *mut c_void,
) -> c_int;

/// Has the library told of every `fork`, also of those that the C library makes (`daemon`,
/// `forkpty`). False: this is another C library than ours.
pub(crate) fn watch_forks() -> bool {
    let Some(register) = objects::of_c_library(c"__register_atfork") else { return false };
    // SAFETY: the C library's function of that name has that type; two functions that live as long
    // as the program.
    unsafe {
        let register = core::mem::transmute::<usize, RegisterFn>(register);
        let child = Some(in_child_of_library as unsafe extern "C" fn());
        register(Some(before_fork), Some(in_parent), child, core::ptr::null_mut());
    }
    true
}

unsafe extern "C" fn before_fork() {
    tell(|library| library.before_fork());
    // No descriptor of ours is where it would stay the child's.
    numbers::begin();
    if !is_first_thread() {
        FORKS_ELSEWHERE.store(1, Ordering::SeqCst);
    }
}

/// A thread that is not the first one has made a `fork`: in the child it is the first, and ends as
/// it would have ended here.
static FORKS_ELSEWHERE: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn in_parent() {
    numbers::end();
}

unsafe extern "C" fn in_child_of_library() {
    // SAFETY: this is the child.
    unsafe { in_child() };
    if FORKS_ELSEWHERE.load(Ordering::SeqCst) != 0 {
        LAST_WORD.with(|_| ());
    }
}

/// Told when the thread ends that has it.
struct LastWord;

impl Drop for LastWord {
    fn drop(&mut self) {
        first_thread_ends();
    }
}

std::thread_local! {
    /// Of a thread that has become the first one by a `fork`: its end is not the process's.
    static LAST_WORD: LastWord = const { LastWord };
}

unsafe extern "C" fn in_child() {
    numbers::forget();
    guard::became_child();
    tell(|library| library.after_fork_child());
}

/// `fork` without the C library's handlers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _Fork() -> c_int {
    // SAFETY: passed on.
    let fork = || unsafe { next!(c"_Fork" as unsafe extern "C-unwind" fn() -> c_int)() };
    forked_by(|| fork().into()) as c_int
}

/// Makes a `fork` of which the C library does not tell; what it answers.
pub(crate) fn forked_by(fork: impl FnOnce() -> c_long) -> c_long {
    // SAFETY: as the C library calls it.
    unsafe { before_fork() };
    let child = fork();
    if child == 0 {
        // SAFETY: this is the child.
        unsafe { in_child() };
    } else {
        // SAFETY: this is the parent, also if there is no child.
        unsafe { in_parent() };
    }
    child
}

/// `vfork`: the child returns from here first, on the parent's stack, so there may be no frame of
/// ours and no return address on it when the parent goes on; it is kept in a register, which each
/// of the two has for itself.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rdi",
        "mov eax, {vfork}",
        "syscall",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rip, -8",
        "test rax, rax",
        "jz 2f",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rax",
        "call {after}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "2: ret",
        ".cfi_endproc",
        before = sym before_vfork,
        after = sym after_vfork,
        vfork = const libc::SYS_vfork,
    )
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn __vfork() -> c_int {
    core::arch::naked_asm!("jmp {vfork}", vfork = sym vfork)
}

extern "C" fn before_vfork() {
    tell(|library| library.before_vfork());
    guard::vfork_begins();
}

/// The same for a child that may do anything with descriptors before its own program runs, seen by
/// nobody: what `posix_spawn` and Go do between, with files that they close on `exec`.
pub(crate) extern "C" fn before_shared_child() {
    tell(|library| {
        library.before_vfork();
        library.all_home(ReasonT::Exec, false);
    });
    guard::vfork_begins();
}

/// In the parent, when the child runs its own program or has ended.
extern "C" fn after_vfork(result: isize) -> c_int {
    guard::vfork_ends();
    errno::kernel(result) as c_int
}

/// All sessions are in the kernel from now on, and nothing here has any part in anything.
pub(crate) fn shut(reason: ReasonT) {
    if is_open() {
        within(|library| {
            library.all_home(reason, true);
            // There is nothing for them to do any more. And namespaces are entered by processes of
            // one thread, and a filter may be for all threads.
            library.end_threads();
        });
        guard::shut();
        let is_sandbox = reason == ReasonT::Sandbox;
        notice::show(if is_sandbox { reason } else { ReasonT::StoodDown });
    }
}

/// `clone`, by its flags: a thread is nothing to us; whatever else it makes, the C library does not
/// tell.
unsafe extern "C" fn before_clone(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    if arguments[2] as c_int & libc::CLONE_THREAD == 0 {
        shut(ReasonT::Fork);
    }
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

/// Whether this `prctl` is the end of free choice of system calls.
pub(crate) fn is_filter(option: c_int) -> bool {
    option == libc::PR_SET_SECCOMP
}

/// The end of a thread; of the first one, as a rule, with others to go on.
unsafe extern "C" fn before_thread_exit(entry: &Interposer, _: &[usize; 6]) -> usize {
    if is_first_thread() {
        first_thread_ends();
    }
    entry.next()
}

/// Also if the library has no part in anything any more: its threads may be there still.
fn first_thread_ends() {
    within(|library| library.may_outlive_first());
}

fn is_first_thread() -> bool {
    // SAFETY: no arguments.
    unsafe { raw::call(libc::SYS_gettid, [0; 6]) == raw::call(libc::SYS_getpid, [0; 6]) }
}

/// The library's own threads are all that is left: the process ends as the C library ends it after
/// the last thread.
pub(crate) fn end_without_threads() -> ! {
    let thread = tls::here();
    thread.depth.store(0, Ordering::SeqCst);
    crate::threads::take_signals();
    // SAFETY: ends the process; no lock of the library's is held.
    unsafe { libc::exit(0) }
}

/// A thread ends by the system call itself, with that status. The kernel ends a process after its
/// last thread, with the status of its first, and no handler runs.
pub(crate) fn ends_by_call(status: usize) {
    if within(|library| library.is_last_thread()) == Some(true) {
        within(|library| library.before_exit());
        // SAFETY: ends the process: with the library's threads it would not.
        unsafe { raw::call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
    if is_first_thread() {
        first_thread_ends();
    }
}

asks_first!(before_thread_exit; pthread_exit = 0, thrd_exit = 0);
/// A message queue forgets its notification when any descriptor of it is closed in this process,
/// also in a table that is a copy: the library must not begin to need one (`sojourn_shm::aside`).
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

/// Threads cancelled until now.
static CANCELS: AtomicU32 = AtomicU32::new(0);
/// The C library's signal for it.
const SIGCANCEL: c_int = 32;

/// A thread was cancelled, and this one has not looked yet whether it is the one.
pub(crate) fn is_cancelling() -> bool {
    CANCELS.load(Ordering::Relaxed) != tls::here().cancels_seen.load(Ordering::Relaxed)
}

/// After a wait that was cut short: whether for a cancelled thread. Then the call is to be made
/// again, with the C library's function, which ends the thread if it is this one.
pub(crate) fn was_cancelled() -> bool {
    let is_cancelling = is_cancelling();
    tls::here().cancels_seen.store(CANCELS.load(Ordering::Relaxed), Ordering::Relaxed);
    is_cancelling
}

/// Cancelling a thread. One that waits in the library is in no cancellation point: all sessions go
/// to the kernel for good, so that it makes its call anew there.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    CANCELS.fetch_add(1, Ordering::SeqCst);
    if number_of(thread) == Some(raw::process_number()) {
        first_thread_ends();
    }
    shut(ReasonT::Operation);
    // SAFETY: passed on.
    let result = unsafe {
        next!(c"pthread_cancel" as unsafe extern "C-unwind" fn(libc::pthread_t) -> c_int)(thread)
    };
    if result == 0 {
        wake(thread);
    }
    result
}

/// The kernel's number of a thread that has not been joined.
fn number_of(thread: libc::pthread_t) -> Option<i32> {
    let mut clock = 0;
    // SAFETY: not joined, or the caller could not cancel it.
    let found = unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } == 0;
    // The clock's number says the thread's: `CPUCLOCK_PID`, include/linux/posix-timers_types.h.
    found.then_some(!(clock >> 3))
}

/// Ends a system call that `thread` may be sitting in. The C library's handler for this signal is
/// in place by now, and does nothing to a thread that is to end at a cancellation point.
fn wake(thread: libc::pthread_t) {
    if let Some(number) = number_of(thread) {
        let arguments =
            [raw::process_number() as usize, number as usize, SIGCANCEL as usize, 0, 0, 0];
        // SAFETY: a signal to a thread of this process.
        unsafe { raw::call(libc::SYS_tgkill, arguments) };
    }
}

/// Something else was put on 0, 1 and 2, inside the C library.
fn standard_replaced() {
    tell(Library::ended);
    for fd in 0..3 {
        descriptors::opened(fd, Origin::Unknown);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn daemon(keep_directory: c_int, keep_open: c_int) -> c_int {
    if keep_open == 0 {
        (0..3).for_each(|fd| tell(|library| library.replacing(fd)));
    }
    // SAFETY: passed on.
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

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn login_tty(fd: c_int) -> c_int {
    (0..3).chain([fd]).for_each(|fd| tell(|library| library.replacing(fd)));
    // SAFETY: passed on.
    let result = unsafe { next!(c"login_tty" as unsafe extern "C-unwind" fn(c_int) -> c_int)(fd) };
    standard_replaced();
    result
}

#[unsafe(no_mangle)]
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
    // SAFETY: passed on.
    let child = unsafe { next!(c"forkpty" as ForkPtyFn)(main, name, modes, size) };
    if child == 0 {
        standard_replaced();
    }
    child
}
