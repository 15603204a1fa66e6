//! Runs all tests, and the failed ones once more, alone and one at a time.
//!
//! Many tests run real programs on two processors that other programs use too. A test that fails
//! twice fails. A test that passes the second time is *unsure* and is named at the very end, so
//! that its cause can be found: one failure in hundreds of runs does not stop all other work. If
//! many tests fail, nothing is run again. Not here: the list of tests (`test`).

use crate::steps::cargo;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Largest number of failed test programs for a second run.
const PROGRAMS_MAX: usize = 5;
/// Largest number of failed tests for a second run.
const TESTS_MAX: usize = 10;
/// Time without output, after cargo has ended, after which no more output is expected from
/// processes that it started.
const QUIET: Duration = Duration::from_secs(2);

/// The part of cargo's output about one test program.
#[derive(Debug, Default, PartialEq, Eq)]
struct Program {
    /// The name that cargo prints: a path.
    name: String,
    failed: Vec<String>,
    /// True if the program ended in the ordinary way and every test passed.
    is_well: bool,
}

/// Cargo's output of a run of several test programs.
#[derive(Debug, Default)]
struct Outcome {
    programs: Vec<Program>,
    /// The arguments with which cargo runs the failed programs again, in the same order.
    to_rerun: Vec<Vec<String>>,
}

/// A program whose tests are run again.
#[derive(Debug)]
struct Rerun<'a> {
    /// Cargo's arguments.
    arguments: &'a [String],
    /// The tests that failed; none means all of the program.
    program: &'a Program,
}

impl Outcome {
    /// Reads the next line.
    fn take(&mut self, line: &str) {
        let line = line.trim();
        if let Some(running) = line.strip_prefix("Running ")
            && let Some((name, _)) = running.rsplit_once(" (")
        {
            self.programs.push(Program { name: name.into(), ..Program::default() });
        } else if let Some(words) = line.strip_prefix('`').and_then(|line| line.strip_suffix('`'))
            && words.starts_with("-p ")
        {
            self.to_rerun.push(words.split(' ').map(String::from).collect());
        } else if let Some(program) = self.programs.last_mut() {
            if let Some(test) = line.strip_prefix("test ")
                && let Some(test) = test.strip_suffix(" ... FAILED")
            {
                program.failed.push(test.into());
            }
            program.is_well |= line.starts_with("test result: ok.");
        }
    }

    /// Returns the failed programs, if a second run is sensible.
    fn worth_another(&self) -> Option<Vec<Rerun<'_>>> {
        let failed: Vec<_> = self.programs.iter().filter(|program| !program.is_well).collect();
        let tests: usize = failed.iter().map(|program| program.failed.len()).sum();
        let fits = failed.len() == self.to_rerun.len()
            && (1..=PROGRAMS_MAX).contains(&failed.len())
            && tests <= TESTS_MAX;
        let all = self.to_rerun.iter().zip(failed);
        fits.then(|| all.map(|(arguments, program)| Rerun { arguments, program }).collect())
    }
}

/// Runs `cargo test` with `words`, shows its output and reads it. Returns true if it passed.
fn run(words: &[&str], outcome: &mut Outcome) -> Result<bool> {
    // One pipe for both outputs, because the name of the program that a line is about is on the
    // other stream.
    let (reader, writer) = std::io::pipe().context("no pipe")?;
    let mut command = cargo(words);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", threads().to_string());
    }
    command.stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    let mut child = command.spawn().context("cannot run cargo")?;
    // The command holds the pipe's writing end, which would keep the pipe from ending.
    drop(command);
    let (sender, lines) = channel();
    std::thread::spawn(move || pass_on(reader, &sender));
    loop {
        match lines.recv_timeout(QUIET) {
            Ok(line) => {
                std::io::stdout().write_all(&line)?;
                outcome.take(&String::from_utf8_lossy(&line));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // A process that a test has left behind may hold the pipe open for ever.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(child.wait()?.success())
}

/// Returns how many tests of one program run at once. Whole-system tests wait for much of their
/// time, a half to two thirds of it on two processors, so there is one for every two processors
/// beyond their number.
fn threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors + processors.div_ceil(2)
}

/// Sends each line on; the pipe may never end.
fn pass_on(from: impl Read, to: &Sender<Vec<u8>>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        if to.send(core::mem::take(&mut line)).is_err() {
            return;
        }
    }
}

