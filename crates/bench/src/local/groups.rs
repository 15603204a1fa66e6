//! A control group (version 2, cgroups(7)) for each way: it counts processor time, holds the
//! sockmap programs, and ends processes for certain.
//!
//! Without root there are no groups. Then the sockmap rival and the processor time of foreign
//! programs are missing; everything else is measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::way::RunMode;

const PREFIX: &str = "sojourn-bench-";

/// The groups of this run; they are removed on drop.
#[derive(Debug)]
pub(crate) struct Groups {
    top: PathBuf,
}

impl Groups {
    /// Makes a group for each way, and removes the groups of runs that were killed.
    pub(crate) fn new() -> Result<Self> {
        let parent = own_group()?;
        sweep(&parent);
        let top = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&top).with_context(|| format!("cannot make {}", top.display()))?;
        let groups = Self { top };
        for &way in RunMode::ALL {
            fs::create_dir(groups.of(way))?;
        }
        Ok(groups)
    }

    /// Returns the group that contains all groups of this run.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Returns the group of one way.
    pub(crate) fn of(&self, way: RunMode) -> PathBuf {
        self.top.join(way.title())
    }

    /// Moves a running process into the group of `way`.
    pub(crate) fn take(&self, way: RunMode, pid: u32) -> Result<()> {
        Ok(fs::write(self.of(way).join("cgroup.procs"), pid.to_string())?)
    }

    /// Returns the processor time of a way's processes so far, including processes that have ended.
    pub(crate) fn cpu_ns(&self, way: RunMode) -> Option<f64> {
        let text = fs::read_to_string(self.of(way).join("cpu.stat")).ok()?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(used.parse::<f64>().ok()? * 1e3)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        remove(&self.top);
    }
}

/// Kills every process in the group and in the groups below it, and removes the groups.
pub(crate) fn remove(top: &Path) {
    // Kernels before 5.14 have no `cgroup.kill`. There a process that was not killed by its number
    // keeps the group alive, until the deadline.
    let _ = fs::write(top.join("cgroup.kill"), "1");
    let below = || fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    let deadline = Instant::now() + Duration::from_secs(3);
    while top.exists() && Instant::now() < deadline {
        for path in below().filter(|path| path.is_dir()) {
            let _ = fs::remove_dir(path);
        }
        if fs::remove_dir(top).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns this process's own group in the unified hierarchy, below the place where it is mounted.
fn own_group() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = words.into_iter().find(|words| words.get(2) == Some(&"cgroup2"));
    let mount = mount.context("no control groups of version 2 are mounted")?[1].to_owned();
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(Path::new(&mount).join(own.context("this process is in no control group of version 2")?))
}

fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(PREFIX) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            remove(&entry.path());
        }
    }
}
