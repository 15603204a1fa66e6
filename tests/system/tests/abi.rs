//! Tests of programs that make their own system calls: static ones, musl's, Go's. They find their
//! process as they expect it, and their sessions move as those of dynamic programs do.
//!
//! The programs are `c/abi`, `c/beside` and `go`; each checks its process itself. `cargo xtask
//! test` installs musl's compiler and Go; where one is missing, its part is skipped with a message.
//! Not here: every call with every answer (`conform.rs`), the rewriting of texts (`crates/abi`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::compile::compile;
use sojourn_system::{Admin, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const MOVES: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// Name, C compiler and option of each way to link a program.
const LINKED: [(&str, &str, &str); 4] = [
    ("static", "cc", "-static"),
    ("static-pie", "cc", "-static-pie"),
    ("musl-static", "musl-gcc", "-static"),
    ("musl", "musl-gcc", "-pie"),
];

fn made(program: &str, sources: &[&str], linked: (&str, &str, &str)) -> Option<PathBuf> {
    let (name, compiler, option) = linked;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}-{name}"));
    let options = ["-g", "-w", "-pthread", option];
    if compiler == "cc" {
        compile(&path, sources, &options).unwrap();
        return Some(path);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let sources = sources.iter().map(|file| folder.join(file));
    let mut command = Command::new(compiler);
    command.arg("-O1").args(options).arg("-o").arg(&path).args(sources);
    match command.status() {
        Ok(status) => assert!(status.success(), "{program} does not compile with {compiler}"),
        Err(error) => {
            eprintln!("skipped: {program} of musl: {compiler}: {error}");
            return None;
        }
    }
    Some(path)
}

/// Runs a program under Sojourn; returns its output.
fn under(program: &Path, words: &[&str]) -> String {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("LOAD", "on");
    let mut command = sandbox.command(Mode::Sojourn, program);
    command.args(words);
    let what = format!("{} {words:?}", program.display());
    let said = Running::start(command).unwrap().finish(PATIENCE * 2).unwrap();
    said.success(&what).unwrap()
}

/// Returns true if this kernel can trap the calls of one range of addresses
/// (`PR_SYS_DISPATCH_INCLUSIVE_ON`).
fn traps() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(17))
}

/// Runs one case of `c/abi`, linked in every way.
fn case(name: &str) {
    for linked in LINKED {
        let Some(program) = made(&format!("abi-{name}"), &["abi/abi.c"], linked) else { continue };
        // One call of the program cannot be rewritten, so it is loaded only where the kernel traps
        // calls.
        let says = under(&program, &["loaded"]);
        assert!(says == "loaded\n" || !traps(), "{linked:?}: {says}");
        under(&program, &[name]);
    }
}

#[test]
fn a_program_starts_as_it_would() {
    case("start");
}

#[test]
fn the_break_is_its_own() {
    case("memory");
}

#[test]
fn threads_have_their_storage_and_leave_their_locks() {
    case("threads");
}

/// Makers of such threads do not wait for them.
#[test]
fn threads_that_end_at_once_have_the_numbers_that_were_told() {
    for linked in LINKED {
        let Some(program) = made("abi-bare", &["abi/bare.c"], linked) else { continue };
        under(&program, &[]);
    }
}

#[test]
fn the_first_thread_may_end_first() {
    case("first");
}

#[test]
fn children_of_every_kind() {
    case("children");
}

#[test]
fn signals_in_the_middle_of_calls() {
    case("signals");
}

#[test]
fn handlers_may_jump_out() {
    case("jumps");
}

#[test]
fn vector_registers_survive_calls() {
    case("vectors");
}

#[test]
fn flags_survive_calls() {
    case("flags");
}

/// A program that compares its code with a checksum would end if that were rewritten.
#[test]
fn programs_that_test_their_integrity_run_plainly() {
    for linked in &LINKED[..2] {
        let program = made("abi-integrity", &["abi/integrity.c"], *linked).unwrap();
        assert_eq!(under(&program, &[]), "whole\n", "{linked:?}");
    }
}

/// Tests calls that cannot be rewritten. Where the kernel cannot trap them, the program runs
/// plainly.
#[test]
fn calls_that_cannot_be_rewritten_are_made() {
    case("trapped");
}

