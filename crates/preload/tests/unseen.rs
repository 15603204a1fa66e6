//! A C program that searches its process for traces of the library: descriptors at numbers that the
//! program could get or name, and threads that keep the process from ending or from calls that only
//! a process with one thread may make. By default, and with sessions that move at the first call.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::Command;

fn unseen(name: &str, what: &str) {
    let server = common::server(&format!("unseen-{name}"));
    let program = common::build("unseen", name);
    for calls in ["32", "1"] {
        common::same_command(|| {
            let mut command = Command::new(&program);
            command.arg(what).env("SOJOURN_SERVER", server.address());
            command.env("SOJOURN_MOVE_AFTER_CALLS", calls);
            command
        });
    }
}

macro_rules! unseen {
    ($($name:ident: $what:literal),+ $(,)?) => {$(
        #[test]
        fn $name() {
            unseen(stringify!($name), $what);
        }
    )+};
}

unseen!(
    lowest_numbers: "lowest", standard_numbers: "standard", a_full_table: "full", chosen_numbers: "chosen",
    last_threads: "threads", namespaces: "namespaces",
    threads_that_end_early: "early",
);
