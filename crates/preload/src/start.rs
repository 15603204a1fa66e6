//! The constructor. It runs in every program, so it does next to nothing: no file, no allocation, no system call
//! but for the process number.

use crate::host::SHELL;
use crate::library::library;
use crate::{gate, process};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if !cfg!(debug_assertions) {
        // What fails here is dealt with here (`gate`); the program's standard error is the program's.
        std::panic::set_hook(Box::new(|_| ()));
    }
    library().set_host(&SHELL);
    process::watch_forks();
    gate::start();
}
