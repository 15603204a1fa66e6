//! Functions about processes that the standard library lacks: the first steps of a child, a
//! clean-up at the end of this process, and users.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Makes the child die with this process, and begin in a control group if `procs` names the group's
/// file `cgroup.procs`.
pub(crate) fn prepare_child(command: &mut Command, procs: Option<&Path>) {
    let procs = procs.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let first_steps = move || {
        // SAFETY: plain system calls with valid arguments, which are async-signal-safe and so
        // allowed between fork and exec.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if let Some(procs) = &procs {
                let file = libc::open(procs.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if file < 0 || libc::write(file, c"0".as_ptr().cast(), 1) != 1 {
                    return Err(io::Error::last_os_error());
                }
                libc::close(file);
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only and allocates nothing.
    unsafe { command.pre_exec(first_steps) };
}

/// Calls `clean` and ends this process when a signal asks it to end, or after `limit`. To be called
/// while there is only one thread: the signals have to be blocked in all threads. Children begin
/// with no signal blocked.
pub(crate) fn on_end(limit: Duration, clean: impl FnOnce(&str) + Send + 'static) {
    // SAFETY: a signal set is plain bits; the calls read and write nothing beyond the set.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    };
    std::thread::spawn(move || {
        let end = Instant::now() + limit;
        let signal = loop {
            let left = end.saturating_duration_since(Instant::now());
            let seconds = left.as_secs().cast_signed();
            let left = libc::timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            // SAFETY: the pointers are valid; sigtimedwait(2) takes a null pointer for the
            // information about the signal.
            let signal = unsafe {
                libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const left)
            };
            // EINTR: another signal, such as SIGCHLD at a child's end, interrupted the wait.
            let kind = io::Error::last_os_error().kind();
            if signal >= 0 || kind != io::ErrorKind::Interrupted {
                break signal;
            }
        };
        match signal {
            -1 => clean("it took too long"),
            signal => clean(&format!("signal {signal}")),
        }
        std::process::exit(128 + signal.max(0));
    });
}

/// Returns true if this process runs as root.
pub(super) fn is_root() -> bool {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A user.
#[derive(Clone, Copy)]
pub(super) struct User {
    pub(super) uid: u32,
    /// Its group.
    pub(super) gid: u32,
}

/// Returns a user, from `/etc/passwd`.
pub(super) fn user_named(name: &str) -> Option<User> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let entry = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let words: Vec<&str> = entry.split(':').collect();
    Some(User { uid: words.get(1)?.parse().ok()?, gid: words.get(2)?.parse().ok()? })
}
