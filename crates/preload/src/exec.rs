//! New programs: what stays open over `exec` goes home first. And the program's end, at which
//! everything does.
//!
//! In a child of `vfork` nothing is left to do: its parent did it.

use crate::guard::tell;
use crate::library::ReasonT;
use crate::next::next;
use crate::trampoline::{Interposer, asks_first};
use core::ffi::{c_int, c_void};

unsafe extern "C" fn before_exec(entry: &Interposer, _: &[usize; 6]) -> usize {
    tell(|library| library.before_exec());
    entry.next()
}

asks_first!(before_exec;
    execl = 0, execle = 0, execlp = 0, execv = 0, execve = 0, execveat = 0, execvp = 0, execvpe = 0, fexecve = 0,
    posix_spawn = 0, posix_spawnp = 0, system = 0, wordexp = 0,
);

/// `exit` calls the C library's own `_exit`, so destructors see that end, and these functions the
/// others. Whoever is killed sees none.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    ends();
}

/// The process is about to end.
pub(crate) fn ends() {
    tell(|library| library.before_exit());
}

unsafe extern "C" fn before_end(entry: &Interposer, _: &[usize; 6]) -> usize {
    end();
    entry.next()
}

asks_first!(before_end; _exit = 0, _Exit = 0);

/// Notes down that a new program will get `fd`: it goes home now and stays.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    new: c_int,
) -> c_int {
    tell(|library| library.go_home(fd, ReasonT::Exec, true));
    type AddFn = unsafe extern "C-unwind" fn(*mut c_void, c_int, c_int) -> c_int;
    // SAFETY: passed on.
    unsafe { next!(c"posix_spawn_file_actions_adddup2" as AddFn)(actions, fd, new) }
}
