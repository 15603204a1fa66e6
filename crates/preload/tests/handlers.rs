//! Functions that POSIX allows in a signal handler (signal-safety(7)) stay allowed, also if the
//! handler has interrupted `malloc` or the library's own code. And callers with very little stack.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

/// The default configuration, and sessions that move as soon as possible.
const EAGERNESS: [Option<&str>; 3] = [None, Some("0"), Some("16")];

fn run(server: &common::Server, program: &Path, arguments: &[&str]) {
    for eagerness in EAGERNESS {
        let mut command = Command::new(program);
        command.args(arguments).env("SOJOURN_SERVER", server.address());
        if let Some(calls) = eagerness {
            command.env("SOJOURN_MOVE_AFTER_CALLS", calls);
        }
        ends_well(common::preloaded(command), &format!("{arguments:?}, after {eagerness:?} calls"));
    }
}

fn ends_well(command: Command, what: &str) {
    let output = common::run(command);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_well = output.status.success() && output.stdout == b"done\n";
    assert!(is_well, "{what}: {} {} {}", output.status, said(&output.stdout), said(&output.stderr));
}

/// Runs a program with each kind of session: first without the library, with the arguments
/// `plainly`, which must succeed as well, then with the library, with `arguments`.
fn both(name: &str, user: &str, options: &[&str], plainly: &[&str], arguments: &[&str]) {
    let server = common::server(&format!("{name}-{user}"));
    let program = common::build_with(name, user, options);
    for kind in [&[][..], &["tcp"][..]] {
        let mut plain = Command::new(&program);
        plain.args(plainly).args(kind);
        ends_well(plain, "plainly");
        run(&server, &program, &[arguments, kind].concat());
    }
}

fn interrupted(how: &str) {
    both("handlers", how, &[], &[how], &[how]);
}

#[test]
fn handlers_at_any_moment() {
    interrupted("plain");
}

#[test]
fn handlers_on_a_stack_of_their_own() {
    interrupted("alternate");
}

#[test]
fn handlers_that_jump_out() {
    interrupted("jump");
}

#[test]
fn the_ends_of_children_told_by_a_pipe() {
    let server = common::server("handlers-pipe");
    let program = common::build("handlers", "pipe");
    run(&server, &program, &["pipe"]);
}

/// Tests stacks of the size that the plain program needs, including its own frames, and 4 KiB more.
fn small(how: &str, plainly: usize) {
    let options = ["-Wl,-z,now"];
    let (plain, with) = (plainly.to_string(), (plainly + 4096).to_string());
    both("small", how, &options, &[how, &plain], &[how, &with]);
}

#[test]
fn threads_with_the_smallest_stack() {
    // The plain program does not use all of the smallest stack, so it is not given more with the
    // library.
    both("small", "thread", &["-Wl,-z,now"], &["thread", "0"], &["thread", "0"]);
}

#[test]
fn handlers_on_the_smallest_stack() {
    small("alternate", 512);
}

#[test]
fn coroutines_on_small_stacks() {
    small("coroutine", 768);
}
