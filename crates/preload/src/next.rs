//! The functions that ours stand before: the next of that name after this library, found at first use.
//!
//! Nothing is looked up at start: a look-up costs some hundred nanoseconds, and a short program needs few.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The next function named `$name`, as a pointer of type `$type`. Unsafe: the C library's function of this
/// name must have this type.
macro_rules! next {
    ($name:literal as $type:ty) => {{
        static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        core::mem::transmute::<usize, $type>($crate::next::address(&SLOT, $name))
    }};
}
pub(crate) use next;

/// What `slot` holds, looked up if it holds nothing yet. Never 0.
#[inline(always)]
pub(crate) fn address(slot: &AtomicUsize, name: &CStr) -> usize {
    // Every thread would store the same, and nothing else hangs on it.
    match slot.load(Ordering::Relaxed) {
        0 => look_up(slot, name),
        address => address,
    }
}

#[cold]
#[inline(never)]
pub(crate) fn look_up(slot: &AtomicUsize, name: &CStr) -> usize {
    let address = find(name).unwrap_or(missing as *const () as usize);
    slot.store(address, Ordering::Relaxed);
    address
}

/// The next function or variable of that name.
pub(crate) fn find(name: &CStr) -> Option<usize> {
    let kept = crate::errno::value();
    // SAFETY: the name ends in a zero; `RTLD_NEXT` is relative to this library.
    let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    crate::errno::set_raw(kept);
    (!found.is_null()).then_some(found as usize)
}

/// Stands for what this C library does not have.
extern "C" fn missing() -> isize {
    crate::errno::set_raw(libc::ENOSYS);
    -1
}
