//! A C program that looks for what the library has of its own in its process: descriptors at
//! numbers that it could get or name, threads that keep it from ending or from what only a process
//! with one thread may do. By default and with sessions that move at the first call.

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
);
