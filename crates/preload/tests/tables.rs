//! A C program with descriptor tables that are not the process's: threads with one of their own,
//! children that only the C library knows of, and limits below what is open. By default, and with
//! sessions that move at the first call.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

fn same(name: &str, what: &str, program: &Path) {
    let server = common::server(&format!("tables-{name}"));
    for calls in ["32", "1"] {
        common::same_command(|| {
            let mut command = Command::new(program);
            command.arg(what).env("SOJOURN_SERVER", server.address());
            command.env("SOJOURN_MOVE_AFTER_CALLS", calls);
            command
        });
    }
}

macro_rules! tables {
    ($($name:ident: $what:literal),+ $(,)?) => {$(
        #[test]
        fn $name() {
            same(stringify!($name), $what, &common::build("tables", stringify!($name)));
        }
    )+};
}

tables!(unshared: "u", unshared_by_a_range: "r", cloned: "c", limits: "l", few_numbers: "f", orphans: "o");

/// Children of pidfd_spawn(3), which a library has where the C library is older than 2.39.
#[test]
fn children_with_a_descriptor_of_their_process() {
    let name = "children";
    let library = common::build_with("spawner", "lib", &["-shared", "-fPIC", "-ldl"]);
    let library = library.to_str().unwrap();
    let options = ["-DSPAWNS", "-Wl,--no-as-needed", library];
    same(name, "s", &common::build_with("tables", name, &options));
}
