//! The C library's functions that this library itself calls, mostly through Rust's standard
//! library.
//!
//! A program, or another preloaded library, may define functions of these names for its own
//! purposes: a shell has `getenv`, a library that turns the clock back has `clock_gettime`. So each
//! name is defined here as a hidden symbol: only calls from within this shared object arrive here.
//! The functions make the system call, or call the C library's function, which is looked up when it
//! is first needed. So nothing is bound at start, and this library is not tied to the version of
//! the C library that it was built with.
//!
//! Not here: names that this library exports to programs (`read`, `close`), whose functions
//! recognize calls from inside; `pthread_create` (`threads`).

use crate::trampoline::Interposer;
use crate::{errno, objects, older, raw};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{stat64, timespec};

/// The C library's own signals, 32 and 33. When the program changes its user or group, the C
/// library sends signal 33 to every thread and waits until each has handled it, so no thread may
/// block it.
pub(crate) const INTERNAL: u64 = 3 << 31;

/// Defines hidden symbols for functions of this crate.
macro_rules! hidden {
    ($($name:ident = $function:path),+ $(,)?) => {$(
        core::arch::global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ": ", $crate::trampoline::jump!(), " {to}"),
            to = sym $function,
        );
    )+};
}
pub(crate) use hidden;

/// Defines hidden symbols for the C library's functions of the same names, with any arguments.
macro_rules! passed_on {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use super::{Interposer, find};

            static ENTRY: Interposer = Interposer::new(stringify!($name), 0);
            #[unsafe(naked)]
            unsafe extern "C" fn go() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "mov r11, [rip + {entry}]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2: lea r11, [rip + {find}]",
                    "push r11",
                    "lea r11, [rip + {entry}]",
                    "jmp {ask}",
                    find = sym find,
                    entry = sym ENTRY,
                    ask = sym crate::trampoline::ask_first,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "adrp x9, {entry}",
                    "add x9, x9, :lo12:{entry}",
                    "ldr x16, [x9]",
                    "cbz x16, 2f",
                    "br x16",
                    "2: adrp x10, {find}",
                    "add x10, x10, :lo12:{find}",
                    "b {ask}",
                    find = sym find,
                    entry = sym ENTRY,
                    ask = sym crate::trampoline::ask_first,
                )
            }
            hidden!($name = go);
        }
    )+};
}

unsafe extern "C" fn find(entry: &Interposer, _: &[usize; 6]) -> usize {
    entry.of_c_library()
}

passed_on!(
    abort,
    closedir,
    dirfd,
    exit,
    opendir,
    readdir64,
    realpath,
    sysconf,
    dl_iterate_phdr,
    getenv,
    __cxa_thread_atexit_impl,
    __xpg_strerror_r,
    pthread_attr_destroy,
    pthread_attr_getguardsize,
    pthread_attr_getstack,
    pthread_attr_init,
    pthread_attr_setstacksize,
    pthread_detach,
    pthread_getattr_np,
    pthread_getcpuclockid,
    pthread_join,
    pthread_key_create,
    __pthread_key_create,
    pthread_key_delete,
    pthread_getspecific,
    pthread_setspecific,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_once,
    pthread_self,
    pthread_setname_np,
    sigaddset,
    sigismember,
);

/// Makes a system call. Returns its result in the C manner: -1 and `errno` for an error. `older`
/// precedes a call that not every architecture has.
macro_rules! system_call {
    (older $number:ident $(, $argument:expr)*) => {{
        let words = arguments([$($argument as usize),*]);
        // SAFETY: the caller's arguments, which the kernel checks.
        errno::kernel(unsafe { older::call(older::$number, words) })
    }};
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the caller's arguments, which the kernel checks.
        errno::kernel(unsafe { raw::call(libc::$number, arguments([$($argument as usize),*])) })
    };
}

/// Extends the arguments to the six of a system call.
fn arguments<const N: usize>(some: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&some);
    all
}

extern "C" fn process() -> c_int {
    system_call!(SYS_getpid) as c_int
}

extern "C" fn thread() -> c_int {
    system_call!(SYS_gettid) as c_int
}

extern "C" fn let_others_run() -> c_int {
    system_call!(SYS_sched_yield) as c_int
}

extern "C" fn wait_for_signal() -> c_int {
    system_call!(older SYS_pause) as c_int
}

extern "C" fn folder(at: *mut c_char, len: usize) -> *mut c_char {
    if system_call!(SYS_getcwd, at, len) < 0 { core::ptr::null_mut() } else { at }
}

extern "C" fn random(at: *mut c_void, len: usize, flags: u32) -> isize {
    system_call!(SYS_getrandom, at, len, flags)
}

extern "C" fn seek(fd: c_int, offset: i64, from: c_int) -> i64 {
    system_call!(SYS_lseek, fd, offset, from) as i64
}

extern "C" fn read_at(fd: c_int, at: *mut c_void, len: usize, offset: i64) -> isize {
    system_call!(SYS_pread64, fd, at, len, offset)
}

extern "C" fn read_link(path: *const c_char, at: *mut c_char, len: usize) -> isize {
    system_call!(older SYS_readlink, path, at, len)
}

