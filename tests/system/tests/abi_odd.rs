//! Tests of loaded programs that do what most do not: they find the kernel's answers, or run
//! without the loader.
//!
//! The program is `c/abi/odd.c`, linked in every way; it checks itself, and each case holds without
//! Sojourn as well. Not here: what every program does (`abi.rs`).

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

fn made(case: &str, [name, compiler, option]: [&str; 3]) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("odd-{case}-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/abi/odd.c");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-w", "-pthread", option, "-o"]).arg(&path).arg(source);
    match command.status() {
        Ok(status) => assert!(status.success(), "the program does not compile with {compiler}"),
        Err(error) => {
            eprintln!("skipped: {compiler}: {error}");
            return None;
        }
    }
    Some(path)
}

/// Runs a case, linked in every way, as programs usually run and with sessions that move at once.
fn case(name: &str) {
    for linked in LINKED {
        let Some(program) = made(name, linked) else { continue };
        for threshold in [None, Some("0")] {
            let mut sandbox = Sandbox::new().unwrap();
            sandbox.set("LOAD", "on");
            threshold.into_iter().for_each(|calls| sandbox.set("MOVE_AFTER_CALLS", calls));
            let mut command = sandbox.command(Mode::Sojourn, &program);
            command.arg(name);
            let finished = Running::start(command).unwrap().finish(PATIENCE).unwrap();
            finished.success(&format!("{name} {linked:?} {threshold:?}")).unwrap();
        }
    }
}

#[test]
fn the_break_takes_no_room_that_it_does_not_use() {
    case("room");
}

#[test]
fn bad_addresses_are_errors() {
    case("pointers");
}

#[test]
fn threads_are_cancelled_in_calls_that_wait() {
    case("cancelled");
}

#[test]
fn threads_are_cancelled_as_they_begin() {
    case("cancelled_on_one");
}

#[test]
fn handlers_on_the_alternate_stack_are_interrupted_in_their_calls() {
    case("on_top");
}

#[test]
fn all_signals_that_a_calls_mask_admits_arrive_in_it() {
    case("masked");
}

#[test]
fn a_program_without_a_free_descriptor_executes_itself() {
    case("crowded");
}

#[test]
fn handlers_see_what_led_to_the_call_that_they_interrupt() {
    case("unwound");
}

#[test]
fn alternate_stacks_may_be_small() {
    case("small");
}

#[test]
fn programs_start_only_as_the_kernel_would_start_them() {
    case("replaced");
}

#[test]
fn programs_start_behind_another_root() {
    case("rooted");
}

#[test]
fn a_tracer_sees_the_program_itself() {
    case("traced");
}

#[test]
fn nothing_is_written_behind_the_target_of_a_link() {
    case("linked");
}

#[test]
fn a_child_may_share_the_memory_of_a_parent_that_goes_on() {
    case("shared");
}

#[test]
fn a_thread_may_have_descriptors_and_a_directory_of_its_own() {
    case("apart");
}
