//! `cargo xtask test`: all checks, in the order in which they are likely to fail.

use crate::again::Extent;
use crate::packages::{TEST, ensure, ensure_component, ensure_go};
use crate::steps::{self, Check, ONLY_CHECKED, cargo};
use crate::{
    aarch64, again, build, c_libraries, columns, deny, forks, fuzz, globals, layers, lengths,
    pages, signatures, test_targets,
};
use anyhow::Result;

/// Runs cargo on the crates that have models (loom), built as models.
fn models(what: &str, words: &[&str]) -> Result<()> {
    let mut loom = cargo(words);
    loom.args(["-p", "sojourn-shm", "-p", "sojourn-stream", "--tests"]);
    // The flag changes every crate, so the models have a target folder of their own; in the usual
    // folder they would replace all other builds.
    loom.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom");
    steps::run(what, &mut loom)
}

/// Runs the checks that run no code of the project's programs: format, layers, columns, forks,
/// globals, lengths, signatures, targets, pages, licences, lints, documentation.
pub(crate) fn lint() -> Result<()> {
    ensure_component("rustfmt", &["fmt", "--version"])?;
    ensure_component("clippy", &["clippy", "--version"])?;
    run_step("format", &["fmt", "--all", "--check"])?;
    // The longest first.
    steps::side_by_side(&[
        Check { name: "signatures", run: signatures::check },
        Check { name: "layers", run: layers::check },
        Check { name: "columns", run: columns::check },
        Check { name: "forks", run: forks::check },
        Check { name: "globals", run: globals::check },
        Check { name: "lengths", run: lengths::check },
        Check { name: "targets of tests", run: test_targets::check },
        Check { name: "pages", run: pages::check },
        Check { name: "licences, sources, advisories", run: deny::check },
    ])?;
    run_step("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    // Another set of modules than that of the lints: one that is missing would fail last of all.
    models("models, checked", &["check"])?;
    // A workspace of its own, with a lock of its own, which nothing else compiles on stable Rust.
    let fuzz = ["check", "--manifest-path", fuzz::MANIFEST, "--locked"];
    // In the target folder of this workspace, which has most of the dependencies already.
    steps::run("fuzz targets, checked", cargo(&fuzz).env("CARGO_TARGET_DIR", "target"))?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    steps::run("documentation", docs.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs the checks; the whole of them has the slow tests, the models, and the build for AArch64.
pub(crate) fn run(extent: Extent) -> Result<()> {
    prepare()?;
    lint()?;
    // The tests of the C interface and of the whole system run the release build.
    build::everything()?;
    // Documentation examples run first. Some later tests build single packages into the same
    // folder, which replaces libraries that are also built for C by builds with which the examples
    // cannot be linked.
    // Cargo takes the libraries with `doctest = false`, too, and would build each for that.
    let words = ["test", "--workspace", "--exclude", ONLY_CHECKED, "--doc"];
    run_step("examples in the documentation", &words)?;
    let unsure = again::tests(extent)?;
    if extent == Extent::Whole {
        models("models (loom)", &["test", "--release"])?;
        aarch64::build_if_possible()?;
    }
    again::report(&unsure);
    eprintln!("── all checks passed");
    Ok(())
}

/// Runs the tests alone.
pub(crate) fn tests() -> Result<()> {
    prepare()?;
    build::everything()?;
    again::report(&again::tests(Extent::Whole)?);
    Ok(())
}

/// Installs what the tests need.
fn prepare() -> Result<()> {
    ensure(TEST)?;
    ensure_go()?;
    c_libraries::fetch();
    Ok(())
}

fn run_step(what: &str, words: &[&str]) -> Result<()> {
    steps::run(what, &mut cargo(words))
}
