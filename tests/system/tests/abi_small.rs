//! Tests of loaded programs that stay small: they run without the loader's C library and without
//! the preload library, which come into the process with the first call that needs them.
//!
//! The program is `c/abi/small.c`. What such a start costs is counted here, not timed (`cargo xtask
//! bench doors`). Not here: programs that need both at once (`abi.rs`).

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Built, Mode, Running, Sandbox};
use sojourn_system::LIMIT;
use sojourn_system::compile::compile;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn made(program: &str, source: &str, options: &[&str]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    compile(&path, &[source], &[options, &["-w", "-pthread"]].concat()).unwrap();
    path
}

/// Runs a case of the program, linked in both ways; returns what it says.
fn case(name: &str) {
    for option in ["-static", "-static-pie"] {
        let program = made(&format!("small-{name}{option}"), "abi/small.c", &[option]);
        let mut sandbox = Sandbox::new().unwrap();
        sandbox.set("LOAD", "on");
        let mut command = sandbox.command(Mode::Sojourn, &program);
        command.arg(name);
        let finished = Running::start(command).unwrap().finish(LIMIT).unwrap();
        finished.success(&format!("{name} {option}")).unwrap();
    }
}

#[test]
fn a_small_program_is_alone_with_the_loader() {
    case("alone");
    case("replaced");
}

#[test]
fn the_kernel_keeps_what_the_program_has_told_it() {
    case("grown");
}

#[test]
fn arguments_and_environment_may_be_overwritten() {
    case("overwritten");
}

#[test]
fn all_descriptors_may_be_in_use() {
    case("descriptors");
}

#[test]
fn a_stream_brings_the_host_in() {
    case("stream");
}

#[test]
fn registers_survive_the_call_that_brings_the_host_in() {
    case("registers");
}

/// The loader without `sojourn run`, which is not to be counted.
fn loaded(program: &Path, caches: &Path, by: Option<&Path>) -> Command {
    let built = Built::find().unwrap();
    let loader = built.path("sojourn-abi");
    let mut command = Command::new(by.unwrap_or(&loader));
    if by.is_some() {
        command.arg(&loader);
    }
    command.env("LD_PRELOAD", built.path("libsojourn_preload.so"));
    command.env("SOJOURN_ABI_FILE", program).env("XDG_CACHE_HOME", caches);
    command.env("SOJOURN_SERVER", "/nonexistent");
    command
}

/// A program with the default settings, in which no session moves at its first calls, reads a pipe.
#[test]
fn the_first_calls_on_a_pipe_need_no_host() {
    let program = made("small-input", "abi/small.c", &["-static"]);
    let mut command = loaded(&program, Path::new("/dev/null"), None);
    command.arg("input").stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes: Vec<u8> = (0..100u8).map(|at| b'a' + at % 26).collect();
    input.write_all(&bytes).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// The kernel starts the loader itself; and the loader relocates itself, by addresses that the
/// dynamic loader writes once more.
#[test]
fn the_loader_is_linked_to_start_itself() {
    let loader = Built::find().unwrap().path("sojourn-abi");
    let words = ["--wide", "--segments", "--dynamic"];
    let output = Command::new("readelf").args(words).arg(loader).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("(RELACOUNT)") && text.contains("[libc.so.6]"), "{text}");
    assert!(!text.contains("INTERP") && !text.contains("(RELR)"), "{text}");
}

/// What a program costs from `exec` to its end.
#[derive(Debug, Clone, Copy)]
struct Cost {
    calls: usize,
    faults: usize,
}

fn cost(mut command: Command) -> Cost {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<usize> = text.split_whitespace().map(|one| one.parse().unwrap()).collect();
    Cost { calls: numbers[0], faults: numbers[1] }
}

/// The start of a static program, with its sites in the cache, has at most this many more system
/// calls and page faults than without Sojourn.
const MORE: Cost = Cost { calls: 45, faults: 100 };

#[test]
fn a_start_costs_little() {
    let counter = made("small-cost", "abi/cost.c", &[]);
    let program = made("small-counted", "abi/small.c", &["-static"]);
    let sandbox = Sandbox::new().unwrap();
    let caches = sandbox.folder().join("caches");
    std::fs::create_dir(&caches).unwrap();
    let begun = std::time::Instant::now();
    while !std::fs::read_dir(caches.join("sojourn")).is_ok_and(|mut all| all.next().is_some()) {
        assert!(loaded(&program, &caches, None).status().unwrap().success());
        assert!(begun.elapsed() < LIMIT, "nothing is kept");
    }
    let mut command = Command::new(&counter);
    command.arg(AsRef::<OsStr>::as_ref(&program));
    let plain = cost(command);
    let ours = cost(loaded(&program, &caches, Some(&counter)));
    assert!(plain.calls > 5 && plain.faults > 10, "{plain:?}");
    assert!(ours.calls <= plain.calls + MORE.calls, "{ours:?}, plain: {plain:?}");
    assert!(ours.faults <= plain.faults + MORE.faults, "{ours:?}, plain: {plain:?}");
}

/// A program that installs two thousand handlers makes no second call for each of them: what it
/// wants is read on its stack. The host, which the first handler brings in, makes fewer calls than
/// this.
#[test]
fn a_handler_costs_one_call() {
    const HOST: usize = 500;
    let counter = made("small-handlers-cost", "abi/cost.c", &[]);
    let program = made("small-handlers", "abi/small.c", &["-static"]);
    let mut command = Command::new(&counter);
    command.arg(&program).arg("handlers");
    let plain = cost(command);
    let mut command = loaded(&program, Path::new("/dev/null"), Some(&counter));
    command.arg("handlers");
    let ours = cost(command);
    assert!(plain.calls >= 2000, "{plain:?}");
    assert!(ours.calls <= plain.calls + HOST, "{ours:?}, plain: {plain:?}");
}
