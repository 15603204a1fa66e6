//! A control group (version 2) for each way: its processor time, its sockets, and the certain end
//! of its processes.
//!
//! Not needed for anything but the sockmap rival: without root there are no groups, hence no
//! processor time of foreign programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::way::RunMode;

const PREFIX: &str = "sojourn-bench-";

/// The groups of this run, gone when dropped.
#[derive(Debug)]
pub(crate) struct Groups {
    top: PathBuf,
}

impl Groups {
    /// Makes a group for each way, and removes those of runs that were killed.
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

    /// The group of all groups of this run.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// One way's group.
    pub(crate) fn of(&self, way: RunMode) -> PathBuf {
        self.top.join(way.title())
    }

    /// Moves a process that runs already.
    pub(crate) fn take(&self, way: RunMode, pid: u32) -> Result<()> {
        Ok(fs::write(self.of(way).join("cgroup.procs"), pid.to_string())?)
    }

    /// Processor time of a way's processes so far, those that have ended included.
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

/// Ends every process in the group and those below, and removes them.
pub(crate) fn remove(top: &Path) {
    // Kernels before 5.14 have no such file; then what was not killed one by one keeps the group.
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

/// This process's own group in the unified hierarchy, wherever that is mounted.
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
