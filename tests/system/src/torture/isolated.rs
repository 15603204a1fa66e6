//! Name spaces of the run's own: whatever it leaves ends with it, and its folders are on a small
//! disk.
//!
//! The program becomes `unshare` (util-linux), which starts it again as the child of a shell that
//! buries whom nobody else does. Whoever kills `unshare` ends all of it. Without root's rights it
//! runs as it is, and full disks are left out. Not here: who fills the disk (`strikes`).

use anyhow::{Context, Result};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set to the mount point within such a run.
const DISK: &str = "SOJOURN_TORTURE_DISK";
const OPTIONS: &str = "size=256m,nr_inodes=2000,mode=1777";
/// Where the disk is mounted, in the mount name space alone: the first that is there.
const PLACES: [&str; 2] = ["/mnt", "/media"];
/// Its words: the mount's options, where, and the program.
///
/// Names of network name spaces tell whose they are by process numbers, which are others here.
const SCRIPT: &str = "mount -t tmpfs -o \"$1\" sojourn-torture \"$2\" || exit 96
mkdir -p /run/netns && mount -t tmpfs sojourn-torture /run/netns || exit 96
shift 2
\"$@\"";

/// The small disk, within such a run.
pub(super) fn disk() -> Option<PathBuf> {
    std::env::var_os(DISK).map(PathBuf::from)
}

/// Becomes this program with such name spaces; or returns, and it goes on as it is.
///
/// # Errors
/// If it cannot be started.
pub(super) fn again() -> Result<()> {
    if disk().is_some() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let words = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation"];
    let possible = Command::new("unshare").args(words).args(["private", "--", "true"]).status();
    let place = PLACES.into_iter().find(|place| Path::new(place).is_dir());
    let (Some(place), true) = (place, possible.is_ok_and(|status| status.success())) else {
        eprintln!("name spaces of its own cannot be had: full disks are left out");
        return Ok(());
    };
    let mut command = Command::new("unshare");
    command.args(words).args(["private", "--", "sh", "-c", SCRIPT, "sh", OPTIONS, place]);
    command.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    Err(command.env(DISK, place).env("TMPDIR", place).exec()).context("unshare")
}
