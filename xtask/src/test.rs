//! `cargo xtask test`: all checks, in the order in which they are likely to fail.

use crate::again::Extent;
use crate::idle::IdleGroup;
use crate::packages::{TEST, ensure, ensure_component, ensure_go};
use crate::steps::{self, cargo};
use crate::{
    aarch64, again, build, c_libraries, columns, deny, forks, fuzz, layers, lengths, pages,
    signatures,
};
use anyhow::{Result, anyhow, bail};
use std::process::Command;

/// The way in which a step runs: [`steps::run`], or beside other steps.
type Run<'r> = &'r dyn Fn(&str, &mut Command) -> Result<()>;

/// Runs cargo on the crates that have models (loom), built as models.
fn models(run: Run<'_>, what: &str, words: &[&str]) -> Result<()> {
    let mut loom = cargo(words);
    loom.args(["-p", "sojourn-shm", "-p", "sojourn-stream", "--tests"]);
    // The flag changes every crate, so the models have a target folder of their own; in the usual
    // folder they would replace all other builds.
    loom.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom");
    run(what, &mut loom)
}

/// Runs the checks that run no code of the project's programs: format, layers, columns, forks,
/// lengths, signatures, pages, licences, lints, documentation.
pub(crate) fn lint() -> Result<()> {
    lint_text()?;
    lint_code(&steps::run)
}

/// Runs the checks of the text, which take seconds.
fn lint_text() -> Result<()> {
    ensure_component("rustfmt", &["fmt", "--version"])?;
    steps::run("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    eprintln!("── layers");
    layers::check()?;
    eprintln!("── columns");
    columns::check()?;
    eprintln!("── forks");
    forks::check()?;
    eprintln!("── lengths");
    lengths::check()?;
    eprintln!("── signatures");
    signatures::check()?;
    eprintln!("── pages");
    pages::check()?;
    eprintln!("── licences, sources, advisories");
    deny::check()
}

/// Runs the checks by the compiler, which take minutes.
fn lint_code(run: Run<'_>) -> Result<()> {
    ensure_component("clippy", &["clippy", "--version"])?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run("lints", &mut cargo(&clippy))?;
    // Another set of modules than that of the lints: one that is missing would fail last of all.
    models(run, "models, checked", &["check"])?;
    // A workspace of its own, with a lock of its own, which nothing else compiles on stable Rust.
    let fuzz = ["check", "--manifest-path", fuzz::MANIFEST, "--locked"];
    // In the target folder of this workspace, which has most of the dependencies already.
    run("fuzz targets, checked", cargo(&fuzz).env("CARGO_TARGET_DIR", "target"))?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    run("documentation", docs.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs the checks; the whole of them has the slow tests, the models, the build for AArch64, and a
/// short run of the benchmarks.
pub(crate) fn run(extent: Extent) -> Result<()> {
    prepare()?;
    lint_text()?;
    // The slow tests wait for a half of their time, in which the compiler has the processors.
    let idle = if extent == Extent::Whole { IdleGroup::make() } else { None };
    if idle.is_none() {
        lint_code(&steps::run)?;
    }
    // The tests of the C interface and of the whole system run the release build.
    build::everything()?;
    // Documentation examples run first. Some later tests build single packages into the same
    // folder, which replaces libraries that are also built for C by builds with which the examples
    // cannot be linked.
    let examples = ["test", "--workspace", "--doc"];
    steps::run("examples in the documentation", &mut cargo(&examples))?;
    let programs = again::build()?;
    let unsure = match idle {
        Some(idle) => beside(&idle, || again::tests(extent, programs))?,
        None => {
            let unsure = again::tests(extent, programs)?;
            if extent == Extent::Whole {
                compile(&steps::run)?;
            }
            unsure
        }
    };
    if extent == Extent::Whole {
        build::bench_smoke()?;
    }
    again::report(&unsure);
    eprintln!("── all checks passed");
    Ok(())
}

/// Compiles what no test needs: the models, which run, and the build for AArch64.
fn compile(run: Run<'_>) -> Result<()> {
    models(run, "models (loom)", &["test", "--release"])?;
    aarch64::build_if_possible(run)
}

/// Runs the tests and, while these wait, what only the compiler has to do. Tests that build
/// something use the release build's folder, which that leaves alone.
fn beside(idle: &IdleGroup, tests: impl FnOnce() -> Result<Vec<String>>) -> Result<Vec<String>> {
    let aside =
        |what: &str, command: &mut Command| steps::run_aside(what, &mut idle.enclose(command));
    let (tested, compiled) = std::thread::scope(|scope| {
        let compiled = scope.spawn(|| {
            lint_code(&aside)?;
            compile(&aside)
        });
        let tested = tests();
        (tested, compiled.join().unwrap_or_else(|_| Err(anyhow!("the checks aside panicked"))))
    });
    match (tested, compiled) {
        // Both are told: who mends one should know of the other.
        (Err(tests), Err(checks)) => bail!("{tests:#}; {checks:#}"),
        (tested, compiled) => compiled.and(tested),
    }
}

/// Runs the tests alone.
pub(crate) fn tests() -> Result<()> {
    prepare()?;
    build::everything()?;
    again::report(&again::tests(Extent::Whole, again::build()?)?);
    Ok(())
}

/// Installs what the tests need.
fn prepare() -> Result<()> {
    ensure(TEST)?;
    ensure_go()?;
    c_libraries::fetch();
    Ok(())
}
