//! New programs: what stays open over `exec` goes home first. And the program's end, at which
//! everything does.
//!
//! In a child of `vfork` nothing is left to do: its parent did it.

use crate::guard::tell;
use crate::library::ReasonT;
use crate::loaded;
use crate::next::next;
use crate::trampoline::{Interposer, asks_first};
use core::ffi::{c_char, c_int, c_void};

unsafe extern "C" fn before_exec(entry: &Interposer, _: &[usize; 6]) -> usize {
    tell(|library| library.before_exec());
    entry.next()
}

asks_first!(before_exec;
    execl = 0, execle = 0, execlp = 0, execveat = 0, fexecve = 0, system = 0, wordexp = 0,
);

/// Strings, and lists of them that end with a null pointer.
type Path = *const c_char;
type List = *const *const c_char;
type ExecFn = unsafe extern "C-unwind" fn(Path, List, List) -> c_int;
type SpawnFn = unsafe extern "C-unwind" fn(
    *mut libc::pid_t,
    Path,
    *const c_void,
    *const c_void,
    List,
    List,
) -> c_int;

unsafe extern "C" {
    static environ: List;
}

/// The program's environment as it is now.
fn environment() -> List {
    // SAFETY: the C library's variable; who changes it meanwhile does so for every `exec`.
    unsafe { environ }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execve(path: Path, words: List, variables: List) -> c_int {
    tell(|library| library.before_exec());
    loaded::start(path, variables, |path, variables| {
        // SAFETY: passed on, or ours.
        unsafe { next!(c"execve" as ExecFn)(path, words, variables) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execv(path: Path, words: List) -> c_int {
    tell(|library| library.before_exec());
    loaded::start(path, environment(), |path, variables| {
        // SAFETY: passed on, or ours; the function for the given environment.
        unsafe { next!(c"execve" as ExecFn)(path, words, variables) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvp(name: Path, words: List) -> c_int {
    tell(|library| library.before_exec());
    loaded::start_found(name, environment(), |name, variables| {
        // SAFETY: as above.
        unsafe { next!(c"execvpe" as ExecFn)(name, words, variables) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvpe(name: Path, words: List, variables: List) -> c_int {
    tell(|library| library.before_exec());
    loaded::start_found(name, variables, |name, variables| {
        // SAFETY: passed on, or ours.
        unsafe { next!(c"execvpe" as ExecFn)(name, words, variables) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: Path,
    actions: *const c_void,
    attributes: *const c_void,
    words: List,
    variables: List,
) -> c_int {
    tell(|library| library.before_exec());
    loaded::start(path, variables, |path, variables| {
        // SAFETY: passed on, or ours.
        unsafe {
            next!(c"posix_spawn" as SpawnFn)(pid, path, actions, attributes, words, variables)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut libc::pid_t,
    name: Path,
    actions: *const c_void,
    attributes: *const c_void,
    words: List,
    variables: List,
) -> c_int {
    tell(|library| library.before_exec());
    loaded::start_found(name, variables, |name, variables| {
        // SAFETY: passed on, or ours.
        unsafe {
            next!(c"posix_spawnp" as SpawnFn)(pid, name, actions, attributes, words, variables)
        }
    })
}

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
