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
    // `--tests` selects targets that have tests. `--bins` and `--examples` would also build the
    // test harness of targets without tests, and that of an example that interposes C functions
    // (`crates/bench/examples`) crashes.
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
    /// the given names.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn run(&self, threads: usize, only: &[String]) -> Result<Outcome> {
        let mut command = Command::new(&self.path);
        if !only.is_empty() {
            command.arg("--exact").args(only);
        }
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", threads.to_string());
        }
        supervise(command).with_context(|| self.name.clone())
    }
}

/// Runs a command to its end and keeps what it prints.
fn supervise(mut command: Command) -> Result<Outcome> {
    let start = Instant::now();
    // One pipe for both outputs keeps their order.
    let (reader, writer) = std::io::pipe().context("no pipe")?;
    command.stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    let mut child = command.spawn().context("cannot be run")?;
    // The command holds the pipe's writing end, which would keep the pipe from ending.
    drop(command);
    let (sender, chunks) = channel();
    std::thread::spawn(move || pass_on(reader, &sender));
    let mut output = collect(&chunks, &mut child)?;
    let status = child.wait()?;
    if !status.success() {
        output.extend_from_slice(format!("{status}\n").as_bytes());
    }
    let failed = failed(&String::from_utf8_lossy(&output));
    Ok(Outcome { failed, is_well: status.success(), output, time: start.elapsed() })
}

/// Collects what a program prints until it has ended; kills a program that hangs.
fn collect(chunks: &Receiver<Vec<u8>>, child: &mut Child) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    let mut last = Instant::now();
    loop {
        match chunks.recv_timeout(QUIET) {
            Ok(chunk) => {
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
    fn a_program_ends_although_another_process_holds_its_pipe() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 30 & echo $!; exit 3"]);
        let outcome = supervise(shell).expect("a shell");
        assert!(!outcome.is_well && outcome.failed.is_empty());
        assert!(outcome.time < Duration::from_secs(25), "it waited for the sleeping process");
        let printed = String::from_utf8(outcome.output).expect("text");
        let sleeper = printed.lines().next().expect("a process number");
        assert!(Command::new("kill").arg(sleeper).status().expect("kill").success());
    }
}
