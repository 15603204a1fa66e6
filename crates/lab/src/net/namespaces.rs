//! Network namespaces by name: made, removed, and removed for owners that are gone. Names say whose
//! they are: `sj-lab-PID-N`.
//!
//! Not what is in one: see `host`.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

const FOLDER: &str = "/run/netns";
const PREFIX: &str = "sj-lab-";

/// Runs `ip` with these words; its output.
pub(super) fn ip(words: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(words).output().context("cannot run ip (iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}", words.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether hosts can be made here: root's rights over networks and namespaces, and `ip`. A test
/// that cannot says so and passes.
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

/// Makes a namespace; its name. The first one removes what dead owners left.
pub(super) fn make() -> Result<String> {
    static SWEPT: Once = Once::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    SWEPT.call_once(sweep);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{PREFIX}{}-{number}", std::process::id());
    ip(&["netns", "add", &name])?;
    Ok(name)
}

/// Where a namespace can be opened.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Kills what still runs in a namespace and removes it.
pub(super) fn remove(name: &str) {
    let pids = ip(&["netns", "pids", name]).unwrap_or_default();
    for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw)
    {
        // This process is in it if a test moved its first thread there.
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

/// The process whose namespace this is.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Names of all namespaces that `pid` owns.
#[must_use]
pub fn leftovers(pid: u32) -> Vec<String> {
    names().into_iter().filter(|name| owner(name) == Some(pid)).collect()
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Removes the namespaces whose owners are gone, with the programs that still run in them.
pub fn sweep() {
    for name in names() {
        if owner(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

/// Removes this process's namespaces, with the programs in them: for a process that ends without
/// dropping its hosts.
pub fn sweep_own() {
    leftovers(std::process::id()).iter().for_each(|name| remove(name));
}