/// Tests static children of a dynamic program.
#[test]
fn static_children_of_a_dynamic_program_are_loaded() {
    let Some(program) = made("abi-child", &["abi/abi.c"], LINKED[0]) else { return };
    let program = program.to_str().unwrap();
    assert_eq!(under(Path::new("sh"), &["-c", "\"$0\" loaded", program]), "loaded\n");
    assert_eq!(under(Path::new("env"), &[program, "loaded"]), "loaded\n");
    let spawned = "import os, sys; p = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); os.waitpid(p, 0)";
    assert_eq!(under(Path::new("python3"), &["-c", spawned, program, "loaded"]), "loaded\n");
}

/// Recalls all sessions until `MOVES` streams were made; then tells the programs to end.
fn until_moved(admin: &mut Admin, end: &Path, running: &mut Running, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    let mut moves = 0;
    while moves < MOVES && Instant::now() < deadline {
        assert!(running.is_running(), "{what}: ended early");
        std::thread::sleep(Duration::from_millis(1));
        admin.recall_all().unwrap();
        moves = admin.moves().unwrap().joins;
    }
    let why: Vec<_> = admin.refused().unwrap().iter().map(|refused| refused.reason).collect();
    std::fs::write(end, "").unwrap();
    assert!(moves >= MOVES, "{what}: {moves} moves: {why:?}");
}

/// With the default settings.
#[test]
fn sessions_of_static_programs_move_with_their_descriptors() {
    for linked in LINKED {
        let Some(program) = made("beside", &["beside/beside.c"], linked) else { continue };
        for kind in ["pair", "unix"] {
            let mut sandbox = Sandbox::new().unwrap();
            sandbox.set("MOVE_AFTER_CALLS", "4");
            let mut admin = Admin::new(&sandbox).unwrap();
            let end = sandbox.folder().join("end");
            let mut command = sandbox.command(Mode::Sojourn, &program);
            command.args([kind, "17", "4", "until"]).arg(&end);
            let mut running = Running::start(command).unwrap();
            let what = format!("{kind} {linked:?}");
            until_moved(&mut admin, &end, &mut running, &what);
            running.finish(LIMIT).unwrap().success(&what).unwrap();
        }
    }
}

/// Builds Go's program, linked by Go alone or with the C library; returns `None` if there is no Go.
fn go_program(cgo: bool) -> Option<PathBuf> {
    static MADE: [OnceLock<Option<PathBuf>>; 2] = [const { OnceLock::new() }; 2];
    let make = || {
        let name = if cgo { "go-abi-cgo" } else { "go-abi" };
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
        let go = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| {
            Command::new(go).arg("version").output().is_ok_and(|output| output.status.success())
        });
        let Some(go) = go else {
            eprintln!("skipped: no Go (golang-go)");
            return None;
        };
        let mut build = Command::new(go);
        build.args(["build", "-trimpath", "-o"]).arg(&program).arg(".").current_dir(folder);
        build.env("CGO_ENABLED", if cgo { "1" } else { "0" });
        build.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
        build.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
        assert!(build.status().unwrap().success(), "the Go program does not compile");
        Some(program)
    };
    MADE[usize::from(cgo)].get_or_init(make).clone()
}

#[test]
fn go_programs_run() {
    for cgo in [false, true] {
        let Some(program) = go_program(cgo) else { return };
        for what in ["goroutines", "threads", "children", "signals"] {
            under(&program, &[what]);
        }
    }
}

/// With the default settings.
#[test]
fn sessions_of_go_programs_move() {
    for (cgo, network) in [(false, "unix"), (false, "tcp"), (true, "unix"), (true, "tcp")] {
        let Some(program) = go_program(cgo) else { return };
        let mut sandbox = Sandbox::new().unwrap();
        sandbox.set("MOVE_AFTER_CALLS", "4");
        let mut admin = Admin::new(&sandbox).unwrap();
        let address_file = sandbox.folder().join("address");
        let end = sandbox.folder().join("end");
        let mut serve = sandbox.command(Mode::Sojourn, &program);
        serve.args(["serve", network]).arg(&address_file);
        let _serving = Running::start(serve).unwrap();
        let begun = Instant::now();
        while !address_file.exists() {
            assert!(begun.elapsed() < PATIENCE, "nobody listens");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut ask = sandbox.command(Mode::Sojourn, &program);
        ask.args(["ask", network]).arg(&address_file).arg(&end);
        let mut asking = Running::start(ask).unwrap();
        let what = format!("Go, {network}, {}", if cgo { "cgo" } else { "static" });
        until_moved(&mut admin, &end, &mut asking, &what);
        asking.finish(LIMIT).unwrap().success(&what).unwrap();
    }
}
