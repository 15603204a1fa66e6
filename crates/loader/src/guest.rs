//! What is known of the guest: one program, set when it is loaded and left alone from then on.

use core::sync::atomic::{AtomicUsize, Ordering};
use sojourn_abi::door::Door;
use std::ffi::CString;
use std::sync::OnceLock;

/// The program, and what it needs.
#[derive(Debug)]
pub(crate) struct Guest {
    /// The preload library's functions.
    pub(crate) door: &'static Door,
    /// The program's file, absolute and without links.
    pub(crate) file: CString,
    /// The loader's own file.
    pub(crate) loader: CString,
    /// Where its trampolines lead.
    pub(crate) entry: usize,
    /// What it may grow to: see [`BREAK`].
    pub(crate) breaks: (usize, usize),
    /// `LD_PRELOAD=...`, which the guest was not to see as it has a loader of its own; its children
    /// are.
    pub(crate) preload: Option<CString>,
    /// The addresses of calls that could not be rewritten, in ascending order.
    pub(crate) left: Box<[usize]>,
    /// Text that has system calls which could not be rewritten: address and length.
    pub(crate) trapped: Option<(usize, usize)>,
}

static GUEST: OnceLock<Guest> = OnceLock::new();
/// The guest's break, as it is now.
pub(crate) static BREAK: AtomicUsize = AtomicUsize::new(0);

/// Sets the guest, once.
pub(crate) fn set(guest: Guest) {
    BREAK.store(guest.breaks.0, Ordering::Relaxed);
    let _ = GUEST.set(guest);
}

/// The guest. Only called once there is one.
#[inline(always)]
pub(crate) fn guest() -> &'static Guest {
    match GUEST.get() {
        Some(guest) => guest,
        // Nothing can go on without; there is no message, for there is no moment at which this is.
        None => std::process::abort(),
    }
}

/// Has the library make a system call, or the kernel.
///
/// # Safety
/// As the system call.
#[inline(always)]
pub(crate) unsafe fn call(number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the caller's promise.
    unsafe { (guest().door.call)(number, arguments) }
}
