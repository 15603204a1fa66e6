//! Programs of one host that are in different process name spaces, as containers are: the number of
//! one means nothing to the other.
//!
//! Needs the right to make such a name space; skipped with a message otherwise. Not here: network
//! name spaces (`network*`), users (`users`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::LIMIT;
use std::path::PathBuf;
use std::process::Command;

fn program() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/apart.py"))
}

/// Returns true if `unshare` makes a process name space here.
fn is_possible() -> bool {
    let tried = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    let is_possible = tried.is_ok_and(|status| status.success());
    if !is_possible {
        eprintln!("skipped: no process name space can be made here");
    }
    is_possible
}

/// A reader that cannot see its writer does not take it for dead: it would put into the pipe what
/// the writer puts there, too.
#[test]
fn a_writer_in_another_name_space_is_not_taken_for_dead() {
    if !is_possible() {
        return;
    }
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let folder = sandbox.folder().join("apart");
    std::fs::create_dir(&folder).unwrap();
    let mut writer = sandbox.command(Mode::Sojourn, "python3");
    writer.arg(program()).arg("writes").arg(&folder);
    let mut reader = sandbox.command(Mode::Sojourn, "unshare");
    reader.args(["--pid", "--fork", "--mount-proc", "python3"]);
    reader.arg(program()).arg("reads").arg(&folder);
    let running = [reader, writer].map(|command| Running::start(command).unwrap());
    let [reader, writer] = running.map(|one| one.finish(LIMIT).unwrap());
    assert_eq!(reader.out.trim(), "moved right 0", "{reader:?} {writer:?}");
    assert_eq!(writer.status, 0, "{writer:?}");
}
