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
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// A directory laid out as an installation: `lib`, `lib/pkgconfig`, `include`.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _ = std::fs::remove_dir_all(&prefix);
        let config = prefix.join("lib/pkgconfig");
        std::fs::create_dir_all(&config).unwrap();
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, prefix.join(name)).unwrap();
        };
        link(&Path::new(CRATE).join("include"), "include");
        link(&built("libsojourn_ipc_c", "so"), "lib/libsojourn_ipc.so.0");
        link(Path::new("libsojourn_ipc.so.0"), "lib/libsojourn_ipc.so");
        link(&built("libsojourn_ipc_c", "a"), "lib/libsojourn_ipc.a");
        let template = std::fs::read_to_string(format!("{CRATE}/sojourn-ipc.pc.in")).unwrap();
        let filled = template
            .replace("@prefix@", prefix.to_str().unwrap())
            .replace("@version@", env!("CARGO_PKG_VERSION"));
        std::fs::write(config.join("sojourn-ipc.pc"), filled).unwrap();
        prefix
    })
}

/// The newest library of that kind that was built along with this test.
fn built(stem: &str, extension: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let modified = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    let newest = std::fs::read_dir(&deps)
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter(|path| path.file_stem().is_some_and(|name| is_ours(&name.to_string_lossy(), stem)))
        .max_by_key(modified);
    newest.unwrap_or_else(|| panic!("no {stem}.{extension} in {}", deps.display()))
}

/// The stem itself or with a hash that cargo put behind it.
fn is_ours(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[derive(Clone, Copy, Debug)]
enum Library {
    Shared,
    Static,
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles `tests/c` sources to a program.
fn compile(program: &str, sources: &[&str], library: Library) -> PathBuf {
    let target = prefix().join(format!("{program}-{library:?}"));
    let lib = prefix().join("lib");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-O1", "-o"])
        .arg(&target)
        .arg("-I")
        .arg(prefix().join("include"))
        .args(sources.iter().map(|source| format!("{CRATE}/tests/c/{source}.c")));
    match library {
        Library::Shared => cc.arg("-L").arg(&lib).args(["-lsojourn_ipc", "-lpthread"]),
        Library::Static => {
            cc.arg(lib.join("libsojourn_ipc.a")).args(["-lgcc_s", "-lpthread", "-lm", "-ldl"])
        }
    };
    run(&mut cc);
    target
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
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", prefix().join("lib"));
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
    assert_eq!(run(&mut command(&client, &[&address, "stop"])), "passed\n");
    assert!(serving.0.wait().unwrap().success());
    let _serving = start(&server, &[&address]);
    assert_eq!(run(&mut command(&client, &[&address, "die"])), "passed\n");
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
        assert_eq!(run(&mut command(&local, &[&format!("@{}", name())])), "passed\n");
    }
}

#[test]
fn the_example_builds_with_plain_cc_and_pkg_config() {
    let _watchdog = watchdog(120);
    let source = format!("{CRATE}/../../examples/c-echo");
    let build = prefix().join("c-echo");
    std::fs::create_dir_all(&build).unwrap();
    run(Command::new("make")
        .args(["-C", &source, "CFLAGS=-Wall -Wextra -Werror -std=c11 -O1"])
        .arg(format!("BUILD={}", build.display()))
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    // A path this time: the socket's file must be gone afterwards.
    let socket = build.join("socket");
    let address = socket.to_str().unwrap();
    let serving = start(&build.join("server"), &[address]);
    let said = run(&mut command(&build.join("client"), &[address, "two", "words"]));
    assert_eq!(said, "TWO\nWORDS\n");
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
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(prefix().join("lib/libsojourn_ipc.so")));
    let mut exported: Vec<&str> =
        symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    exported.sort_unstable();
    let header = std::fs::read_to_string(format!("{CRATE}/include/sojourn/ipc.h")).unwrap();
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with([' ', '/']))
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .collect();
    declared.sort_unstable();
    assert_eq!(exported, declared);
    let dynamic =
        run(Command::new("readelf").arg("-d").arg(prefix().join("lib/libsojourn_ipc.so")));
    assert!(dynamic.contains("[libsojourn_ipc.so.0]"), "{dynamic}");
}

#[test]
fn the_header_is_c_plus_plus_as_well() {
    for standard in ["-std=c++11", "-std=c++20"] {
        run(Command::new("g++")
            .args([standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"])
            .arg(format!("{CRATE}/include/sojourn/ipc.h")));
    }
}

#[test]
fn callers_of_forgotten_tokens_get_the_fault_dropped() {
    let _watchdog = watchdog(120);
    for library in [Library::Shared, Library::Static] {
        let dropped = compile("dropped", &["dropped", "checks"], library);
        assert_eq!(run(&mut command(&dropped, &[&format!("@{}", name())])), "passed\n");
    }
}
