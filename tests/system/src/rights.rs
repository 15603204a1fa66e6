//! Programs without any right, under a server that has rights: files that they can read, and the
//! start of such a program.
//!
//! Not here: the hosts and sandboxes (`network`). The test itself gives up no right.

use anyhow::{Context, Result};
use rustix::thread::CapabilitySet;
use sojourn_lab::{Mode, Sandbox};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A user that nothing else here runs as.
const USER: &str = "65531";

/// Lets every user run the sandbox's programs, and write into its folder.
///
/// # Errors
/// If the programs cannot be copied.
pub fn open(world: &Sandbox) -> Result<()> {
    open_folder(world.folder())?;
    for name in ["sojourn", "libsojourn_preload.so", "sojourn-abi", "lab-peer"] {
        // The build folder may be unreadable for other users.
        let copy = world.folder().join(name);
        std::fs::copy(world.built().path(name), &copy).context(name)?;
        open_folder(&copy)?;
    }
    Ok(())
}

/// Gives every user all access to a folder or file.
///
/// # Errors
/// If it does not exist.
pub fn open_folder(path: &Path) -> Result<()> {
    let all = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(path, all).with_context(|| path.display().to_string())
}

/// Copies the files of a folder to a new one that every user may read.
///
/// # Errors
/// If they cannot be copied.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    open_folder(to)?;
    for file in std::fs::read_dir(from)? {
        let file = file?;
        if file.file_type()?.is_file() {
            let copy = to.join(file.file_name());
            std::fs::copy(file.path(), &copy)?;
            open_folder(&copy)?;
        }
    }
    Ok(())
}

/// Returns a command for a program under Sojourn without any right. It runs as another user, or,
/// where the server may not inspect processes of other users (ptrace(2)), as this one. The sandbox
/// has to be [`open`]. A program that is no absolute path is looked for in the sandbox's folder,
/// then in the usual folders.
#[must_use]
pub fn none(world: &Sandbox, program: &str) -> Command {
    let held = rustix::thread::capabilities(None).map(|sets| sets.effective);
    let may_trace = held.is_ok_and(|held| held.contains(CapabilitySet::SYS_PTRACE));
    let mut command = world.command(Mode::Plain, "setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    if may_trace {
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
    }
    command.arg(world.folder().join("sojourn")).args(["run", "--"]);
    let own = world.folder().join(program);
    if own.exists() {
        command.arg(own);
    } else {
        command.arg(program);
    }
    command.env("HOME", "/");
    command
}
