//! Network namespaces by name: made, removed, and removed for owners that are gone. A name contains
//! the process number of the owner: `sj-lab-PID-N`.
//!
//! Not here: the use of a namespace (`host`).

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

const FOLDER: &str = "/run/netns";
const PREFIX: &str = "sj-lab-";

/// Runs `ip` with the arguments `words`; returns its output.
pub(super) fn ip(words: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(words).output().context("cannot run ip (iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}", words.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns true if hosts can be made here, which needs root's rights over networks and namespaces,
/// and `ip`. A test that cannot run prints this and passes.
#[must_use]
pub fn is_possible() -> bool {
    use rustix::thread::CapabilitySet;
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let has_rights =
        rustix::thread::capabilities(None).is_ok_and(|held| held.effective.contains(needed));
    let is_possible = has_rights && ip(&["-Version"]).is_ok();
    if !is_possible {
        eprintln!(
            "skipped: hosts need CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW, and ip (iproute2)"
        );
    }
    is_possible
}

/// Makes a namespace; returns its name. The first call removes the namespaces of dead owners.
pub(super) fn make() -> Result<String> {
    static SWEPT: Once = Once::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    SWEPT.call_once(sweep);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{PREFIX}{}-{number}", std::process::id());
    ip(&["netns", "add", &name])?;
    Ok(name)
}

/// Returns the path of the file by which a namespace can be opened.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Kills the programs in a namespace and removes it.
pub(super) fn remove(name: &str) {
    let pids = ip(&["netns", "pids", name]).unwrap_or_default();
    for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw)
    {
        // A test may have moved this process's first thread into the namespace.
        if pid != rustix::process::getpid() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    if let Err(error) = ip(&["netns", "del", name])
        && path(name).exists()
    {
        eprintln!("{name} stays behind: {error}");
    }
}

/// Returns the process number of the owner in a namespace's name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Returns the names of all namespaces that `pid` owns.
#[must_use]
pub fn leftovers(pid: u32) -> Vec<String> {
    names().into_iter().filter(|name| owner(name) == Some(pid)).collect()
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Removes the namespaces whose owners are gone, and kills the programs in them.
pub fn sweep() {
    for name in names() {
        if owner(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

/// Removes this process's namespaces and kills the programs in them, for a process that ends
/// without dropping its hosts.
pub fn sweep_own() {
    leftovers(std::process::id()).iter().for_each(|name| remove(name));
}
