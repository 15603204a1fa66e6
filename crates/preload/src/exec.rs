//! `exec` and the end of the process: sessions whose descriptors outlive the program go home first.
//!
//! At `exec`, descriptors without `FD_CLOEXEC` stay open, so their sessions move into the kernel.
//! At the process's end every session does. A child of vfork(2) has nothing left to do: its parent
//! moved the sessions before the `vfork`. Not here: the new program's environment (`follow`) and
//! its loader (`loaded`).

use crate::follow;
use crate::guard::{is_initialized, is_open, is_shut, tell, tell_if_initialized, within};
use crate::library::{Inherited, ReasonT};
use crate::loaded;
use crate::next::next;
use crate::process::is_first_thread;
use crate::trampoline::{Interposer, asks_first};
use crate::variables::{List, Text as Path};
use core::ffi::{c_int, c_void};

unsafe extern "C" fn before_exec(entry: &Interposer, _: &[usize; 6]) -> usize {
    tell_if_initialized(|library| library.before_exec());
    entry.next()
}

/// Hooks `fork`. A thread that is not the first one is noted by the handlers for forks (`process`),
/// which an initialized library has registered.
unsafe extern "C" fn before_fork(entry: &Interposer, _: &[usize; 6]) -> usize {
    if !is_initialized() && !is_shut() && !is_first_thread() {
        is_open();
    }
    entry.next()
}

asks_first!(before_fork; fork = 0, __fork = 0);
asks_first!(before_exec; execl = 0, execle = 0, execlp = 0, execveat = 0, fexecve = 0);

/// Makes a child, or a new program, by `make`, while no session moves of which it would get a
/// descriptor. What it gets is home before.
#[inline]
pub(crate) fn making<R>(inherited: Inherited, make: impl FnOnce() -> R) -> R {
    if !is_initialized() || !is_open() {
        return make();
    }
    within(|library| library.before_child(inherited));
    let made = make();
    tell(|library| library.child_made(inherited));
    made
}

/// Makes a new program in place of this one by `make`, which returns if that fails.
#[inline]
fn replacing<R>(make: impl FnOnce() -> R) -> R {
    tell_if_initialized(|library| library.leave_children());
    making(Inherited::OpenOverExec, make)
}

