//! What POSIX allows in a signal handler stays allowed, whatever the handler interrupted: `malloc`,
//! or the library's own code. And callers with hardly any stack.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

/// As configured without anything, and with sessions that move as soon as they can.
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

/// With each kind of session, and plainly first: that must work, too. `plainly` and `arguments`:
/// what the program is told.
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
    common::test_what_ships();
    interrupted("plain");
}

#[test]
fn handlers_on_a_stack_of_their_own() {
    common::test_what_ships();
    interrupted("alternate");
}

#[test]
fn handlers_that_jump_out() {
    common::test_what_ships();
    interrupted("jump");
}

#[test]
fn the_ends_of_children_told_by_a_pipe() {
    common::test_what_ships();
    let server = common::server("handlers-pipe");
    let program = common::build("handlers", "pipe");
    run(&server, &program, &["pipe"]);
}

/// On stacks that have what the plain program needs (its own frames among that), and 4 KiB more.
fn small(how: &str, plainly: usize) {
    let options = ["-Wl,-z,now"];
    let (plain, with) = (plainly.to_string(), (plainly + 4096).to_string());
    both("small", how, &options, &[how, &plain], &[how, &with]);
}

#[test]
fn threads_with_the_smallest_stack() {
    common::test_what_ships();
    // The plain program does not need all of it.
    both("small", "thread", &["-Wl,-z,now"], &["thread", "0"], &["thread", "0"]);
}

#[test]
fn handlers_on_the_smallest_stack() {
    common::test_what_ships();
    small("alternate", 512);
}

#[test]
fn coroutines_on_small_stacks() {
    common::test_what_ships();
    small("coroutine", 768);
}
