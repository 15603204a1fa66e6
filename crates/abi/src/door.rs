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
pub const VERSION: usize = 4;

/// Notes that the guest has a hot session. Called once, by a thread that has descriptors of its
/// own.
pub type NoteFn = extern "C" fn();

/// Runs a handler of the guest's, given the data that were passed along with the function.
pub type RunFn = unsafe extern "C-unwind" fn(*mut c_void);

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
    /// The function that runs the guest's handler.
    pub run: RunFn,
    /// The argument of `run`.
    pub data: *mut c_void,
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
    /// Announces a child that shares this memory while its parent's thread waits (vfork(2)).
    pub vfork_begins: extern "C" fn(),
    /// Notes, in the parent, that this child runs its own program or has ended.
    pub vfork_ends: extern "C" fn(),
    /// Delivers a signal: has its handler run now, or later by sending the signal again.
    ///
    /// # Safety
    /// Must be called by the kernel's handler function, with the arguments of that function.
    pub signal: unsafe extern "C-unwind" fn(signal: &Signal),
    /// Announces the end of a thread of the guest's, which may end the process with this status.
    pub thread_ends: extern "C" fn(status: c_int),
}
