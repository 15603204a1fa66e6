//! Tests of a program whose peers write into every word of the memory that they share with it, or
//! are stopped: the program goes on and ends, and the peers do not delay it one after the other.
//!
//! The programs are those of `c/hostile`, which are their own peers. Not here: each single call
//! (`hostile_tests` of `sojourn-library`), and regions with arbitrary content (`sojourn-stream`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::LIMIT;
use sojourn_system::compile::compile;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest time of a run: twenty sessions that each wait for a second, one after the other, take
/// longer.
const RUN_LIMIT: Duration = Duration::from_secs(12);

/// Longest time of a run of `mixed`: a third of its calls may wait, each for some milliseconds.
const MIXED_LIMIT: Duration = Duration::from_secs(40);
/// What such a run may take beyond what it had before: memory in KiB, processor time in ms.
const MEMORY_KIB: i64 = 16 * 1024;
const PROCESSOR_MS: i64 = 5000;

fn compiled(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    compile(&program, &[&format!("hostile/{name}.c")], &["-g", "-Wall", "-Werror"]).unwrap();
    program
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("hostile"))
}

fn it_ends(peer: &str) {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    for kind in ["unix", "tcp"] {
        for end in ["close", "fork", "exec", "exit"] {
            let mut command = sandbox.command(Mode::Sojourn, program());
            command.args([kind, peer, end]);
            let begun = Instant::now();
            let ended = Running::start(command).unwrap().finish(LIMIT).unwrap();
            let output = ended.success(&format!("{kind} {peer} {end}")).unwrap();
            let took = begun.elapsed();
            println!("{kind} {peer} {end}: {} in {took:?}", output.trim());
            assert_eq!(
                output.trim(),
                "away 20",
                "{kind} {peer} {end}: not all sessions have moved"
            );
            assert!(took < RUN_LIMIT, "{kind} {peer} {end}: {took:?}");
        }
    }
}

/// A peer that asks for attention without end has the program's threads look a few times, and then
/// now and then: 64 times a second, and each of two threads sleeps for a look.
#[test]
fn peers_that_ask_for_attention_without_end_cost_little() {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let mut command = sandbox.command(Mode::Sojourn, program());
    command.args(["unix", "rings", "counts"]);
    let ended = Running::start(command).unwrap().finish(LIMIT).unwrap();
    let output = ended.success("counts").unwrap();
    let slept = output.trim().strip_prefix("away 20\nslept ").and_then(|count| count.parse().ok());
    assert!(slept.is_some_and(|count: u64| count < 1000), "{output}");
}

#[test]
fn a_program_ends_whatever_its_peers_write() {
    it_ends("writes");
}

#[test]
fn a_program_ends_whatever_its_peers_say_of_the_kernel() {
    it_ends("lies");
}

#[test]
fn a_program_ends_though_its_peers_are_stopped() {
    it_ends("stops");
}

/// Returns the number that a line of an output has behind its name.
fn number(output: &str, name: &str) -> i64 {
    let value = output.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {output}"))
}

/// Every kind of call that moves bytes or descriptors, while a peer rewrites the memory: each ends
/// with no more than was asked for, and the program has hardly more of anything afterwards. The
/// program and its peer see which bytes come to whom.
fn no_call_suffers_from_what_peers_write(kind: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compiled("mixed"));
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let mut away = 0;
    for seed in ["1", "2", "3", "4"] {
        let mut command = sandbox.command(Mode::Sojourn, program);
        command.args([kind, seed]);
        let begun = Instant::now();
        let ended = Running::start(command).unwrap().finish(LIMIT).unwrap();
        let output = ended.success(&format!("{kind} {seed}")).unwrap();
        let took = begun.elapsed();
        println!("{kind} {seed}: {} in {took:?}", output.replace('\n', " "));
        assert!(took < MIXED_LIMIT, "{kind} {seed}: {took:?}");
        away += number(&output, "away");
        assert!(number(&output, "descriptors") <= 0, "{kind} {seed}: {output}");
        assert!(number(&output, "threads") <= 0, "{kind} {seed}: {output}");
        assert!(number(&output, "memory") < MEMORY_KIB, "{kind} {seed}: {output}");
        assert!(number(&output, "processor") < PROCESSOR_MS, "{kind} {seed}: {output}");
    }
    assert!(away > 0, "{kind}: nothing has moved");
}

#[test]
fn no_call_on_a_pipe_suffers_from_what_peers_write() {
    no_call_suffers_from_what_peers_write("pipe");
}

#[test]
fn no_call_on_a_unix_stream_suffers_from_what_peers_write() {
    no_call_suffers_from_what_peers_write("unix");
}

#[test]
fn no_call_on_tcp_suffers_from_what_peers_write() {
    no_call_suffers_from_what_peers_write("tcp");
}
