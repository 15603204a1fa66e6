//! Name spaces for a run: everything that it leaves ends with them, and its folders are on a small
//! disk.
//!
//! The program becomes `unshare` (util-linux), which starts it again as the child of a shell; the
//! shell, as the init process of the process name space, collects orphans. Killing `unshare` ends
//! everything. Without root's rights the program runs without name spaces, and full disks are left
//! out. Not here: filling the disk (`strikes`).

use anyhow::{Context, Result};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable with the mount point, set within such a run.
const DISK: &str = "SOJOURN_TORTURE_DISK";
const OPTIONS: &str = "size=256m,nr_inodes=2000,mode=1777";
/// Possible mount points, which are used in the mount name space alone: the first that exists.
const PLACES: [&str; 2] = ["/mnt", "/media"];
/// A shell script, whose arguments are the mount's options, the mount point, and the program.
///
/// `/run/netns` is mounted anew because names of network name spaces contain the owner's process
/// number, and numbers in this process name space differ from those outside.
const SCRIPT: &str = "mount -t tmpfs -o \"$1\" sojourn-torture \"$2\" || exit 96
mkdir -p /run/netns && mount -t tmpfs sojourn-torture /run/netns || exit 96
shift 2
\"$@\"";

/// Returns the mount point of the small disk, within such a run.
pub(super) fn disk() -> Option<PathBuf> {
    std::env::var_os(DISK).map(PathBuf::from)
}

/// Replaces this process by the program in such name spaces. Returns if they are not allowed, or
/// exist already.
///
/// # Errors
/// If `unshare` cannot be started.
pub(super) fn again() -> Result<()> {
    if disk().is_some() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let words = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation"];
    let possible = Command::new("unshare").args(words).args(["private", "--", "true"]).status();
    let testbed = PLACES.into_iter().find(|testbed| Path::new(testbed).is_dir());
    let (Some(testbed), true) = (testbed, possible.is_ok_and(|status| status.success())) else {
        eprintln!("name spaces of its own cannot be had: full disks are left out");
        return Ok(());
    };
    let mut command = Command::new("unshare");
    command.args(words).args(["private", "--", "sh", "-c", SCRIPT, "sh", OPTIONS, testbed]);
    command.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    Err(command.env(DISK, testbed).env("TMPDIR", testbed).exec()).context("unshare")
}
