//! Tests that random sequences of calls are answered under Sojourn as they are plainly.
//!
//! Each script of `sequences/` is played, or of `SEQUENCES_FOLDER`, in `SEQUENCES_ROUNDS` rounds.
//! `SEQUENCES_SEED=N` plays new ones, from that seed on, and `SEQUENCES_COUNT=N` so many. New ones
//! are played by hand only, as long as some differ by the order in which two waiting calls of the
//! kernel's get their bytes. `SEQUENCES_DOOR=loader`: by a static program. `SEQUENCES_REMOTE=1`:
//! most sessions are with another host. Not here: the calls and their generator
//! (`src/sequences`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_system::sequences::compare::Difference;
use sojourn_system::sequences::generate::{Scope, generate};
use sojourn_system::sequences::script::Script;
use sojourn_system::sequences::shrink::{Differing, shrink};
use sojourn_system::sequences::stage::{Door, Stage, Terms};
use std::path::{Path, PathBuf};

/// The number of new scripts, and of rounds in which a difference must be seen again.
const COUNT: u64 = 30;
const ROUNDS: u32 = 3;

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn describe(name: &str, script: &Script, difference: &Difference) -> String {
    let Difference { step, plain, under } = difference;
    let call = script.steps.get(*step).map_or("(the end)", String::as_str);
    format!("{name}: step {step}, {call}\n  plain   {plain}\n  sojourn {under}\n{script}")
}

/// Plays a script; a difference must be there twice more. Returns the smallest script with it.
fn play(stage: &Stage, name: &str, script: &Script) -> Option<String> {
    let first = stage.compare(script).unwrap()?;
    let Some(again) = stage.differs(script, 2, ROUNDS).unwrap() else {
        println!("once only: {}", describe(name, script, &first));
        return None;
    };
    let Differing { script, difference } = shrink(stage, script, again).unwrap();
    Some(describe(name, &script, &difference))
}

fn is_remote() -> bool {
    std::env::var_os("SEQUENCES_REMOTE").is_some()
}

fn stage() -> Stage {
    let is_static = std::env::var_os("SEQUENCES_DOOR").is_some_and(|door| door == "loader");
    let door = if is_static { Door::Loader } else { Door::Preload };
    let terms = Terms { door, has_far_host: is_remote() };
    Stage::new(Path::new(env!("CARGO_TARGET_TMPDIR")), terms).unwrap()
}

#[test]
fn new_sequences() {
    let Some(first) = number_of("SEQUENCES_SEED") else { return };
    let stage = stage();
    let mut differences = String::new();
    for seed in first..first + number_of("SEQUENCES_COUNT").unwrap_or(COUNT) {
        let script = generate(seed, Scope { has_recalls: seed % 2 == 0, is_remote: is_remote() });
        if std::env::var_os("SEQUENCES_SHOW").is_some() {
            println!("{script}");
        }
        if let Some(text) = play(&stage, &format!("seed {seed}"), &script) {
            println!("{text}");
            differences += &text;
        }
    }
    println!("{} moved: {}", stage.moves().unwrap(), stage.why());
    assert!(differences.is_empty(), "differences:\n{differences}");
    assert!(stage.moves().unwrap() > 0, "nothing moved: {}", stage.why());
}

#[test]
fn kept_sequences() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("sequences");
    let folder = std::env::var_os("SEQUENCES_FOLDER").map_or(own, PathBuf::from);
    let stage = stage();
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "nothing is kept");
    let played = files.iter().filter_map(|file| {
        let script = Script::parse(&std::fs::read_to_string(file).unwrap());
        stage
            .differs(&script, 2, number_of("SEQUENCES_ROUNDS").map_or(ROUNDS, |all| all as u32))
            .unwrap()
            .map(|found| describe(&file.to_string_lossy(), &script, &found))
    });
    let differences: Vec<String> = played.collect();
    assert!(differences.is_empty(), "differences:\n{}", differences.join("\n"));
    assert!(stage.moves().unwrap() > 0, "nothing moved: {}", stage.why());
}
