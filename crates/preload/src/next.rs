//! The functions that ours stand before: the next of that name after this library, found at first
//! use. And the C library's own, for what this library needs itself.
//!
//! Nothing is looked up at start: a look-up costs some hundred nanoseconds, and a short program
//! needs few.

use crate::objects;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The next function named `$name`, as a pointer of type `$type`. Unsafe: the C library's function
/// of this name must have this type.
macro_rules! next {
    ($name:literal as $type:ty) => {{
        static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        core::mem::transmute::<usize, $type>($crate::next::address(&SLOT, $name))
    }};
}
pub(crate) use next;

/// The C library's function named `$name`, whoever else has that name. Unsafe as [`next!`].
macro_rules! c_library {
    ($name:literal as $type:ty) => {{
        static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        core::mem::transmute::<usize, $type>($crate::next::of_c_library(&SLOT, $name))
    }};
}
pub(crate) use c_library;

/// What `slot` holds, looked up if it holds nothing yet. Never 0.
#[inline(always)]
pub(crate) fn address(slot: &AtomicUsize, name: &CStr) -> usize {
    kept(slot, name, objects::next)
}

/// The same of the C library's own.
#[inline(always)]
pub(crate) fn of_c_library(slot: &AtomicUsize, name: &CStr) -> usize {
    kept(slot, name, objects::of_c_library)
}

#[inline(always)]
fn kept(slot: &AtomicUsize, name: &CStr, find: fn(&CStr) -> Option<usize>) -> usize {
    // Every thread would store the same, and nothing else hangs on it.
    match slot.load(Ordering::Relaxed) {
        0 => look_up(slot, name, find),
        address => address,
    }
}

#[cold]
#[inline(never)]
fn look_up(slot: &AtomicUsize, name: &CStr, find: fn(&CStr) -> Option<usize>) -> usize {
    match find(name) {
        Some(address) => {
            slot.store(address, Ordering::Relaxed);
            address
        }
        // Not kept: before 2.34 the C library has parts that a program may load later.
        None => missing as *const () as usize,
    }
}

/// Stands for what this C library does not have.
extern "C" fn missing() -> isize {
    crate::errno::set_raw(libc::ENOSYS);
    -1
}
