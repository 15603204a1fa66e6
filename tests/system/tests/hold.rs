//! Tests of two programs that both send before either receives. Bytes that the kernel accepts
//! before the reader reads are also accepted by a session that is away, and by one that is recalled
//! meanwhile, in many calls or in one that does not wait; and the accepted amount has a bound.
//!
//! The program is `c/hold`; it also runs plainly. Not here: the order of bytes under load
//! (`churn`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::compile::compile;
use sojourn_system::{Admin, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Bytes that each of two programs sends. The capacity of a TCP connection differs by some 100 KB
/// from run to run.
const SIZES: [(&str, &[usize]); 3] = [
    ("unix", &[50_000, 100_000, 150_000, 200_000, 219_264]),
    ("tcp", &[50_000, 300_000, 1_000_000, 2_000_000, 3_500_000]),
    ("pipe", &[4096, 50_000, 65_536]),
];
const MODES: [&str; 4] = ["block", "pieces", "small", "once"];
/// Bytes beyond the capacity of any session; below, the largest multiple of the plain capacity.
const ENDLESS: usize = 40 << 20;
const MORE: usize = 8;

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hold");
        compile(&program, &["hold/hold.c"], &["-g", "-Wall", "-Werror"]).unwrap();
        program
    })
}

/// The moves of the session while the programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    /// The session stays away.
    Away,
    /// The session is recalled again and again, and leaves again.
    Home,
}

/// Runs both programs; returns their output, or `None` if both wait for each other.
fn hold(
    sandbox: &Sandbox,
    mode: Mode,
    words: [&str; 3],
    recalls: Option<&mut Admin>,
) -> Option<String> {
    let mut command = sandbox.command(mode, program());
    command.args(words);
    let mut running = Running::start(command).unwrap();
    if let Some(admin) = recalls {
        while running.is_running() {
            admin.recall_all().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let ended = running.finish(LIMIT).unwrap();
    let is_stuck = ended.status == 2;
    (!is_stuck).then(|| ended.success(&words.join(" ")).unwrap().trim().to_owned())
}

fn plain(words: [&str; 3]) -> Option<String> {
    let ended = Command::new(program()).args(words).env("HOLD_SECONDS", "1").output().unwrap();
    ended.status.success().then(|| String::from_utf8(ended.stdout).unwrap().trim().to_owned())
}

fn everything_is_taken(moves: Moves) {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let mut admin = Admin::new(&sandbox).unwrap();
    for (kind, sizes) in SIZES {
        for size in sizes.iter().map(usize::to_string) {
            for mode in MODES {
                let words = [kind, size.as_str(), mode];
                let Some(plain) = plain(words) else { continue };
                let recalls = (moves == Moves::Home).then_some(&mut admin);
                let away = hold(&sandbox, Mode::Sojourn, words, recalls);
                assert_eq!(away, Some(plain), "{words:?} {moves:?}");
            }
        }
    }
    assert!(admin.moves().unwrap().joins > 20, "sessions have moved");
}

#[test]
fn what_the_kernel_takes_is_taken_away_from_it() {
    everything_is_taken(Moves::Away);
}

#[test]
fn what_the_kernel_takes_is_taken_on_the_way_home() {
    everything_is_taken(Moves::Home);
}

#[test]
fn a_call_that_does_not_wait_takes_as_much_as_plainly_and_not_everything() {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let endless = ENDLESS.to_string();
    for (kind, _) in SIZES {
        let words = [kind, &endless, "once"];
        let number = |said: Option<String>| said.unwrap().parse::<usize>().unwrap();
        let plain = number(plain(words));
        let away = number(hold(&sandbox, Mode::Sojourn, words, None));
        println!("{kind}: {plain} bytes plainly, {away} away");
        assert!((plain..=MORE * plain).contains(&away), "{kind}: {plain} plainly, {away} away");
    }
}
