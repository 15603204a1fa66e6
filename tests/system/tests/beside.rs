//! Tests of descriptors and credentials that come with messages on a Unix stream session, while the
//! session is recalled again and again: each comes once, with its byte.
//!
//! The program is `c/beside`, which checks this itself. Not here: every order of single steps
//! (`from_kernel_tests` of the library).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::compile::compile;
use sojourn_system::{Admin, LIMIT};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Number of streams of one session, and the longest time for them. The library offers a session
/// whose messages carry descriptors less and less often.
const MOVES: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(20);

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("beside");
        compile(&program, &["beside/beside.c"], &["-g", "-Wall", "-Werror"]).unwrap();
        program
    })
}

/// Runs one session until it has moved `MOVES` times, and recalls it meanwhile if `recalls`.
fn talk(kind: &str, every: u32, window: u32, after_calls: u32, recalls: bool) {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", &after_calls.to_string());
    let mut admin = Admin::new(&sandbox).unwrap();
    let end = sandbox.folder().join("end");
    let mut command = sandbox.command(Mode::Sojourn, program());
    command.args([kind, &every.to_string(), &window.to_string(), "until"]).arg(&end);
    let mut running = Running::start(command).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut moves = 0;
    while moves < MOVES && running.is_running() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
        if recalls {
            admin.recall_all().unwrap();
        }
        moves = admin.moves().unwrap().joins;
    }
    std::fs::write(&end, "").unwrap();
    let what = format!("{kind}, every {every}, {window} at once, after {after_calls} calls");
    let output = running.finish(LIMIT).unwrap().success(&what).unwrap();
    println!("{what}: {moves} moves, {} descriptors", output.trim());
    assert!(moves >= MOVES, "{what}: {moves} moves");
}

#[test]
fn descriptors_come_with_their_bytes_while_the_session_leaves_at_once() {
    for (every, window) in [(2, 1), (17, 4), (33, 8), (70, 3)] {
        talk("pair", every, window, 0, false);
        talk("unix", every, window, 4, false);
    }
}

#[test]
fn descriptors_come_with_their_bytes_while_the_session_is_called_home() {
    for (every, window) in [(17, 2), (70, 8), (500, 5)] {
        talk("pair", every, window, 2, true);
        talk("unix", every, window, 8, true);
    }
}
