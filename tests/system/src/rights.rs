//! Programs without any right, under a server that has them: what they need to be able to read, and
//! how they are started.
//!
//! Not the stage they play on (`network`). Nothing here gives up a right of the test's own.

use anyhow::{Context, Result};
use rustix::thread::CapabilitySet;
use sojourn_lab::{Mode, Sandbox};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A user that is nobody else's here.
const USER: &str = "65531";

/// Lets every user run the sandbox's programs, and write into its folder.
///
/// # Errors
/// If they cannot be copied.
pub fn open(world: &Sandbox) -> Result<()> {
    open_folder(world.folder())?;
    for name in ["sojourn", "libsojourn_preload.so", "sojourn-abi", "lab-peer"] {
        // Where they were built not everybody may look.
        let copy = world.folder().join(name);
        std::fs::copy(world.built().path(name), &copy).context(name)?;
        open_folder(&copy)?;
    }
    Ok(())
}

/// Lets everybody do everything with that folder or file.
///
/// # Errors
/// If it is not there.
pub fn open_folder(path: &Path) -> Result<()> {
    let all = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(path, all).with_context(|| path.display().to_string())
}

/// Copies the files of a folder to a new one that everybody may read.
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

/// A program under Sojourn with no right at all: another user's, or where the server may not look
/// into those (ptrace(2)) of this one. Its sandbox is [`open`]; what is not an absolute path is
/// looked for in the sandbox's folder, and then where everybody's programs are.
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
