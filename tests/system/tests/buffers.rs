//! Tests of a C program that sends and receives in place, under Sojourn: its sessions move, the
//! space that it fills is the ring, no byte is lost when sessions are recalled meanwhile, and a
//! peer that dies leaves what it has committed and no more.
//!
//! The program is `talk` of `crates/buffers`, whose own tests run it plainly. Not here: single
//! calls and a hostile peer (`io::lend_tests` of `sojourn-library`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::{Admin, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const KINDS: [&str; 3] = ["tcp", "unix", "pipe"];

/// Builds the program with the library that is shipped.
fn program(sandbox: &Sandbox) -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/buffers");
        let library = sandbox.built().path("libsojourn_buffers.so");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("buffers-talk");
        let folder = library.parent().unwrap().display().to_string();
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Werror", "-O1", "-o"]).arg(&program);
        compiler.arg(crate_folder.join("tests/c/talk.c"));
        compiler.arg("-I").arg(crate_folder.join("include")).arg(format!("-L{folder}"));
        compiler.args(["-lsojourn_buffers", &format!("-Wl,-rpath,{folder}")]);
        assert!(compiler.status().unwrap().success());
        program
    })
}

fn sandbox() -> Sandbox {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    sandbox
}

/// Runs the program; returns the number of blocks that were made in shared memory.
/// It goes on until these are `shared`, if that is given.
fn talk(
    sandbox: &Sandbox,
    words: &[&str],
    shared: Option<u32>,
    mut recalls: Option<&mut Admin>,
) -> u32 {
    let mut command = sandbox.command(Mode::Sojourn, program(sandbox));
    command.args(words).envs(shared.map(|blocks| ("TALK_SHARED", blocks.to_string())));
    let mut running = Running::start(command).unwrap();
    while let Some(admin) = recalls.as_mut()
        && running.is_running()
    {
        admin.recall_all().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = running.finish(LIMIT).unwrap().success(&words.join(" ")).unwrap();
    said.trim().strip_prefix("passed ").unwrap().parse().unwrap()
}

#[test]
fn space_is_the_ring_of_a_session_that_is_away() {
    let sandbox = sandbox();
    for kind in KINDS {
        let shared = talk(&sandbox, &[kind], Some(4000), None);
        assert!(shared >= 4000, "{kind}: {shared}");
    }
}

#[test]
fn no_byte_is_lost_when_sessions_go_home_with_memory_lent() {
    let sandbox = sandbox();
    let mut admin = Admin::new(&sandbox).unwrap();
    for kind in KINDS {
        for _ in 0..3 {
            talk(&sandbox, &[kind], Some(1000), Some(&mut admin));
        }
    }
    assert!(admin.moves().unwrap().joins > 4, "sessions have moved");
}

#[test]
fn a_peer_that_dies_leaves_what_it_has_committed() {
    let sandbox = sandbox();
    for kind in KINDS {
        for dies in ["sender", "receiver"] {
            talk(&sandbox, &[kind, dies], Some(1000), None);
        }
    }
}
