//! Tests of loaded programs that switch between contexts in signal handlers: user-level threads
//! that are preempted at any instruction, in the middle of calls on sessions that move.
//!
//! The program is `c/abi/contexts.c`, linked in every way; it checks every byte itself. Not here:
//! handlers that return or jump out (`abi.rs`).

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Name, C compiler and option of each way to link the program.
const LINKED: [[&str; 3]; 4] = [
    ["static", "cc", "-static"],
    ["static-pie", "cc", "-static-pie"],
    ["musl-static", "musl-gcc", "-static"],
    ["musl", "musl-gcc", "-pie"],
];

fn made(way: &str, [name, compiler, option]: [&str; 3]) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("contexts-{way}-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/abi/contexts.c");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-w", option, "-o"]).arg(&path).arg(source);
    match command.status() {
        Ok(status) => assert!(status.success(), "the program does not compile with {compiler}"),
        Err(error) => {
            eprintln!("skipped: {compiler}: {error}");
            return None;
        }
    }
    Some(path)
}

/// Runs the program, linked in every way, with sessions that move at once, and after some calls.
fn preempted(way: &str) {
    for linked in LINKED {
        let Some(program) = made(way, linked) else { continue };
        for threshold in ["0", "16"] {
            let mut sandbox = Sandbox::new().unwrap();
            sandbox.set("LOAD", "on");
            sandbox.set("MOVE_AFTER_CALLS", threshold);
            let mut command = sandbox.command(Mode::Sojourn, &program);
            command.arg(way);
            let finished = Running::start(command).unwrap().finish(PATIENCE).unwrap();
            let said = finished.success(&format!("{way} {linked:?} {threshold}")).unwrap();
            // Fewer would show little.
            assert!(said.trim().parse::<u32>().unwrap() > 100, "{way} {linked:?}: {said}");
        }
    }
}

/// The handler goes on in another context, and returns when that has come back to it.
#[test]
fn handlers_may_go_on_in_other_contexts() {
    preempted("switches");
}

/// The handler returns, with the registers of another context in its frame.
#[test]
fn handlers_may_return_to_other_contexts() {
    preempted("copies");
}
