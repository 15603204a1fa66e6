//! The C interface as C programs see it: built by plain `cc` against both libraries, run as
//! processes.
//!
//! The programs are in `tests/c`; the example of `examples/c-echo` is built by its own Makefile,
//! with the pkg-config file as it is installed. Each program has an alarm, each wait here a
//! deadline.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "the file is a module of the tests of `sojourn-ipc`, too")]
#[path = "../../ipc/tests/common/watchdog.rs"]
mod common;

use common::{name, watchdog};
use sojourn_lab::c_interface::{CInterface, Installed, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

const INTERFACE: CInterface = CInterface {
    folder: env!("CARGO_MANIFEST_DIR"),
    target: env!("CARGO_TARGET_TMPDIR"),
    version: env!("CARGO_PKG_VERSION"),
    name: "ipc",
    built_name: "ipc_c",
};

static INSTALLED: LazyLock<Installed> = LazyLock::new(|| INTERFACE.install().unwrap());

#[derive(Clone, Copy, Debug)]
enum Library {
    Shared,
    Static,
}

/// Compiles `tests/c` sources to a program.
fn compile(program: &str, sources: &[&str], library: Library) -> PathBuf {
    let compiled = match library {
        Library::Shared => INSTALLED.compile(program, sources),
        Library::Static => INSTALLED.compile_static(program, sources),
    };
    compiled.unwrap()
}

/// A program that ends when this does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = INSTALLED.command(program);
    command.args(arguments);
    command
}

/// Starts a server and waits until it says that it is ready.
fn start(program: &Path, arguments: &[&str]) -> Running {
    let mut server = Running(command(program, arguments).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    server
}

fn processes(library: Library) {
    let server = compile("server", &["server", "serve"], library);
    let client = compile("client", &["client", "checks"], library);
    let address = format!("@{}", name());
    let mut serving = start(&server, &[&address]);
    assert_eq!(run(&mut command(&client, &[&address, "stop"])).unwrap(), "passed\n");
    assert!(serving.0.wait().unwrap().success());
    let _serving = start(&server, &[&address]);
    assert_eq!(run(&mut command(&client, &[&address, "die"])).unwrap(), "passed\n");
}

#[test]
fn client_and_server_processes_over_the_shared_library() {
    let _watchdog = watchdog(120);
    processes(Library::Shared);
}

#[test]
fn client_and_server_processes_over_the_static_library() {
    let _watchdog = watchdog(120);
    processes(Library::Static);
}

#[test]
fn client_and_server_in_one_address_space() {
    let _watchdog = watchdog(120);
    for library in [Library::Shared, Library::Static] {
        let local = compile("local", &["local", "serve", "checks"], library);
        assert_eq!(run(&mut command(&local, &[&format!("@{}", name())])).unwrap(), "passed\n");
    }
}

#[test]
fn the_example_builds_with_plain_cc_and_pkg_config() {
    let _watchdog = watchdog(120);
    let source = format!("{}/../../examples/c-echo", INTERFACE.folder);
    let build = INSTALLED.path("c-echo");
    std::fs::create_dir_all(&build).unwrap();
    run(INSTALLED
        .with_pkg_config(&mut Command::new("make"))
        .args(["-C", &source, "CFLAGS=-Wall -Wextra -Werror -std=c11 -O1"])
        .arg(format!("BUILD={}", build.display())))
    .unwrap();
    // A path this time: the socket's file must be gone afterwards.
    let socket = build.join("socket");
    let address = socket.to_str().unwrap();
    let serving = start(&build.join("server"), &[address]);
    let answer = run(&mut command(&build.join("client"), &[address, "two", "words"])).unwrap();
    assert_eq!(answer, "TWO\nWORDS\n");
    let pid = rustix::process::Pid::from_child(&serving.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    drop(serving);
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while socket.exists() {
        assert!(std::time::Instant::now() < limit, "{} is still there", socket.display());
        std::thread::yield_now();
    }
}

#[test]
fn the_shared_library_exports_the_header_s_functions_and_no_others() {
    INSTALLED.check_exports().unwrap();
}

#[test]
fn the_header_is_c_plus_plus_as_well() {
    INTERFACE.check_as_cpp().unwrap();
}

#[test]
fn callers_of_forgotten_tokens_get_the_fault_dropped() {
    let _watchdog = watchdog(120);
    for library in [Library::Shared, Library::Static] {
        let dropped = compile("dropped", &["dropped", "checks"], library);
        assert_eq!(run(&mut command(&dropped, &[&format!("@{}", name())])).unwrap(), "passed\n");
    }
}
