//! A C program whose sessions are away from the kernel, beside the same program without the library. The C side makes sure
//! that they are away.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

fn away(name: &str, what: &str) {
    let server = common::server(name);
    run(&server, &common::build("away", name), what);
}

/// The C library's headers put other functions in place of those that are written.
#[test]
fn fortified() {
    for (level, name) in
        [("-D_FORTIFY_SOURCE=2", "fortified-2"), ("-D_FORTIFY_SOURCE=3", "fortified-3")]
    {
        let server = common::server(name);
        let away = common::build_with("away", name, &[level]);
        for what in ["c", "w"] {
            run(&server, &away, what);
        }
    }
}

fn run(server: &common::Server, away: &Path, what: &str) {
    for kind in [None, Some("tcp")] {
        common::same_command(|| {
            let mut command = Command::new(away);
            command.arg(what).args(kind);
            command.env("SOJOURN_SERVER", server.address());
            command.env("SOJOURN_MOVE_AFTER_CALLS", "16");
            command
        });
    }
}

macro_rules! away {
    ($($name:ident: $what:literal),+ $(,)?) => {$(
        #[test]
        fn $name() {
            away(stringify!($name), $what);
        }
    )+};
}

away!(
    data_calls: "c", waits: "w", interruptions: "i", cancelled_in_read: "x0", cancelled_in_poll: "x1",
    cancelled_in_select: "x2", new_processes: "p", stdio: "s", ends: "e", numbers: "n", storm: "t",
    inside_the_c_library: "d", other_names: "f", lists_of_operations: "l", shells_of_the_c_library: "g",
);
