//! Tests of many threads at one session: several read, several write, and one forks, at both ends,
//! while the session is away, and while it is recalled again and again. Every byte arrives once;
//! records that pipes and Unix sockets keep whole (pipe(7)) are whole.
//!
//! The program is `c/crowd`, which checks this itself. Not here: the order of bytes (`churn`, with
//! one thread at each end).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::compile::compile;
use sojourn_system::{Admin, LIMIT};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const KINDS: [&str; 5] = ["pipe", "pair", "unix", "tcp4", "tcp6"];
/// Largest number of records of each thread; the tests end the threads earlier.
const RECORDS_MAX: &str = "2000000";
/// Number of streams of one session, bytes through one stream, and the longest time for either.
const MOVES: u64 = 15;
const BYTES: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crowd");
        let options = ["-g", "-Wall", "-Werror", "-pthread"];
        compile(&program, &["crowd/crowd.c", "crowd/use.c"], &options).unwrap();
        program
    })
}

/// The condition for the end of the writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// `BYTES` bytes have gone through the rings of one stream.
    Bytes,
    /// `MOVES` streams were made; the program itself makes its session go home.
    Moves,
    /// `MOVES` streams were made; the test recalls every stream at once.
    Recalls,
}

impl Goal {
    fn is_reached(self, admin: &mut Admin) -> bool {
        if self == Self::Bytes {
            let away = admin.away().unwrap();
            return away.iter().any(|session| session.received >= BYTES);
        }
        if self == Self::Recalls {
            admin.recall_all().unwrap();
        }
        admin.moves().unwrap().joins >= MOVES
    }
}

/// Runs the crowd with one kind of session until the goal is reached.
fn crowd(kind: &str, words: &[&str], goal: Goal) {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    // Small rings, so that writers often find no room.
    sandbox.set("RING_BYTES", "16k");
    let mut admin = Admin::new(&sandbox).unwrap();
    let end = sandbox.folder().join("end");
    let mut command = sandbox.command(Mode::Sojourn, program());
    command.args([kind, RECORDS_MAX, "until"]).arg(&end).args(words);
    let mut running = Running::start(command).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut is_reached = false;
    while !is_reached && running.is_running() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
        is_reached = goal.is_reached(&mut admin);
    }
    std::fs::write(&end, "").unwrap();
    let output = running.finish(LIMIT).unwrap().success(kind).unwrap();
    let moves = admin.moves().unwrap().joins;
    println!("{kind} {words:?}: {moves} moves, {} bytes", output.trim());
    assert!(is_reached, "{kind} {words:?}: {goal:?} not reached after {moves} moves");
}

#[test]
fn threads_share_a_session_that_is_away() {
    KINDS.iter().for_each(|kind| crowd(kind, &[], Goal::Bytes));
}

#[test]
fn threads_share_a_session_that_moves() {
    KINDS.iter().for_each(|kind| crowd(kind, &[], Goal::Recalls));
}

#[test]
fn a_thread_forks_while_others_read_and_write() {
    KINDS.iter().for_each(|kind| crowd(kind, &["fork"], Goal::Moves));
}
