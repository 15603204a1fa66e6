//! The stack that the library's functions use, and those of stdio that reach the library by libio's
//! tables: at most 4 KiB more than the C library's own functions. The C side has a case for every
//! exported name, and this side checks that no case is missing.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a call may use beyond those of the plain call.
const MORE: usize = 4096;

/// Data calls, which can be repeated.
const REPEATED: &str = "read readv recv recvfrom recvmsg recvmmsg write writev send sendto sendmsg sendmmsg poll ppoll select pselect \
    epoll_wait epoll_pwait";

fn exported() -> Vec<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(common::library()).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let name = |line: &str| line.split_whitespace().last().map(str::to_owned);
    // The function that a sanitizer calls uses no stack, and the table of lending is no function.
    let not_cases = ["__asan_default_options", "sojourn_buffers_v1"];
    text.lines().filter_map(name).filter(|name| !not_cases.contains(&name.as_str())).collect()
}

/// Runs `stack.c` for one call. Returns the bytes of stack that the call used; `None` if the C
/// library has no such function.
fn taken(command: Command) -> Option<usize> {
    let text = format!("{command:?}");
    let output = common::run(command);
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.trim();
    assert!(output.status.success(), "{text}: {said} {}", String::from_utf8_lossy(&output.stderr));
    (said != "absent").then(|| said.parse().unwrap())
}

/// Measures each call without and with the library, a few at a time, and fails for calls that use
/// too much.
fn measure(
    program: &Path,
    names: &[String],
    what: &[&str],
    prepare: &(dyn Fn(&mut Command) + Sync),
) {
    let next = AtomicUsize::new(0);
    let check = || {
        let mut found = Vec::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let command = || {
                let mut command = Command::new(program);
                command.arg(name).args(what);
                prepare(&mut command);
                command
            };
            let plain = taken(command());
            let Some(with) = taken(common::preloaded(command())) else { continue };
            if with > plain.unwrap_or(0) + MORE {
                found.push(format!("{name} {what:?}: {with} bytes, plainly {plain:?}"));
            }
        }
        found
    };
    let found: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(check)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{found:#?}");
}

fn repeated() -> Vec<String> {
    REPEATED.split_whitespace().map(str::to_owned).collect()
}

fn program(user: &str) -> std::path::PathBuf {
    // Bound at start, so that the dynamic linker's own use of stack at a first call does not count.
    common::build_with("stack", user, &["-Wl,-z,now"])
}

/// Returns the names that `stack.c` can measure.
fn cases(user: &str) -> Vec<String> {
    let output = Command::new(program(user)).arg("list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn every_exported_name_has_a_case() {
    let cases = cases("names");
    let missing: Vec<_> = exported().into_iter().filter(|name| !cases.contains(name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn the_first_call_takes_little() {
    let server = common::server("stack-first");
    let eager = |command: &mut Command| {
        command.env("SOJOURN_SERVER", server.address()).env("SOJOURN_MOVE_AFTER_CALLS", "0");
    };
    measure(&program("first"), &cases("first"), &["fresh"], &eager);
}

#[test]
fn without_a_server_no_call_takes_more() {
    let nothing = |command: &mut Command| {
        command.env("SOJOURN_SERVER", "/nowhere").env("SOJOURN_MOVE_AFTER_CALLS", "0");
    };
    measure(&program("alone"), &repeated(), &["fresh"], &nothing);
}

fn moved(user: &str, names: &[String], what: &[&str]) {
    let server = common::server(&format!("stack-{user}"));
    let soon = |command: &mut Command| {
        command.env("SOJOURN_SERVER", server.address()).env("SOJOURN_MOVE_AFTER_CALLS", "16");
    };
    measure(&program(user), names, what, &soon);
}

#[test]
fn a_call_on_a_session_that_is_away_takes_little() {
    moved("away", &cases("away"), &["away"]);
}

#[test]
fn the_same_of_tcp() {
    moved("tcp", &cases("tcp"), &["away", "tcp"]);
}

#[test]
fn a_call_that_waits_takes_little() {
    let waiting = repeated().into_iter().filter(|name| !name.contains("mmsg")).collect::<Vec<_>>();
    moved("waits", &waiting, &["waits"]);
    moved("waits-tcp", &waiting, &["waits", "tcp"]);
}

#[test]
fn moves_take_little() {
    moved("moves", &repeated(), &["moves"]);
    moved("moves-tcp", &repeated(), &["moves", "tcp"]);
}
