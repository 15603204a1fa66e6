//! The constructor. It runs in every program, so it does next to nothing: no file, no mapping, no
//! system call but for the process number.

use crate::host::SHELL;
use crate::library::library;
use crate::{guard, process, sanitizer};
use core::ffi::{CStr, c_char};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // Beside a sanitizer or of another C library everything is as it would be without us: the guard
    // stays closed.
    if sanitizer::is_here() || !process::watch_forks() {
        return;
    }
    if !cfg!(debug_assertions) {
        // What fails here is dealt with here (`guard`); the program's standard error is the
        // program's.
        std::panic::set_hook(Box::new(|_| ()));
    }
    library().set_host(&SHELL);
    library().opens_nothing();
    library().keep_environment(environment());
    guard::start();
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// What the program was started with.
fn environment<'a>() -> impl Iterator<Item = &'a [u8]> {
    // SAFETY: the C library's, set before constructors run; no other thread is there to change it.
    let all = unsafe { environ };
    let len = if all.is_null() { 0 } else { usize::MAX };
    (0..len).map_while(move |at| {
        // SAFETY: an array that ends with a null pointer, at which we stop.
        let variable = unsafe { *all.add(at) };
        // SAFETY: a string of the environment.
        (!variable.is_null()).then(|| unsafe { CStr::from_ptr(variable) }.to_bytes())
    })
}
