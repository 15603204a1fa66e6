//! What the standard library does not offer about processes: a child's first steps, a last step of
//! our own, and users.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The child will end with this process, and begin in a control group, if there is one (its file of
/// processes).
pub(crate) fn prepare_child(command: &mut Command, procs: Option<&Path>) {
    let procs = procs.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let first_steps = move || {
        // SAFETY: plain system calls with valid arguments, as they are allowed between fork and
        // exec.
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

/// Calls `clean` and ends this process when it is told to end, or after `limit`. To be called
/// before there is a second thread: the signals must be blocked in all of them. (Children begin
/// with none blocked.)
pub(crate) fn on_end(limit: Duration, clean: impl FnOnce(&str) + Send + 'static) {
    // SAFETY: sets of plain bits; the calls read and write no more than those.
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
            // SAFETY: valid pointers; the information about the signal is not wanted.
            let signal = unsafe {
                libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const left)
            };
            // Another signal, as of a child's end, is no reason.
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

/// Whether this process may do everything.
pub(super) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Number of a user and of its group.
pub(super) fn user_named(name: &str) -> Option<(u32, u32)> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let entry = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let words: Vec<&str> = entry.split(':').collect();
    Some((words.get(1)?.parse().ok()?, words.get(2)?.parse().ok()?))
}
