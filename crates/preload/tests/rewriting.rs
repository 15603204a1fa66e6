//! Programs that make system calls themselves, past the C library, for sessions that are away: in
//! the program, in libraries, and in code that comes later. Each runs with and without the library.
//! The C side checks that the sessions are away.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(target_arch = "x86_64")]

mod common;

use std::process::Command;

/// Builds the program with the libraries that it needs and opens; runs it.
fn past(place: &str) {
    let server = common::server(&format!("past-{place}"));
    let part = |name: &str| {
        let options = ["-shared", "-fPIC", &format!("-DPART={name}")];
        common::build_with("past", &format!("{place}-{name}"), &options)
    };
    let (needed, opened) = (part("needed"), part("opened"));
    let kind = if place == "integrity" { "-DINTEGRITY" } else { "-DPLAIN" };
    let options = ["-DNEEDED", kind, "-Wl,--no-as-needed", needed.to_str().unwrap(), "-ldl"];
    let program = common::build_with("past", place, &options);
    let file = if place == "mapped" { opened.with_extension("code") } else { opened };
    common::same_command(|| {
        let mut command = Command::new(&program);
        command.arg(place).arg(&file).env("SOJOURN_SERVER", server.address());
        command.env("SOJOURN_MOVE_AFTER_CALLS", "16").env("SOJOURN_REWRITE", "on");
        command
    });
}

/// Makes every call that is served by an instruction of the program's own.
#[test]
fn every_call_that_is_served() {
    let server = common::server("past-numbers");
    let program = common::build_with("by_number", "past", &["-DPAST_C_LIBRARY"]);
    for place in ["kernel", "away"] {
        common::same_command(|| {
            let mut command = common::by_number(&program, &server, [place, "unix"]);
            command.env("SOJOURN_REWRITE", "on");
            command
        });
    }
}

#[test]
fn calls_of_the_program() {
    past("main");
}

#[test]
fn calls_of_threads_that_never_pause() {
    past("storm");
}

/// Without the right to change its code a program runs as without the setting.
#[test]
fn code_that_must_not_change() {
    past("barred");
}

/// Code that is compared with a checksum (FIPS 140) stays as it is.
#[test]
fn code_that_is_tested() {
    past("integrity");
}

#[test]
fn calls_of_a_library() {
    past("needed");
}

#[test]
fn calls_of_a_library_that_is_opened_later() {
    past("opened");
}

#[test]
fn calls_in_code_that_is_mapped_later() {
    past("mapped");
}
