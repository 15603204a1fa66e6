//! The guest: one program, which is set when it is loaded and does not change afterwards.

use crate::raw;
use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use sojourn_abi::door::{Door, Entries, PutOff, Signal};
use sojourn_abi::patch::Trampoline;
use std::ffi::CString;
use std::sync::OnceLock;

/// The program, and the loader's knowledge of it.
#[derive(Debug)]
pub(crate) struct Guest {
    /// The program's file, as an absolute path without symbolic links.
    pub(crate) file: CString,
    /// The loader's own file.
    pub(crate) loader: CString,
    /// What tells the loader's file from all others.
    pub(crate) loader_id: raw::Identity,
    /// The address that its trampolines lead to.
    pub(crate) entry: usize,
    /// The bounds of the guest's break: see [`BREAK`].
    pub(crate) breaks: Range<usize>,
    /// `LD_PRELOAD=...`, hidden from a guest with a dynamic loader of its own; its children get it
    /// again.
    pub(crate) preload: Option<CString>,
    /// The addresses of calls that could not be rewritten, in ascending order.
    pub(crate) left: Box<[usize]>,
    /// The trampolines of the program and of its interpreter, in ascending order.
    pub(crate) trampolines: Box<[Trampoline]>,
    /// The text that contains the calls that are left.
    pub(crate) trapped: Option<TrapRange>,
}

/// A part of the text whose calls the kernel traps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrapRange {
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl Guest {
    /// Returns the address of the guest's own instruction that a thread at `at`, in a trampoline,
    /// would be at without one.
    pub(crate) fn original(&self, at: usize) -> Option<usize> {
        Trampoline::original_in(&self.trampolines, at as u64).map(|at| at as usize)
    }

    /// Returns the address in a trampoline at which a thread goes on that is at `at` in the guest's
    /// own text; `None` if it goes on there.
    pub(crate) fn moved(&self, at: usize) -> Option<usize> {
        let find = |one: &Trampoline| one.moved(at as u64);
        self.trampolines.iter().find_map(find).map(|at| at as usize)
    }
}

// FORK: set before the guest runs.
static GUEST: OnceLock<Guest> = OnceLock::new();
/// The guest's current break.
pub(crate) static BREAK: AtomicUsize = AtomicUsize::new(0);

/// Sets the guest, once.
pub(crate) fn set(guest: Guest) {
    BREAK.store(guest.breaks.start, Ordering::Relaxed);
    let _ = GUEST.set(guest);
}

/// Returns the guest. Must only be called after [`set`].
#[inline(always)]
pub(crate) fn guest() -> &'static Guest {
    match GUEST.get() {
        Some(guest) => guest,
        // No code can run as the guest before the guest is set, so this never happens.
        None => std::process::abort(),
    }
}

/// The functions in the place of the preload library's while that is not in the process.
static KERNEL: Door = Door {
    call: by_kernel,
    concerns: concerns_nobody,
    is_kernels: is_kernels_always,
    entries: Entries::none,
    vfork_begins: nothing,
    vfork_ends: nothing,
    signal: comes,
    due: nothing_due,
    thread_ends: nothing_ends,
};

unsafe extern "C-unwind" fn by_kernel(number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe { raw::call(number, *arguments) }
}

extern "C" fn concerns_nobody(_: i64) -> bool {
    false
}

extern "C" fn is_kernels_always(_: c_int) -> bool {
    true
}

extern "C" fn nothing() {}

extern "C" fn nothing_ends(_: c_int) {}

/// No handler is installed before the library is in the process.
unsafe extern "C-unwind" fn comes(_: &Signal) -> PutOff {
    PutOff::default()
}

extern "C" fn nothing_due() -> u64 {
    0
}

static DOOR: AtomicPtr<Door> = AtomicPtr::new((&raw const KERNEL).cast_mut());

/// Sets the preload library's functions, while the process has one thread.
pub(crate) fn set_door(door: &'static Door) {
    DOOR.store(core::ptr::from_ref(door).cast_mut(), Ordering::Relaxed);
}

/// Returns the preload library's functions.
#[inline(always)]
pub(crate) fn door() -> &'static Door {
    // SAFETY: a table that lives as long as the process, and does not change.
    unsafe { &*DOOR.load(Ordering::Relaxed) }
}

/// Lets the library make a system call, which it may pass to the kernel.
///
/// # Safety
/// As for the system call itself.
#[inline(always)]
pub(crate) unsafe fn call(number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe { (door().call)(number, arguments) }
}
