//! The objects that the dynamic loader has loaded, by its own account (dl_iterate_phdr(3)).
//!
//! Not here: their symbols (`objects`), and their mappings (`rewriting::maps`).

use crate::next::c_library;
use core::ffi::{CStr, c_int, c_void};

type LookFn = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type IterateFn = unsafe extern "C" fn(LookFn, *mut c_void) -> c_int;

/// One object, valid during a call of `each`.
struct Object<'a>(&'a libc::dl_phdr_info);

impl Object<'_> {
    fn path(&self) -> &[u8] {
        if self.0.dlpi_name.is_null() {
            return &[];
        }
        // SAFETY: the loader's string.
        unsafe { CStr::from_ptr(self.0.dlpi_name) }.to_bytes()
    }

    fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: the loader's table of the object.
        unsafe { core::slice::from_raw_parts(self.0.dlpi_phdr, usize::from(self.0.dlpi_phnum)) }
    }
}

fn each<F: FnMut(Object<'_>)>(mut look: F) {
    unsafe extern "C" fn one<F: FnMut(Object<'_>)>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        look: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's structure, and the closure of `each`, both valid during this call.
        let (info, look) = unsafe { (&*info, &mut *look.cast::<F>()) };
        look(Object(info));
        0
    }
    // SAFETY: `one` is called with the closure, which outlives the call.
    unsafe { c_library!(c"dl_iterate_phdr" as IterateFn)(one::<F>, (&raw mut look).cast()) };
}

/// Returns true if liburing is loaded. liburing makes its system calls itself, so its rings are
/// noticed late (`library::rings`).
pub(crate) fn has_liburing() -> bool {
    let mut found = false;
    each(|object| {
        let file = object.path().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        found |= file.starts_with(b"liburing.so") || file.starts_with(b"liburing-ffi.so");
    });
    found
}

/// Returns the bytes that all objects' thread-local variables take at most (`PT_TLS`, elf(5)).
pub(crate) fn thread_local_len() -> usize {
    let mut sum = 0u64;
    each(|object| {
        let storage = object.headers().iter().filter(|header| header.p_type == libc::PT_TLS);
        let lens = storage.map(|header| header.p_memsz.saturating_add(header.p_align));
        sum = lens.fold(sum, u64::saturating_add);
    });
    usize::try_from(sum).unwrap_or(usize::MAX)
}
