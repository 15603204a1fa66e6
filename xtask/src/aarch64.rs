//! `cargo xtask aarch64`: everything is built for AArch64 on a machine of another kind, and the
//! tests that an emulator of programs can run are run there.
//!
//! The emulator, qemu-user, translates a program's instructions and passes its system calls on to
//! this machine's kernel. What such a test says is that the code is right for the other
//! processor, not that it is right for that kernel. On an AArch64 machine the step does nothing:
//! the other checks are AArch64's own there. Read `docs/understand/testing.md` first.

use crate::packages::{self, AARCH64, EMULATOR, ensure_target};
use crate::steps::{ONLY_CHECKED, cargo, command, run};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// True where the other checks are AArch64's own.
const IS_NATIVE: bool = cfg!(target_arch = "aarch64");
const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The linker, which is Debian's C compiler for the other machine.
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// The emulator with the folder of Debian's C library for the other machine.
const RUNNER: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";
/// Crates whose unit tests run under the emulator. Left out are tests that need of the kernel what
/// the emulator does not pass on (`docs/understand/testing.md`).
const UNIT: [&str; 9] =
    ["firewall", "idl", "ipc-rt", "options", "proto", "session", "shm", "stream", "wire"];
/// Other tests that run there: of which crate, and the file.
const WHOLE: [(&str, &[&str]); 2] = [
    ("proto", &["byte_stream", "dialogue", "no_allocation"]),
    ("wire", &["damaged", "golden", "oracle", "properties"]),
];

/// Unit tests that the emulator fails: it passes on neither `sock_diag` nor `F_GETOWNER_UIDS`, and
/// is too slow to take turns in time.
const LEFT_OUT: [&str; 3] = [
    "the_group_of_a_socket_has_a_folder",
    "the_owner_of_a_file_is_read_with_the_users_who_set_it",
    "parking_never_spins_and_spinning_sees_what_is_ready",
];
/// C programs of the preload library's own tests, which must do the same with the library as
/// without. Left out are those that the emulator fails without it, and those that pass addresses
/// without memory: the emulator does not pass on the question by which the library finds out.
/// `storm` fails there now and then.
const PROGRAMS: [&str; 5] = ["io", "signals", "streams", "descriptors", "numbers"];

/// Builds all libraries and programs for AArch64, and runs the tests.
pub(crate) fn check() -> Result<()> {
    prepare()?;
    build()?;
    emulate()
}

/// Builds them where the compilers can be had: a machine without a network has had all other checks
/// by now. The emulator's tests are not part of it, because some of them depend on time.
pub(crate) fn build_if_possible() -> Result<()> {
    match prepare() {
        Ok(()) => build(),
        Err(error) => {
            eprintln!("── AArch64: skipped: {error:#}");
            Ok(())
        }
    }
}

/// Installs the compilers, if this machine is of another kind.
fn prepare() -> Result<()> {
    if IS_NATIVE {
        return Ok(());
    }
    packages::ensure(AARCH64)?;
    ensure_target(TARGET)
}

fn build() -> Result<()> {
    if IS_NATIVE {
        eprintln!("── AArch64: this machine is one");
        return Ok(());
    }
    let words = ["build", "--workspace", "--exclude", ONLY_CHECKED];
    run("build for AArch64", &mut cross(&words))
}

/// Runs the tests that the emulator can run.
fn emulate() -> Result<()> {
    if IS_NATIVE {
        return Ok(());
    }
    if !has_emulator() {
        eprintln!("── tests for AArch64: skipped, for there is no qemu-aarch64 (qemu-user)");
        return Ok(());
    }
    let names = UNIT.map(|package| format!("sojourn-{package}"));
    let mut words = vec!["test", "--lib"];
    words.extend(names.iter().flat_map(|name| ["-p", name]));
    let mut unit = cross(&words);
    unit.arg("--").args(LEFT_OUT.iter().flat_map(|name| ["--skip", name]));
    run("unit tests for AArch64, emulated", &mut unit)?;
    for (package, files) in WHOLE {
        let name = format!("sojourn-{package}");
        let mut words = vec!["test", "-p", &name];
        words.extend(files.iter().flat_map(|file| ["--test", file]));
        run(&format!("tests of {package} for AArch64, emulated"), &mut cross(&words))?;
    }
    PROGRAMS.iter().try_for_each(|name| same(name))
}

/// Builds a C program, and runs it without the preload library and with it: what it prints must be
/// the same.
fn same(name: &str) -> Result<()> {
    let folder = Path::new("target").join(TARGET).join("debug");
    let source = format!("crates/preload/tests/c/{name}.c");
    let program = folder.join(name);
    let words = [LINKER, "-std=gnu17", "-O2", "-w", "-pthread", &source, "-o"];
    run(&format!("{name} for AArch64"), command(&words).arg(&program))?;
    let library = std::path::absolute(folder.join("libsojourn_preload.so"))?;
    let plain = printed(&[], &program)?;
    let with = printed(&["-E", &format!("LD_PRELOAD={}", library.display())], &program)?;
    ensure!(plain == with, "{name}, emulated, prints something else with the preload library");
    Ok(())
}

/// Runs a program under the emulator with these options of the emulator's. Returns what it prints;
/// these programs print to standard error.
fn printed(options: &[&str], program: &Path) -> Result<Vec<u8>> {
    // The programs wait for nothing: who takes a minute hangs.
    let mut words = vec!["timeout", "60"];
    words.extend(RUNNER.split(' '));
    words.extend(options);
    let out = command(&words).arg(program).output().context("the emulator")?;
    let name = program.display();
    ensure!(out.status.success(), "{name} {options:?}, emulated: {}", out.status);
    Ok([out.stdout, out.stderr].concat())
}

/// Returns a Cargo command that builds for AArch64, and runs what it has built under the emulator.
fn cross(words: &[&str]) -> Command {
    let mut command = cargo(words);
    command.args(["--target", TARGET]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER);
    // For build scripts that compile C.
    command.env("CC_aarch64_unknown_linux_gnu", LINKER);
    // Nobody debugs these builds, and without the tables they are done sooner.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    command
}

/// Returns true if the emulator is there, or could be installed.
fn has_emulator() -> bool {
    let runs =
        || command(&["qemu-aarch64", "--version"]).output().is_ok_and(|out| out.status.success());
    if runs() {
        return true;
    }
    if let Err(error) = packages::ensure(EMULATOR) {
        eprintln!("   {error:#}");
    }
    runs()
}
