//! The workspace's test programs: building them, naming them, and running one.
//!
//! A program's output is kept until it ends, because several run at once. A program whose tests all
//! stand still is killed: it would keep everybody waiting. Not here: which programs run when, and
//! what happens to a failure (`again`).

use crate::steps::cargo;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Time without any output after which a program counts as hung: no test takes half as long, even
/// on a busy machine.
const HUNG: Duration = Duration::from_secs(600);
/// Time without output, after a program has ended, after which no more output is expected from
/// processes that it started and that hold its pipe open.
const QUIET: Duration = Duration::from_secs(2);

/// A test program that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// `PACKAGE/TARGET`, the package without the project's prefix.
    pub(crate) name: String,
    path: PathBuf,
    /// The package's folder, in which cargo runs tests.
    folder: PathBuf,
}

/// The end of one run of a test program.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Tests that failed. None, if the program itself ended badly.
    pub(crate) failed: Vec<String>,
    /// True if the program ended in the ordinary way and every test passed.
    pub(crate) is_well: bool,
    /// Everything that the program printed, on both streams.
    pub(crate) output: Vec<u8>,
    pub(crate) time: Duration,
}

/// Builds all test programs of the workspace and returns them in cargo's order.
///
/// # Errors
/// If cargo fails, or prints no program.
pub(crate) fn build() -> Result<Vec<TestProgram>> {
    // `--tests` selects the targets that have tests; without it examples (`examples/`) would be
    // built, too.
    let mut words = vec!["test", "--no-run", "--workspace", "--tests"];
    words.push("--message-format=json-render-diagnostics");
    let mut child = cargo(&words).stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let printed = child.stdout.take().context("cargo's output")?;
    let mut programs = Vec::new();
    for line in BufReader::new(printed).lines() {
        programs.extend(read(&line?));
    }
    if !child.wait()?.success() || programs.is_empty() {
        bail!("the tests do not compile");
    }
    Ok(programs)
}

/// Reads a line of cargo's messages. Returns `None` if it is not about a test program.
fn read(line: &str) -> Option<TestProgram> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    // The folder's name is that of the package, without the prefix that all packages have.
    let package = folder.file_name()?.to_str()?;
    let name = format!("{package}/{}", message["target"]["name"].as_str()?);
    Some(TestProgram { name, path: path.into(), folder: folder.into() })
}

impl TestProgram {
    /// Runs the program to its end with `threads` tests at once: all of its tests, or those with
    /// the given names. `tell` is told how many have not ended, whenever that changes.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn run(
        &self,
        threads: usize,
        only: &[String],
        tell: &dyn Fn(usize),
    ) -> Result<Outcome> {
        let mut command = Command::new(&self.path);
        if !only.is_empty() {
            command.arg("--exact").args(only);
        }
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", threads.to_string());
        }
        supervise(command, tell).with_context(|| self.name.clone())
    }
}

/// Runs a command to its end and keeps what it prints.
fn supervise(mut command: Command, tell: &dyn Fn(usize)) -> Result<Outcome> {
    let start = Instant::now();
    // One pipe for both outputs keeps their order.
    let (reader, writer) = std::io::pipe().context("no pipe")?;
    command.stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    let mut child = command.spawn().context("cannot be run")?;
    // The command holds the pipe's writing end, which would keep the pipe from ending.
    drop(command);
    let (sender, chunks) = channel();
    std::thread::spawn(move || pass_on(reader, &sender));
    let mut output = collect(&chunks, &mut child, tell)?;
    let status = child.wait()?;
    if !status.success() {
        output.extend_from_slice(format!("{status}\n").as_bytes());
    }
    let failed = failed(&String::from_utf8_lossy(&output));
    Ok(Outcome { failed, is_well: status.success(), output, time: start.elapsed() })
}

