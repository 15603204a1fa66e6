//! The guest's calls before the host is in the process (`host`): those of programs that stay small.
//!
//! A call is made here if it means the same with and without the library, which would not yet have
//! been initialized (see `first_calls` of the preload library): files, memory, time, questions
//! about the process. Any other call starts the host: threads, children, handlers, sockets, pipes,
//! whatever confines the process, and data calls on pipes and sockets after the first few. Not
//! here: calls afterwards (`dispatch`).

use crate::block::{Block, Frame};
use crate::plain::starts_with;
use crate::{bases, exec, files, kernels, memory, raw, signals};
use core::ffi::c_char;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Data calls on pipes and sockets without the host: a quarter of the least number of calls after
/// which a session is hot by default.
const SESSION_CALLS: u32 = 8;
/// Data calls on other descriptors without the host. Each costs an fstat(2).
const FILE_CALLS: u32 = 64;
/// Settings that may have a session move at its first calls.
const THRESHOLDS: &[u8] = b"SOJOURN_MOVE_AFTER_";

static SESSIONS: AtomicU32 = AtomicU32::new(0);
static FILES: AtomicU32 = AtomicU32::new(0);
/// From this descriptor on the host is started, which opens files itself: it must not meet the
/// limit.
const MOST_DESCRIPTORS: isize = 24;
/// The least limit on descriptors with which the host can wait.
const LEAST_LIMIT: u64 = 64;

/// True once the next call starts the host.
static IS_DUE: AtomicBool = AtomicBool::new(false);
/// The address that the guest has passed to set_tid_address(2); 0 for none.
static CLEARED: AtomicUsize = AtomicUsize::new(0);

/// Reads the settings that count here.
pub(crate) fn start(variables: &[*const c_char]) {
    if raw::limit(libc::RLIMIT_NOFILE) < LEAST_LIMIT {
        IS_DUE.store(true, Ordering::Relaxed);
    }
    if variables.iter().any(|one| starts_with(*one, THRESHOLDS)) {
        SESSIONS.store(SESSION_CALLS, Ordering::Relaxed);
    }
}

/// Gives the kernel again what the host's C library has replaced when it started.
pub(crate) fn hand_over(block: &Block) {
    const ROBUST_LEN: usize = 24;
    let cleared = CLEARED.load(Ordering::Relaxed);
    // SAFETY: the guest's own words and list, as for the kernel.
    unsafe {
        if cleared != 0 {
            raw::call(libc::SYS_set_tid_address, [cleared, 0, 0, 0, 0, 0]);
        }
        if block.robust != 0 {
            let arguments = [block.robust, ROBUST_LEN, 0, 0, 0, 0];
            raw::call(libc::SYS_set_robust_list, arguments);
        }
    }
}

/// Makes a call without the host. `None`: the call needs it.
#[cold]
#[inline(never)]
pub(crate) fn answer(frame: &mut Frame, block: &mut Block) -> Option<isize> {
    if IS_DUE.load(Ordering::Relaxed) {
        return None;
    }
    let arguments = frame.arguments();
    let number = frame.rax as i64;
    let result = match number {
        libc::SYS_arch_prctl => bases::arch_prctl(frame),
        libc::SYS_brk => memory::set_break(arguments[0]),
        libc::SYS_mmap if is_code(&arguments) => return None,
        libc::SYS_rt_sigaction if signals::has_handler(arguments[1], frame.rsp) => return None,
        libc::SYS_rt_sigprocmask => signals::mask(&arguments),
        libc::SYS_set_tid_address => {
            CLEARED.store(arguments[0], Ordering::Relaxed);
            own(number, &arguments)
        }
        libc::SYS_set_robust_list => {
            let result = own(number, &arguments);
            if result == 0 {
                block.robust = arguments[0];
            }
            result
        }
        libc::SYS_rseq => -(libc::ENOSYS as isize),
        libc::SYS_execve => exec::exec(&arguments),
        libc::SYS_readlink => files::read_link(0, number, &arguments),
        libc::SYS_readlinkat => files::read_link(1, number, &arguments),
        libc::SYS_open => files::open(0, number, &arguments),
        libc::SYS_openat => files::open(1, number, &arguments),
        libc::SYS_read | libc::SYS_write | libc::SYS_readv | libc::SYS_writev
            if !is_small(arguments[0]) =>
        {
            return None;
        }
        libc::SYS_fcntl if !is_plain_command(arguments[1] as i32) => return None,
        libc::SYS_ioctl if !is_question(arguments[1]) => return None,
        libc::SYS_prlimit64 if arguments[2] != 0 => return None,
        libc::SYS_futex if !is_wake(arguments[1]) => return None,
        number if kernels::passes(number) || passes_on_condition(number) => own(number, &arguments),
        _ => return None,
    };
    if makes_descriptor(number, &arguments) && result >= MOST_DESCRIPTORS {
        IS_DUE.store(true, Ordering::Relaxed);
    }
    Some(result)
}

fn makes_descriptor(number: i64, arguments: &[usize; 6]) -> bool {
    match number {
        libc::SYS_open | libc::SYS_openat => true,
        libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3 => true,
        libc::SYS_fcntl => [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&(arguments[1] as i32)),
        _ => false,
    }
}

fn own(number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the guest's own call, which the kernel checks.
    unsafe { raw::call(number, *arguments) }
}

/// Returns true if mmap(2) maps a file's code, which is to be rewritten.
fn is_code(arguments: &[usize; 6]) -> bool {
    let [_, _, protection, flags, ..] = *arguments;
    protection & libc::PROT_EXEC as usize != 0 && flags & libc::MAP_ANONYMOUS as usize == 0
}

/// Returns true for a data call that a program makes which stays small.
fn is_small(fd: usize) -> bool {
    let mode = raw::status(fd).map_or(0, |status| status.st_mode);
    let (count, most) = match mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFSOCK => (&SESSIONS, SESSION_CALLS),
        _ => (&FILES, FILE_CALLS),
    };
    let before = count.load(Ordering::Relaxed);
    count.store(before.saturating_add(1), Ordering::Relaxed);
    before < most
}

/// Returns true for commands of fcntl(2) that concern no session.
fn is_plain_command(command: i32) -> bool {
    const COMMANDS: [i32; 9] = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_GETLK,
        libc::F_SETLK,
        libc::F_SETLKW,
        libc::F_GETPIPE_SZ,
    ];
    COMMANDS.contains(&command)
}

/// Returns true for requests of ioctl(2) that ask a terminal.
fn is_question(request: usize) -> bool {
    [libc::TCGETS as usize, libc::TIOCGWINSZ as usize, libc::TIOCGPGRP as usize].contains(&request)
}

/// Returns true for operations of futex(2) that do not wait.
fn is_wake(operation: usize) -> bool {
    operation as i32 & !libc::FUTEX_PRIVATE_FLAG == libc::FUTEX_WAKE
}

/// Returns true for calls that the kernel serves alone if [`answer`] finds nothing in their
/// arguments.
fn passes_on_condition(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_dup
            | libc::SYS_dup2
            | libc::SYS_dup3
            | libc::SYS_fcntl
            | libc::SYS_ioctl
            | libc::SYS_mmap
            | libc::SYS_rt_sigaction
            | libc::SYS_futex
            | libc::SYS_prlimit64
    )
}
