//! C programs whose sessions are away from the kernel, compared with the same programs without the
//! library. The C side checks that the sessions are away.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

fn away(name: &str, what: &str) {
    let server = common::server(name);
    run(&server, &common::build("away", name), what);
}

/// Tests io_uring on sessions that are away or about to move, with rings made in the way of
/// `maker`, before and after the move.
fn rings(maker: &str) {
    let server = common::server(&format!("rings-{maker}"));
    let program = common::build("rings", maker);
    for (when, kind) in [("early", "tcp"), ("early", "unix"), ("late", "tcp"), ("late", "unix")] {
        common::same_command(|| {
            let mut command = Command::new(&program);
            command.args([maker, when, kind]);
            command.env("SOJOURN_SERVER", server.address());
            command.env("SOJOURN_MOVE_AFTER_CALLS", "16");
            command
        });
    }
}

/// Returns true if this kernel has io_uring; else there is nothing to compare.
fn has_rings() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    disabled.is_ok_and(|disabled| disabled.trim() == "0")
}

macro_rules! rings {
    ($($name:ident: $maker:literal),+ $(,)?) => {$(
        #[test]
        fn $name() {
            if has_rings() {
                rings($maker);
            } else {
                eprintln!("skipped: no io_uring");
            }
        }
    )+};
}

rings!(rings_by_the_c_library: "libc", rings_past_it: "inline", rings_served_by_the_kernel: "polled", rings_for_files: "libuv");

/// With `_FORTIFY_SOURCE` the C library's headers replace calls by their checking variants
/// (`__read_chk` and so on).
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

/// A program with more thread-local variables than the stack of a thread of the library's has room
/// for.
#[test]
fn large_thread_local_storage() {
    for (size, name) in
        [("-DTHREAD_LOCAL=200<<10", "storage-200"), ("-DTHREAD_LOCAL=4<<20", "storage-4000")]
    {
        let server = common::server(name);
        run(&server, &common::build_with("away", name, &[size]), "w");
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

/// Tests every system call that `syscall` serves, on sessions that are away and on sessions in the
/// kernel: the results and the memory, with valid arguments and with invalid ones.
#[test]
fn system_calls_by_their_numbers() {
    let server = common::server("by-number");
    let program = common::build("by_number", "away");
    for (place, kind) in [("kernel", "unix"), ("away", "unix"), ("kernel", "tcp"), ("away", "tcp")]
    {
        common::same_command(|| common::by_number(&program, &server, [place, kind]));
    }
}

/// Tests plug-ins whose loading bypasses the library: the sessions that they wait for are away all
/// the same.
#[test]
fn plug_ins_that_look_past_the_library() {
    let program = common::build_with("plugin", "host", &["-DHOST"]);
    let server = common::server("plugin");
    let [lazy, now] = ["-Wl,-z,lazy", "-Wl,-z,now,-z,relro"].map(|binding| {
        let name = format!("plugin-{}", if binding.ends_with("lazy") { "lazy" } else { "now" });
        let options = ["-shared", "-fPIC", binding];
        let inner = common::build_with(
            "plugin",
            &format!("{name}-inner"),
            &[&options[..], &["-DINNER"]].concat(),
        );
        let inner = inner.to_str().unwrap().to_owned();
        let outer = [&options[..], &["-DOUTER", "-Wl,--no-as-needed", &inner]].concat();
        common::build_with("plugin", &name, &outer)
    });
    for file in [lazy, now] {
        for how in ["deep", "plain", "namespace"] {
            common::same_command(|| {
                let mut command = Command::new(&program);
                command.arg(&file).arg(how);
                command.env("SOJOURN_SERVER", server.address());
                command.env("SOJOURN_MOVE_AFTER_CALLS", "16");
                command
            });
        }
    }
}

/// Tests sessions with both ends in one process.
#[test]
fn within_one_process() {
    let server = common::server_with("within", &["--same-process"]);
    let program = common::build("within", "away");
    for kind in ["unix", "pipe", "tcp"] {
        common::same_command(|| {
            let mut command = Command::new(&program);
            command.arg(kind);
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
    cancelled_in_select: "x2", new_processes: "p", stdio: "s", ends: "e", ends_heard_at_once: "h", numbers: "n", storm: "t",
    inside_the_c_library: "d", order: "o", other_names: "f", lists_of_operations: "l", shells_of_the_c_library: "g",
);

/// Tests streams of the C library on pipes and sockets that are away: `WRITER | READER`, in a
/// pipeline of a shell, which gives each program one end.
#[test]
fn streams_of_the_c_library() {
    let server = common::server("files");
    let program = common::build("files", "away");
    let pairs = [
        ("exit", "lines"),
        ("_exit", "lines"),
        ("abort", "lines"),
        ("fclose", "back"),
        ("fdopen", "fdopen"),
        ("unbuffered", "unbuffered"),
        ("lines", "poll"),
        ("mixed", "lines"),
        ("unflushed", "lines"),
        ("threads", "sorted"),
        ("fork", "sorted"),
        ("reopen", "lines"),
        ("wide", "wide"),
        ("wide", "lines"),
        ("stderr", "lines"),
        ("large", "large"),
        ("large", "cancel"),
        ("broken", "quit"),
        ("seek", "lines"),
    ];
    for (writer, reader) in pairs {
        common::same_command(|| {
            let at = program.to_str().unwrap();
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("{at} write {writer} | {at} read {reader}"));
            command.env("SOJOURN_SERVER", server.address());
            command.env("SOJOURN_MOVE_AFTER_CALLS", "16");
            command
        });
    }
    common::same_command(|| {
        let mut command = Command::new(&program);
        command.arg("processes");
        command.env("SOJOURN_SERVER", server.address());
        command.env("SOJOURN_MOVE_AFTER_CALLS", "16");
        command
    });
}