/// Collects what a program prints until it has ended; kills a program that hangs.
fn collect(chunks: &Receiver<Vec<u8>>, child: &mut Child, tell: &dyn Fn(usize)) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    let mut unfinished = Unfinished::default();
    let mut last = Instant::now();
    loop {
        match chunks.recv_timeout(QUIET) {
            Ok(chunk) => {
                if let Some(tests) = unfinished.after(&chunk) {
                    tell(tests);
                }
                output.extend(chunk);
                last = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(output),
            // A process that a test has left behind may hold the pipe open for ever.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => return Ok(output),
            Err(RecvTimeoutError::Timeout) if last.elapsed() >= HUNG => {
                let seconds = HUNG.as_secs();
                output.extend(format!("killed: no test ended for {seconds} s\n").into_bytes());
                child.kill()?;
                last = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Sends each piece of output on; the pipe may never end.
fn pass_on(mut from: impl Read, to: &Sender<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if to.send(buffer[..len].to_vec()).is_err() {
            return;
        }
    }
}

/// The tests that have not ended, by what a test program prints.
#[derive(Default)]
struct Unfinished {
    /// The beginning of a line whose end has not been printed.
    line: Vec<u8>,
    tests: usize,
}

impl Unfinished {
    /// Returns how many tests have not ended after this output, if it says anything about that.
    fn after(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut is_told = false;
        self.line.extend_from_slice(chunk);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.line[..end]).into_owned();
            self.line.drain(..=end);
            let begun = line.strip_prefix("running ").and_then(|rest| {
                rest.split_once(" test").and_then(|(count, _)| count.parse::<usize>().ok())
            });
            let has_ended = line.contains(" ... ") && !line.contains("has been running");
            if let Some(tests) = begun {
                self.tests = tests;
            } else if has_ended {
                self.tests = self.tests.saturating_sub(1);
            } else {
                continue;
            }
            is_told = true;
        }
        is_told.then_some(self.tests)
    }
}

/// Returns the names of the tests that failed, from a test program's output.
fn failed(output: &str) -> Vec<String> {
    let names = output.lines().filter_map(|line| {
        line.trim().strip_prefix("test ")?.strip_suffix(" ... FAILED").map(String::from)
    });
    names.collect()
}

#[cfg(test)]
impl TestProgram {
    /// Returns a test program that is any program.
    pub(crate) fn named(name: &str, path: &str) -> Self {
        Self { name: name.into(), path: path.into(), folder: ".".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_test_program() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/shm/Cargo.toml",
            "target":{"name":"fork"},"profile":{"test":true},"executable":"/x/target/fork-1"}"#;
        let program = read(line).expect("a test program");
        assert_eq!(program.name, "shm/fork");
        assert_eq!(program.path, Path::new("/x/target/fork-1"));
        assert_eq!(program.folder, Path::new("/x/crates/shm"));
        // A library of the workspace has no executable, and an ordinary program is no test.
        assert_eq!(read(&line.replace("\"/x/target/fork-1\"", "null")), None);
        assert_eq!(read(&line.replace("true", "false")), None);
        assert_eq!(read("warning: unused"), None);
    }

    #[test]
    fn failed_tests_are_found_in_the_output() {
        let output = "running 2 tests\ntest one ... ok\ntest two::b ... FAILED\n\nfailures:\n";
        assert_eq!(failed(output), ["two::b"]);
    }

    #[test]
    fn unfinished_tests_are_counted_as_lines_come() {
        let mut unfinished = Unfinished::default();
        assert_eq!(unfinished.after(b"\nrunning 3 te"), None);
        assert_eq!(unfinished.after(b"sts\ntest one ... ok\ntest two .."), Some(2));
        assert_eq!(unfinished.after(b". ignored\ntest three has been running for over"), Some(1));
        assert_eq!(unfinished.after(b" 60 seconds\ntest three ... FAILED\n\nfailures:\n"), Some(0));
    }

    #[test]
    fn a_program_ends_although_another_process_holds_its_pipe() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 30 & echo $!; exit 3"]);
        let outcome = supervise(shell, &|_| ()).expect("a shell");
        assert!(!outcome.is_well && outcome.failed.is_empty());
        assert!(outcome.time < Duration::from_secs(25), "it waited for the sleeping process");
        let printed = String::from_utf8(outcome.output).expect("text");
        let sleeper = printed.lines().next().expect("a process number");
        assert!(Command::new("kill").arg(sleeper).status().expect("kill").success());
    }
}
