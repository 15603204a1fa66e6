//! What the loader asks of the preload library: one table of functions.
//!
//! The loader is a program like any other, preloaded into. It calls `syscall` (syscall(2)) with
//! [`NUMBER`], which no kernel has, and gets the table; without the preload library it gets
//! `ENOSYS`. So the library exports nothing but names of the C library.

use core::ffi::{c_int, c_void};

/// The number to ask with. Arguments: [`VERSION`], and where the table's address is to be written.
pub const NUMBER: i64 = -0x534f_4a01;

/// Changes whenever [`Door`] does.
pub const VERSION: usize = 1;

/// Runs a handler of the guest's; the argument is what was given beside it.
pub type RunFn = unsafe extern "C-unwind" fn(*mut c_void);

/// A signal that has come, as the kernel's handler function got it.
#[repr(C)]
#[derive(Debug)]
pub struct Signal {
    /// Which.
    pub number: c_int,
    /// The guest installed its handler with `SA_RESTART`.
    pub restarts: bool,
    /// `siginfo_t`.
    pub info: *mut c_void,
    /// `ucontext_t`.
    pub context: *mut c_void,
    /// What the kernel calls for this handler.
    pub entry: usize,
    /// Runs the guest's handler.
    pub run: RunFn,
    /// For `run`.
    pub data: *mut c_void,
}

/// The functions. All are called by a thread of the C library's, outside any other of them.
#[repr(C)]
#[derive(Debug)]
pub struct Door {
    /// Makes a system call as a program does with syscall(2); answers as the kernel does.
    ///
    /// # Safety
    /// As the system call.
    pub call: unsafe extern "C-unwind" fn(number: i64, arguments: &[usize; 6]) -> isize,
    /// A child that shares this memory is about to be made, whose parent's thread waits (vfork(2)).
    pub vfork_begins: extern "C" fn(),
    /// That child runs its own program, or has ended. In the parent.
    pub vfork_ends: extern "C" fn(),
    /// A signal has come: has its handler run now, or later by having it sent again.
    ///
    /// # Safety
    /// Called by the kernel's handler function, with what that got.
    pub signal: unsafe extern "C-unwind" fn(signal: &Signal),
    /// A thread of the guest's is about to end; perhaps the process with it, with this status.
    pub thread_ends: extern "C" fn(status: c_int),
}
