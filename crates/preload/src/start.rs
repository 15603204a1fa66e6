//! The constructor: connects the library to its shell and to the process, and opens the guard.
//!
//! The constructor runs in every program, so it does next to nothing. It opens no file, maps no
//! memory, and makes no system calls except for the process's number and the types of the standard
//! streams. Read `guard` first.

use crate::host::SHELL;
use crate::library::library;
use crate::variables::{List, all};
use crate::{follow, guard, process, sanitizer, stdio};
use core::ffi::CStr;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // Beside a sanitizer, or on a C library without the hook for forks, the guard stays closed, so
    // that the program runs as without the preload library.
    if sanitizer::is_here() || !has_known_pages() || !process::watch_forks() {
        return;
    }
    if !cfg!(debug_assertions) {
        // `guard` catches panics of this library and handles them. A message would go to the
        // program's standard error, which the program may use for its own protocol.
        std::panic::set_hook(Box::new(|_| ()));
    }
    library().set_host(&SHELL);
    library().stop_opening_files();
    // SAFETY: the C library sets this variable before constructors run; no other thread exists to
    // change it.
    let environment = unsafe { environ };
    // SAFETY: strings of the environment.
    let strings = all(environment).map(|one| unsafe { CStr::from_ptr(one) }.to_bytes());
    library().keep_environment(strings);
    stdio::start();
    follow::start(environment);
    guard::start();
}

/// Returns true if pages have the size that this library takes them for. On x86-64 they always
/// have; on AArch64 a kernel may have pages of 16 or 64 KiB.
fn has_known_pages() -> bool {
    // SAFETY: reads the auxiliary vector.
    cfg!(target_arch = "x86_64")
        || unsafe { libc::getauxval(libc::AT_PAGESZ) } == crate::validated::PAGE as u64
}

unsafe extern "C" {
    static environ: List;
}
