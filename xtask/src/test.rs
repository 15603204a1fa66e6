//! `cargo xtask test`: every check there is, in the order in which they are likely to fail.

use crate::packages::{TEST, ensure, ensure_component, ensure_go};
use crate::steps::{self, cargo};
use crate::{again, build, c_libraries, columns, deny, layers, pages};
use anyhow::Result;

fn models() -> Result<()> {
    let mut loom =
        cargo(&["test", "--release", "-p", "sojourn-shm", "-p", "sojourn-stream", "--tests"]);
    // A folder of its own: the flag changes every crate, and would throw away the other builds.
    loom.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom");
    steps::run("models (loom)", &mut loom)
}

/// The checks that run nothing of the project's.
pub(crate) fn lint() -> Result<()> {
    ensure_component("rustfmt", &["fmt", "--version"])?;
    ensure_component("clippy", &["clippy", "--version"])?;
    run_step("format", &["fmt", "--all", "--check"])?;
    eprintln!("── layers");
    layers::check()?;
    eprintln!("── columns");
    columns::check()?;
    eprintln!("── pages");
    pages::check()?;
    eprintln!("── licences, sources, advisories");
    deny::check()?;
    run_step("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    steps::run("documentation", docs.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs the checks; without `all` only those that a change is likely to break.
pub(crate) fn run(all: bool) -> Result<()> {
    ensure(TEST)?;
    ensure_go()?;
    c_libraries::fetch();
    lint()?;
    // The C interface and whole-system tests run what ships.
    build::everything()?;
    // First: some tests have packages built by themselves, into the same folder, and what is then
    // there of the libraries that are also built for C no longer fits what examples in the
    // documentation are linked with.
    run_step("examples in the documentation", &["test", "--workspace", "--doc"])?;
    // Of libraries and programs those that have tests: `--bins` would also run what has none.
    let words = ["--workspace", "--tests", "--examples"];
    let unsure = again::tests("tests", &words)?;
    if all {
        models()?;
        build::bench_smoke()?;
    }
    again::report(&unsure);
    eprintln!("── all checks passed");
    Ok(())
}

fn run_step(what: &str, words: &[&str]) -> Result<()> {
    steps::run(what, &mut cargo(words))
}
