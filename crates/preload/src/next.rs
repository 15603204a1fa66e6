//! Addresses of the functions that this library's functions stand before: the next function of the
//! same name in the order of loading, and the C library's own functions for this library's own
//! needs.
//!
//! Functions are looked up at first use, not at start: a look-up costs some hundred nanoseconds,
//! and a short program needs few functions. The addresses lie together, in the section for what
//! programs that stay small write (`start.ld`). Not here: how symbols are found (`objects`).

use crate::objects;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Returns the next function named `$name`, as a pointer of type `$type`. Unsafe: the C library's
/// function of this name must have this type.
macro_rules! next {
    ($name:literal as $type:ty) => {{
        #[unsafe(link_section = ".data.start")]
        static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        core::mem::transmute::<usize, $type>($crate::next::address(&SLOT, $name))
    }};
}
pub(crate) use next;

/// Returns the C library's function named `$name`, even if another object defines the same name.
/// Unsafe as [`next!`].
macro_rules! c_library {
    ($name:literal as $type:ty) => {{
        #[unsafe(link_section = ".data.start")]
        static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        core::mem::transmute::<usize, $type>($crate::next::of_c_library(&SLOT, $name))
    }};
}
pub(crate) use c_library;

/// Returns the address of this library's own exported function `$name`, without the global offset
/// table (`relocation`).
macro_rules! own {
    ($name:ident) => {
        $crate::linker::address_of!(sym $name)
    };
}
pub(crate) use own;

/// Returns the address of the next function named `name`, and keeps it in `slot`. Never returns 0.
#[inline(always)]
pub(crate) fn address(slot: &AtomicUsize, name: &CStr) -> usize {
    kept(slot, name, objects::next)
}

/// Returns the address of the C library's function named `name`, and keeps it in `slot`. Never
/// returns 0.
#[inline(always)]
pub(crate) fn of_c_library(slot: &AtomicUsize, name: &CStr) -> usize {
    kept(slot, name, objects::of_c_library)
}

#[inline(always)]
fn kept(slot: &AtomicUsize, name: &CStr, find: fn(&CStr) -> Option<usize>) -> usize {
    // Relaxed order suffices: every thread would store the same address, and no other memory
    // depends on the store.
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
        // The failure is not kept in `slot`: before version 2.34, glibc is split into several
        // objects (`libpthread`, `librt`), which a program may load later.
        None => missing as *const () as usize,
    }
}

/// Stands for a function that this C library does not have: fails with `ENOSYS`.
extern "C" fn missing() -> isize {
    crate::errno::set_raw(libc::ENOSYS);
    -1
}
