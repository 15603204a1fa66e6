//! The door: the interface between the loader and the preload library, which is one table of
//! functions.
//!
//! The loader is a program like any other, into which the library is preloaded. It calls `syscall`
//! (syscall(2)) with [`NUMBER`], which is no system call of any kernel, and gets the table. Without
//! the preload library it gets `ENOSYS`. In this way the library exports only names of the C
//! library.

use core::ffi::{c_int, c_void};

/// The number that asks for the table. The arguments are [`VERSION`], the address at which the
/// table's address is stored, and the function that notes a hot session ([`NoteFn`]).
pub const NUMBER: i64 = -0x534f_4a01;

/// The version of the table, which changes with every change of [`Door`] and of the arguments.
pub const VERSION: usize = 6;

/// The error of a call that a handler has interrupted, and that is to begin again once the handler
/// has run (the kernel's `ERESTARTSYS`, which no program sees).
pub const RESTART: i32 = 512;

/// Notes that the guest has a hot session. Called once, by a thread that has descriptors of its
/// own.
pub type NoteFn = extern "C" fn();

/// A signal, with the arguments of the kernel's handler function.
#[repr(C)]
#[derive(Debug)]
pub struct Signal {
    /// The signal's number.
    pub number: c_int,
    /// True if the guest installed its handler with `SA_RESTART`.
    pub restarts: bool,
    /// The kernel's `siginfo_t`.
    pub info: *mut c_void,
    /// The kernel's `ucontext_t`.
    pub context: *mut c_void,
    /// The address that is installed in the kernel for this handler.
    pub entry: usize,
    /// True if it has interrupted a call of the guest's.
    pub is_inside: bool,
    /// True if the interrupted instruction itself has raised it: the call will not go on.
    pub is_fault: bool,
}

/// What a signal in a call of the guest's puts off until the call has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOff {
    /// The signals that are unblocked then, as a set of the kernel's: this one, and those that the
    /// mask of the call has let through (ppoll(2)).
    pub signals: u64,
    /// Those that this mask blocks beside the guest's, until a handler has run.
    pub blocked: u64,
}

/// Returns true if the thread's own last instruction raised the signal: the thread cannot go on
/// before the signal is handled. A positive `si_code` means that the kernel generated the signal
/// (sigaction(2)).
#[must_use]
#[inline]
pub fn is_fault(signal: c_int, info: &libc::siginfo_t) -> bool {
    let is_kind = matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS
    );
    is_kind && info.si_code > 0
}

/// The library's entries of the lowest descriptor numbers, for a caller that reads them itself. A
/// data call is the kernel's if the guard's word is 0, the entry's session is 0, and of its marks
/// the decisive ones are the settled one alone. All these words may change at any time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// The entry of number 0; null if there is none yet. It never moves.
    pub first: *const u8,
    /// The word of the library's guard, which is 0 while calls may enter the library; null if
    /// `first` is.
    pub guard: *const u32,
}

impl Entries {
    /// The number of entries.
    pub const COUNT: usize = 256;
    /// Bytes from one entry to the next.
    pub const STRIDE: usize = 80;
    /// The place of the session's word in an entry.
    pub const SESSION: usize = 0;
    /// The place of the marks in an entry.
    pub const MARKS: usize = 4;
    /// The marks that decide.
    pub const DECISIVE: u32 = 0x101;
    /// Those of a descriptor that never moves.
    pub const SETTLED: u32 = 1;

    /// Returns no entries.
    #[must_use]
    pub const extern "C" fn none() -> Self {
        Self { first: core::ptr::null(), guard: core::ptr::null() }
    }
}

/// The table of functions. All are called by a thread of the C library's, and never from within
/// another of them.
#[repr(C)]
#[derive(Debug)]
pub struct Door {
    /// Makes a system call as a program does with syscall(2). Returns the kernel's result.
    ///
    /// # Safety
    /// As for the system call itself.
    pub call: unsafe extern "C-unwind" fn(number: i64, arguments: &[usize; 6]) -> isize,
    /// Returns true if the library serves a system call, or has to know of it. All others may be
    /// made without it.
    pub concerns: extern "C" fn(number: i64) -> bool,
    /// Returns true if the kernel serves a data call on the descriptor `fd`, and the library does
    /// not count it. A wrong "false" does no harm.
    pub is_kernels: extern "C" fn(fd: c_int) -> bool,
    /// Returns where the answers of `is_kernels` can be read.
    pub entries: extern "C" fn() -> Entries,
    /// Announces a child that shares this memory while its parent's thread waits (vfork(2)).
    pub vfork_begins: extern "C" fn(),
    /// Notes, in the parent, that this child runs its own program or has ended.
    pub vfork_ends: extern "C" fn(),
    /// Takes note of a signal. Within a call it is put off: sent again, blocked, and the call's
    /// waits end. Outside calls its handler is about to run, and nothing is put off.
    ///
    /// # Safety
    /// Must be called by the kernel's handler function, with the arguments of that function.
    pub signal: unsafe extern "C-unwind" fn(signal: &Signal) -> PutOff,
    /// Returns the signals that were put off in this thread, which the caller unblocks when the
    /// guest goes on.
    pub due: extern "C" fn() -> u64,
    /// Announces the end of a thread of the guest's, which may end the process with this status.
    pub thread_ends: extern "C" fn(status: c_int),
}
