//! The guest: one program, which is set when it is loaded and does not change afterwards.

use core::sync::atomic::{AtomicUsize, Ordering};
use sojourn_abi::door::Door;
use std::ffi::CString;
use std::sync::OnceLock;

/// The program, and the loader's knowledge of it.
#[derive(Debug)]
pub(crate) struct Guest {
    /// The preload library's functions.
    pub(crate) door: &'static Door,
    /// The program's file, as an absolute path without symbolic links.
    pub(crate) file: CString,
    /// The loader's own file.
    pub(crate) loader: CString,
    /// The address that its trampolines lead to.
    pub(crate) entry: usize,
    /// The bounds of the guest's break: see [`BREAK`].
    pub(crate) breaks: (usize, usize),
    /// `LD_PRELOAD=...`, hidden from a guest with a dynamic loader of its own; its children get it
    /// again.
    pub(crate) preload: Option<CString>,
    /// The addresses of calls that could not be rewritten, in ascending order.
    pub(crate) left: Box<[usize]>,
    /// The text that contains these calls: address and length.
    pub(crate) trapped: Option<(usize, usize)>,
}

static GUEST: OnceLock<Guest> = OnceLock::new();
/// The guest's current break.
pub(crate) static BREAK: AtomicUsize = AtomicUsize::new(0);

/// Sets the guest, once.
pub(crate) fn set(guest: Guest) {
    BREAK.store(guest.breaks.0, Ordering::Relaxed);
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

/// Lets the library make a system call, which it may pass to the kernel.
///
/// # Safety
/// As for the system call itself.
#[inline(always)]
pub(crate) unsafe fn call(number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe { (guest().door.call)(number, arguments) }
}