/// Runs the tests that `words` name. Returns the tests that passed only the second time.
pub(crate) fn tests(what: &str, words: &[&str]) -> Result<Vec<String>> {
    eprintln!("── {what}");
    let start = Instant::now();
    let mut outcome = Outcome::default();
    let first = [&["test", "--no-fail-fast"], words].concat();
    let mut unsure = Vec::new();
    if !run(&first, &mut outcome)? {
        let Some(again) = outcome.worth_another() else { bail!("{what}: failed") };
        for Rerun { arguments, program } in again {
            unsure.extend(run_again(arguments, program)?);
        }
    }
    eprintln!("   {what}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(unsure)
}

fn run_again(target: &[String], program: &Program) -> Result<Vec<String>> {
    let Program { name, failed, .. } = program;
    eprintln!("── once more, alone: {name}: {}", failed.join(", "));
    let mut words = vec!["test"];
    words.extend(target.iter().map(String::as_str));
    words.extend(["--", "--test-threads=1", "--exact"]);
    words.extend(failed.iter().map(String::as_str));
    if !run(&words, &mut Outcome::default())? {
        bail!("{name}: failed twice: {}", failed.join(", "));
    }
    if failed.is_empty() {
        return Ok(vec![format!("{name} as a whole")]);
    }
    Ok(failed.iter().map(|test| format!("{name}: {test}")).collect())
}

/// Prints the tests that passed only the second time.
pub(crate) fn report(unsure: &[String]) {
    if !unsure.is_empty() {
        eprintln!("── unsure, passed only when run once more (please find out why):");
        unsure.iter().for_each(|test| eprintln!("   {test}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
     Running unittests src/lib.rs (target/debug/deps/sojourn_lab-1)

running 1 test
test net::ends ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/network.rs (target/debug/deps/network-2)

running 2 tests
test one ... ok
test two ... FAILED

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p sojourn-system --test network`
     Running tests/users.rs (target/debug/deps/users-3)

running 1 test
error: test failed, to rerun pass `-p sojourn-system --test users`

Caused by:
  process didn't exit successfully: `users-3` (signal: 6, SIGABRT: process abort signal)
error: 2 targets failed:
    `-p sojourn-system --test network`
    `-p sojourn-system --test users`
";

    fn outcome(printed: &str) -> Outcome {
        let mut outcome = Outcome::default();
        printed.lines().for_each(|line| outcome.take(line));
        outcome
    }

    #[test]
    fn what_failed_is_found_with_how_to_run_it() {
        let outcome = outcome(PRINTED);
        let again = outcome.worth_another().expect("two programs failed");
        let [Rerun { arguments: network, program: one }, Rerun { arguments: users, program: all }] =
            again[..]
        else {
            panic!("{again:?}")
        };
        assert_eq!(network, ["-p", "sojourn-system", "--test", "network"]);
        assert_eq!(one.failed, ["two"]);
        // The program died, so no single test is known to have failed.
        assert_eq!(users, ["-p", "sojourn-system", "--test", "users"]);
        assert!(all.failed.is_empty());
    }

    #[test]
    fn nothing_is_run_again_where_much_fails_or_nothing_was_run() {
        assert!(outcome("error: could not compile `sojourn-ipc`\n").worth_another().is_none());
        let failed = "test a ... FAILED\n".repeat(TESTS_MAX + 1);
        let printed = PRINTED.replace("test two ... FAILED\n", &failed);
        assert!(outcome(&printed).worth_another().is_none());
        // The lists do not agree, so the output was misread.
        let printed = PRINTED.replace("    `-p sojourn-system --test users`\n", "");
        assert!(outcome(&printed).worth_another().is_none());
    }
}
