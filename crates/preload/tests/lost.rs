//! A server that does not answer for a while, and then takes the programs that have given it up for
//! dead: their peers must not lose bytes or get bytes twice.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::Command;
use std::time::Duration;

/// Longer than the library waits for an answer.
const SILENCE: Duration = Duration::from_millis(2400);
const BETWEEN: Duration = Duration::from_millis(700);

fn silent_server(kind: &[&str]) {
    let server = common::server(&format!("lost-{}", kind.len()));
    let program = common::build("lost", &format!("with-{}", kind.len()));
    common::library();
    let mut command = Command::new(&program);
    command.arg("9000").args(kind).env("SOJOURN_SERVER", server.address());
    command.env("SOJOURN_MOVE_AFTER_CALLS", "0");
    let run = std::thread::spawn(|| common::run(common::preloaded(command)));
    for _ in 0..3 {
        std::thread::sleep(BETWEEN);
        server.signal("STOP");
        std::thread::sleep(SILENCE);
        server.signal("CONT");
    }
    let output = run.join().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_well = output.status.success() && output.stdout == b"done\n";
    assert!(is_well, "{} {} {}", output.status, said(&output.stdout), said(&output.stderr));
}

#[test]
fn who_has_given_the_server_up_is_not_dead() {
    silent_server(&[]);
}

#[test]
fn who_has_given_the_server_up_is_not_dead_over_tcp() {
    silent_server(&["tcp"]);
}
