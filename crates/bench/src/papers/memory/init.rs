//! The first process of the traced virtual machine: mounts, loads modules, runs the case in a
//! process of its own, and switches the machine off.
//!
//! Not here: the case (`guest`), the files of the machine (`image`).
#![allow(unsafe_code, reason = "system calls of a first process, which have no safe wrapper")]

use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::case::Case;

/// The folder of the kernel's modules.
pub(super) const MODULES: &str = "/modules";

const MOUNTS: [(&str, &str); 5] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
];

/// Runs a case. The machine is off afterwards, whatever happened.
pub(super) fn main(case: Case) -> Result<()> {
    if let Err(error) = run(case) {
        println!("{error:#}");
    }
    // SAFETY: plain system calls.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    Ok(())
}

fn run(case: Case) -> Result<()> {
    for (kind, place) in MOUNTS {
        std::fs::create_dir_all(place)?;
        mount(kind, place)?;
    }
    modules()?;
    let mut child = Command::new("/proc/self/exe")
        .args(["traced", "inside", &case.name()])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("RUST_BACKTRACE", "0")
        .spawn()?;
    // Orphans are waited for as well, as a first process has to.
    loop {
        let mut status = 0;
        // SAFETY: the pointer is valid.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid < 0 || pid.unsigned_abs() == child.id() {
            break;
        }
    }
    let _ = child.try_wait();
    Ok(())
}

fn mount(kind: &str, place: &str) -> Result<()> {
    let (kind_, place_) = (CString::new(kind)?, CString::new(place)?);
    // SAFETY: strings that live until the call returns; no data.
    let done = unsafe {
        libc::mount(kind_.as_ptr(), place_.as_ptr(), kind_.as_ptr(), 0, std::ptr::null())
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("{kind} at {place}"));
    }
    Ok(())
}

/// Loads all modules. One that needs another is tried again when others are loaded.
fn modules() -> Result<()> {
    let mut left: Vec<_> = std::fs::read_dir(MODULES)?.flatten().map(|one| one.path()).collect();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|path| load(path).is_err());
        if left.len() == before {
            println!("modules that cannot be loaded: {left:?}");
            break;
        }
    }
    Ok(())
}

fn load(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path)?;
    // SAFETY: finit_module(2) takes a descriptor, a string and flags.
    let done = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    if done != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}