/// Returns what a child of posix_spawn(3) gets. By its file actions it may give any session's
/// descriptor a number that stays open, also one that `exec` closes.
fn inherited_by(actions: *const c_void) -> Inherited {
    if actions.is_null() { Inherited::OpenOverExec } else { Inherited::All }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn system(command: Path) -> c_int {
    type SystemFn = unsafe extern "C-unwind" fn(Path) -> c_int;
    // SAFETY: the program's arguments, passed on unchanged.
    making(Inherited::OpenOverExec, || unsafe { next!(c"system" as SystemFn)(command) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn wordexp(words: Path, found: *mut c_void, flags: c_int) -> c_int {
    type WordsFn = unsafe extern "C-unwind" fn(Path, *mut c_void, c_int) -> c_int;
    // SAFETY: the program's arguments, passed on unchanged.
    making(Inherited::OpenOverExec, || unsafe { next!(c"wordexp" as WordsFn)(words, found, flags) })
}

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

/// Returns the program's environment as it is now.
fn environment() -> List {
    // SAFETY: the C library's variable. A program that changes it from another thread meanwhile
    // races with every `exec`, also without this library.
    unsafe { environ }
}

/// Starts `path` by `run`: with the environment that the setting `follow` asks for, or by the
/// loader.
#[inline]
fn start<R>(path: Path, variables: List, run: impl FnOnce(Path, List) -> R) -> R {
    follow::with(path, variables, |variables| loaded::start(path, variables, run))
}

/// Starts a program by `run` as [`start`] does, for a name that is searched for in `PATH`.
#[inline]
fn start_found<R>(name: Path, variables: List, run: impl FnOnce(Path, List) -> R) -> R {
    follow::with(name, variables, |variables| loaded::start_found(name, variables, run))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn execve(path: Path, words: List, variables: List) -> c_int {
    replacing(|| {
        start(path, variables, |path, variables| {
            // SAFETY: the program's own arguments, or a path and a list made by `follow` and
            // `loaded`.
            unsafe { next!(c"execve" as ExecFn)(path, words, variables) }
        })
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn execv(path: Path, words: List) -> c_int {
    replacing(|| {
        start(path, environment(), |path, variables| {
            // SAFETY: the program's own arguments, or a path and a list made by `follow` and
            // `loaded`. `execve` with the current environment does what `execv` does.
            unsafe { next!(c"execve" as ExecFn)(path, words, variables) }
        })
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn execvp(name: Path, words: List) -> c_int {
    replacing(|| {
        start_found(name, environment(), |name, variables| {
            // SAFETY: the program's own arguments, or a name and a list made by `follow` and
            // `loaded`. `execvpe` with the current environment does what `execvp` does.
            unsafe { next!(c"execvpe" as ExecFn)(name, words, variables) }
        })
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn execvpe(name: Path, words: List, variables: List) -> c_int {
    replacing(|| {
        start_found(name, variables, |name, variables| {
            // SAFETY: the program's own arguments, or a name and a list made by `follow` and
            // `loaded`.
            unsafe { next!(c"execvpe" as ExecFn)(name, words, variables) }
        })
    })
}

/// Defines functions that start a program beside this one. `found` says how it is found: by its
/// path or by its name. Their result is an error number, also where the C library has no such
/// function.
macro_rules! spawns {
    ($($name:ident = $next:literal, $found:ident;)+) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(
            process: *mut c_int,
            program: Path,
            actions: *const c_void,
            attributes: *const c_void,
            words: List,
            variables: List,
        ) -> c_int {
            making(inherited_by(actions), || {
                $found(program, variables, |program, variables| {
                    // SAFETY: the program's own arguments, or a program and a list made by `follow`
                    // and `loaded`.
                    let result = unsafe {
                        next!($next as SpawnFn)(
                            process, program, actions, attributes, words, variables,
                        )
                    };
                    if result < 0 { libc::ENOSYS } else { result }
                })
            })
        }
    )+};
}

spawns! {
    posix_spawn = c"posix_spawn", start;
    posix_spawnp = c"posix_spawnp", start_found;
    pidfd_spawn = c"pidfd_spawn", start;
    pidfd_spawnp = c"pidfd_spawnp", start_found;
}

// `end` is a destructor, too. exit(3) calls the C library's internal `_exit`, which the
// functions below do not replace, so a destructor covers that way out and `_exit` and `_Exit`
// cover the others. A process that is killed runs neither.
// As the constructor (`start`): an address that the loader itself relocates.
core::arch::global_asm!(
    ".pushsection .fini_array, \"aw\", @fini_array",
    ".quad {end}",
    ".popsection",
    end = sym end,
);

extern "C" fn end() {
    ends();
}

/// Tells the library that the process is about to end.
pub(crate) fn ends() {
    tell_if_initialized(|library| library.before_exit());
}

unsafe extern "C" fn before_end(entry: &Interposer, _: &[usize; 6]) -> usize {
    end();
    entry.next()
}

asks_first!(before_end; _exit = 0, _Exit = 0, quick_exit = 0);

/// Notes that a new program will get `fd`: the session goes home now and stays in the kernel,
/// because the C library duplicates the descriptor inside the child, unseen.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    new: c_int,
) -> c_int {
    tell(|library| library.go_home(fd, ReasonT::Exec, true));
    type AddFn = unsafe extern "C-unwind" fn(*mut c_void, c_int, c_int) -> c_int;
    // SAFETY: the program's arguments, passed on unchanged.
    unsafe { next!(c"posix_spawn_file_actions_adddup2" as AddFn)(actions, fd, new) }
}
