//! `cargo xtask sanitize`: unit tests under the address sanitizer and the thread sanitizer of a
//! nightly toolchain.
//!
//! Left out are crates that replace functions of the C library in another program
//! (`sojourn-preload`), and tests that run a release build, which is not instrumented. Without a
//! fitting toolchain the step prints the command that installs one and passes. Not here: tests
//! without a sanitizer (`test`).

use crate::steps::{command, output, run};
use anyhow::{Context, Result, bail};

/// Crates with unsafe code or shared memory, and the crates on which these depend.
const PACKAGES: [&str; 12] = [
    "shm", "ipc-rt", "ipc", "ipc-c", "stream", "wire", "proto", "options", "netif", "firewall",
    "pump", "library",
];
/// Tests that are left out, by a part of their names, each with the reason.
const LEFT_OUT: [(&str, &str); 1] = [(
    "session::progress::tests",
    "hours of simulated progress: arithmetic on one thread, for more than a minute a test",
)];
/// Sanitizers, each with the environment variable for its options and the options. The options end
/// a test at the first race or error.
const SANITIZERS: [(&str, &str, &str); 2] = [
    ("address", "ASAN_OPTIONS", "detect_leaks=0:halt_on_error=1"),
    ("thread", "TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1"),
];

/// Runs the unit tests of some packages, or of all, under one sanitizer or both.
pub(crate) fn sanitize(words: &[&str]) -> Result<()> {
    let (only, packages) = match words {
        [] => (None, PACKAGES.to_vec()),
        [name] if SANITIZERS.iter().any(|(one, ..)| one == name) => {
            (Some(*name), PACKAGES.to_vec())
        }
        [name, packages @ ..] if SANITIZERS.iter().any(|(one, ..)| one == name) => {
            (Some(*name), packages.to_vec())
        }
        other => bail!("sanitize [address|thread [PACKAGE]...]: not {}", other.join(" ")),
    };
    let host = match host() {
        Ok(host) => host,
        Err(error) => {
            eprintln!("   sanitizers need a nightly tool chain with its sources ({error:#}):");
            eprintln!("   rustup toolchain install nightly --component rust-src");
            return Ok(());
        }
    };
    for (name, variable, options) in SANITIZERS {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let names = packages.iter().map(|package| format!("sojourn-{package}"));
        let names: Vec<String> = names.flat_map(|name| ["-p".to_owned(), name]).collect();
        let mut words =
            vec!["cargo", "+nightly", "test", "-Zbuild-std", "--target", &host, "--lib"];
        words.extend(names.iter().map(String::as_str));
        words.push("--");
        for (part, reason) in LEFT_OUT {
            eprintln!("   left out: {part} ({reason})");
            words.extend(["--skip", part]);
        }
        let mut tests = command(&words);
        tests.env("RUSTFLAGS", format!("-Zsanitizer={name}")).env(variable, options);
        // The sanitizer's flag changes every crate, so each sanitizer has a target folder of its
        // own.
        tests.env("CARGO_TARGET_DIR", format!("target/sanitize-{name}"));
        run(&format!("tests, {name} sanitizer"), &mut tests)?;
    }
    Ok(())
}

/// Returns the nightly toolchain's own target triple.
///
/// Fails without the standard library's sources, which `-Zbuild-std` compiles.
fn host() -> Result<String> {
    let about = output(&mut command(&["rustc", "+nightly", "-vV"]))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("no host")?;
    let root = output(&mut command(&["rustc", "+nightly", "--print", "sysroot"]))?;
    let sources = std::path::Path::new(root.trim()).join("lib/rustlib/src/rust/library/std");
    match sources.exists() {
        true => Ok(host.to_owned()),
        false => bail!("{}: not there", sources.display()),
    }
}
