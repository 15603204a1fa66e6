//! The constructor. It runs in every program, so it does next to nothing: no file, no allocation, no system call
//! but for the process number.

use crate::host::SHELL;
use crate::library::library;
use crate::{gate, process};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    library().set_host(&SHELL);
    process::watch_forks();
    gate::start();
}
