//! `cargo xtask`: the project's own build, test, demonstration and benchmark steps.
//!
//! Every step that a person or the continuous integration does to the whole tree is one of these
//! commands, so that both do the same. Each command installs the Debian packages that it needs, and
//! prints this. Not here: steps that cargo does alone. Read CONTRIBUTING.md first.

mod aarch64;
mod again;
mod build;
mod c_libraries;
mod columns;
mod demo;
mod deny;
mod forks;
mod fuzz;
mod globals;
mod layers;
mod lengths;
mod memory;
mod modules;
mod packages;
mod pages;
mod performance;
mod programs;
mod queue;
mod redis;
mod sanitize;
mod signatures;
mod steps;
mod test;
mod test_programs;
mod test_targets;
mod torture;

use anyhow::{Result, bail};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  demo              build, then run Redis and redis-benchmark plain and under Sojourn, in turn, and
                    print the comparison
  demo ipc          build, then run a C client against a Rust server over Sojourn IPC and over a
                    Unix socket, and print the ratio
  test              every check there is: format, lints, tests, models, documentation,
                    layers, columns, lengths, signatures, pages, licences
  test --quick      the same without slow tests, models and AArch64
  test --tests      only the tests, with the release build that they run
  aarch64           build everything for AArch64 (a part of test), and run the tests that an
                    emulator can run
  lint              the checks that run nothing: format, layers, columns, lengths,
                    signatures, pages, licences, lints, documentation
  pages             the check of the pages alone: links, a section for every reason, a row for every
                    setting
  deny              the check of dependencies alone: licences, sources and, with cargo-deny
                    installed, advisories, by deny.toml
  signatures        only the check that no signature has a tuple or more than five parameters
  layers            only the check that dependencies and imports point one way
  layers PACKAGE    show every import that is part of a circle within a package
  build             leave every shipped program and library in target/release
  install [--prefix DIR]
                    build, then copy programs, libraries, headers, man pages and completions
                    (default /usr/local; DESTDIR is honoured)
  bench copies|ipc|idl|doors|local|net|udp|buffers [OPTIONS]
                    measure, print a table and write it as JSON; OPTIONS go to the benchmark
  papers [--quick] [--table TABLE]... [--html FILE] [--drawing FILE]
                    measure every table of the papers that Sojourn answers and write a page with
                    today's rows beside the published ones (a quarter of an hour at most)
  bench --check     compile and lint the benchmarks with every rival
  performance FILE...
                    write docs/use/performance.md and its drawing from the JSON of full benchmark
                    runs on one machine
  programs [--only NAME]... [--jobs N] [--json FILE]
                    run real programs plainly, under Sojourn and with eager moves, compare what they
                    do, and write docs/use/programs.md; with names only these, and a table
  torture [--minutes N] [--seed S] [--episodes N] [--json FILE]
                    kill, stop, starve and move everything at once while programs check every byte,
                    and print what was done and found; by default for ten minutes from seed 1
  fuzz TARGET [SECONDS] | --all SECONDS
                    run a fuzz target, or each for so long (needs a nightly tool chain and
                    cargo-fuzz; without them all run on stable Rust, blindly)
  fuzz --keep       put what was found that reaches something new into fuzz/corpus, minimised
  sanitize [address|thread [PACKAGE]...]
                    run unit tests under the address and the thread sanitizer (needs a nightly tool
                    chain with rust-src)
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    std::env::set_current_dir(root()?)?;
    match words.as_slice() {
        ["demo"] => redis::run_demo(),
        ["demo", "ipc"] => demo::run_demo(),
        ["test"] => test::run(again::Extent::Whole),
        ["test", "--quick"] => test::run(again::Extent::Quick),
        ["test", "--tests"] => test::tests(),
        ["aarch64"] => aarch64::check(),
        ["lint"] => test::lint(),
        ["pages"] => pages::check(),
        ["deny"] => deny::check(),
        ["signatures"] => signatures::check(),
        ["layers"] => layers::check(),
        ["layers", package] => layers::show(package),
        ["build"] => build::build(),
        ["install"] => build::install("/usr/local"),
        ["install", "--prefix", prefix] => build::install(prefix),
        ["bench", "--check"] => build::check_bench(),
        ["bench", rest @ ..] if !rest.is_empty() => build::bench(rest),
        ["papers", rest @ ..] => build::papers(rest),
        ["performance", files @ ..] => performance::write(files),
        ["programs", rest @ ..] => programs::programs(rest),
        ["torture", rest @ ..] => torture::torture(rest),
        ["fuzz", rest @ ..] if !rest.is_empty() => fuzz::fuzz(rest),
        ["sanitize", rest @ ..] => sanitize::sanitize(rest),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("no such command: {}\n\n{HELP}", other.join(" ")),
    }
}

/// Returns the workspace's directory, whatever directory the command was called from.
fn root() -> Result<std::path::PathBuf> {
    let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    match manifest.parent() {
        Some(root) => Ok(root.to_path_buf()),
        None => {
            bail!("{}: the workspace is not where it was when xtask was built", manifest.display())
        }
    }
}