pub(crate) extern "C" fn map(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    system_call!(SYS_mmap, at, len, protection, flags, fd, offset) as *mut c_void
}

extern "C" fn alternate_stack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    system_call!(SYS_sigaltstack, new, old) as c_int
}

extern "C" fn status_of_file(fd: c_int, status: *mut stat64) -> c_int {
    // On x86-64 and AArch64 the kernel's structure and the C library's are the same.
    system_call!(SYS_fstat, fd, status) as c_int
}

extern "C" fn status_of_path(path: *const c_char, status: *mut stat64) -> c_int {
    system_call!(older SYS_stat, path, status) as c_int
}

extern "C" fn status_extended(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: u32,
    status: *mut libc::statx,
) -> c_int {
    system_call!(SYS_statx, folder, path, flags, mask, status) as c_int
}

/// Takes the place of `clock_nanosleep`, which returns an error number instead of setting `errno`.
extern "C" fn sleep(
    clock: c_int,
    flags: c_int,
    span: *const timespec,
    left: *mut timespec,
) -> c_int {
    let words = arguments([clock as usize, flags as usize, span as usize, left as usize]);
    // SAFETY: the caller's arguments, which the kernel checks.
    -unsafe { raw::call(libc::SYS_clock_nanosleep, words) } as c_int
}

/// The names of the vDSO's functions (vdso(7)). AArch64 has no function for the processor's number;
/// the system call serves there.
#[cfg(target_arch = "x86_64")]
const CLOCK: &CStr = c"__vdso_clock_gettime";
#[cfg(target_arch = "aarch64")]
const CLOCK: &CStr = c"__kernel_clock_gettime";
const PROCESSOR: &CStr = c"__vdso_getcpu";

/// Returns the address of a function of the vDSO, looked up once; 0 if there is none.
fn of_kernel(slot: &AtomicUsize, name: &CStr) -> usize {
    const NONE: usize = 1;
    // Relaxed order suffices: every thread would store the same address.
    let mut at = slot.load(Ordering::Relaxed);
    if at == 0 {
        at = objects::of_kernel(name).unwrap_or(NONE);
        slot.store(at, Ordering::Relaxed);
    }
    if at == NONE { 0 } else { at }
}

extern "C" fn time(clock: c_int, now: *mut timespec) -> c_int {
    static SLOT: AtomicUsize = AtomicUsize::new(0);
    type TimeFn = extern "C" fn(c_int, *mut timespec) -> isize;
    let at = of_kernel(&SLOT, CLOCK);
    if at == 0 {
        return system_call!(SYS_clock_gettime, clock, now) as c_int;
    }
    // SAFETY: the vDSO's function has this type (vdso(7)).
    let ask = unsafe { core::mem::transmute::<usize, TimeFn>(at) };
    errno::kernel(ask(clock, now) as i32 as isize) as c_int
}

extern "C" fn processor() -> c_int {
    static SLOT: AtomicUsize = AtomicUsize::new(0);
    type ProcessorFn = extern "C" fn(*mut u32, *mut u32, *mut c_void) -> isize;
    let mut number = 0u32;
    let at = of_kernel(&SLOT, PROCESSOR);
    let null = core::ptr::null_mut::<c_void>();
    let result = if at == 0 {
        system_call!(SYS_getcpu, &raw mut number, null, null) as c_int
    } else {
        // SAFETY: the vDSO's function has this type (vdso(7)).
        let ask = unsafe { core::mem::transmute::<usize, ProcessorFn>(at) };
        ask(&raw mut number, null.cast(), null) as c_int
    };
    if result < 0 { result } else { number as c_int }
}

/// Takes the place of `pthread_sigmask`, which returns an error number, and never blocks the C
/// library's own signals.
extern "C" fn mask(how: c_int, new: *const u64, old: *mut u64) -> c_int {
    // SAFETY: null, or the caller's set.
    let without = unsafe { new.as_ref() }.map(|set| set & !INTERNAL);
    let new = without.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let words = arguments([how as usize, new as usize, old as usize, 8]);
    // SAFETY: the caller's arguments, which the kernel checks.
    -unsafe { raw::call(libc::SYS_rt_sigprocmask, words) } as c_int
}

/// Takes the place of `dlsym`, with which Rust's standard library looks up functions that a C
/// library may lack.
unsafe extern "C" fn symbol(_: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: a string, as for the C library's `dlsym`.
    let name = unsafe { CStr::from_ptr(name) };
    objects::of_c_library(name).unwrap_or(0) as *mut c_void
}

hidden!(
    clock_gettime = time,
    clock_nanosleep = sleep,
    dlsym = symbol,
    fstat64 = status_of_file,
    getcwd = folder,
    getpid = process,
    getrandom = random,
    gettid = thread,
    lseek64 = seek,
    pause = wait_for_signal,
    pread64 = read_at,
    pthread_sigmask = mask,
    readlink = read_link,
    sched_getcpu = processor,
    sched_yield = let_others_run,
    sigaltstack = alternate_stack,
    stat64 = status_of_path,
    statx = status_extended,
);
