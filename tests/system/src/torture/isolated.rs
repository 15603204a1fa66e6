//! Name spaces of the run's own: whatever it leaves ends with it, and its folders are on a small
//! disk.
//!
//! The program starts itself again under `unshare` (util-linux), as the child of a shell that
//! buries whom nobody else does. Without root's rights it runs as it is, and full disks are left
//! out. Not here: who fills the disk (`strikes`).

use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// Set to the mount point within such a run.
const DISK: &str = "SOJOURN_TORTURE_DISK";
const OPTIONS: &str = "size=256m,nr_inodes=2000,mode=1777";
/// Its words: the mount's options, where, and the program.
const SCRIPT: &str = "mount -t tmpfs -o \"$1\" sojourn-torture \"$2\" || exit 96
shift 2
\"$@\"";

/// The small disk, within such a run.
pub(super) fn disk() -> Option<PathBuf> {
    std::env::var_os(DISK).map(PathBuf::from)
}

/// Runs this program again with such name spaces; its status. `None`: it goes on as it is.
///
/// # Errors
/// If it cannot be started.
pub(super) fn again() -> Result<Option<ExitStatus>> {
    if disk().is_some() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let words = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation"];
    let possible = Command::new("unshare").args(words).args(["private", "--", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("name spaces of its own cannot be had: full disks are left out");
        return Ok(None);
    }
    let folder = std::env::temp_dir().join(format!("sojourn-torture-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut command = Command::new("unshare");
    command.args(words).args(["private", "--", "sh", "-c", SCRIPT, "sh", OPTIONS]);
    command.arg(&folder).arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    let status = command.env(DISK, &folder).env("TMPDIR", &folder).status();
    let _ = std::fs::remove_dir(&folder);
    status.context("unshare").map(Some)
}
