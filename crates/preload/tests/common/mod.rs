//! Shared parts of the tests: C programs are built, and programs are run with and without the
//! library preloaded.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "each test uses its part")]
#![allow(unsafe_code, reason = "a session of its own for each program")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Builds what is released, and returns the folder. The tests run that, whatever their own profile:
/// unoptimized code takes more stack, and is linked with the compiler's own library, which programs
/// of other C libraries do not find.
pub(crate) fn shipped() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        // The test is in `PROFILE/deps` of the target folder.
        let target = test.ancestors().nth(3).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["ship", "--quiet", "--target-dir"]).arg(target);
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        target.join("release")
    })
}

/// Returns the path of the library under test.
pub(crate) fn library() -> PathBuf {
    shipped().join("libsojourn_preload.so")
}

/// Builds `tests/c/NAME.c`. `user` names the test in the program's file name, because tests run in
/// parallel.
pub(crate) fn build(name: &str, user: &str) -> PathBuf {
    build_with(name, user, &[])
}

/// Builds a program as [`build`] does, with options for the compiler.
pub(crate) fn build_with(name: &str, user: &str, options: &[&str]) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{user}"));
    let status = Command::new("cc")
        // No warnings: these programs do on purpose the things that compilers warn about.
        .args(["-std=gnu17", "-O2", "-g", "-w", "-pthread"])
        .args(options)
        .arg("-o")
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(status.success(), "{name} does not compile");
    program
}

/// Runs a command to its end in a session (setsid(2)) of its own; kills it after a minute. The
/// tests' own session may contain processes that the server may not inspect, and the server does
/// not trust descriptors that such a session inherits.
pub(crate) fn run(mut command: Command) -> Output {
    // SAFETY: setsid is async-signal-safe and accesses no memory of this process.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(60);
        if is_over.recv_timeout(until - Instant::now()).is_err() {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        }
    });
    let out = child.stdout.take().unwrap();
    let err = child.stderr.take().unwrap();
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = from.read_to_end(&mut all);
            all
        })
    };
    let (out, err) = (read(Box::new(out)), read(Box::new(err)));
    let status = child.wait().unwrap();
    let _ = over.send(());
    watchdog.join().unwrap();
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// Returns `command` with the library preloaded.
pub(crate) fn preloaded(mut command: Command) -> Command {
    command.env("LD_PRELOAD", library());
    command
}

/// Runs a C program without and with the library. Both runs must succeed, with the same output.
pub(crate) fn same(name: &str) {
    let program = build(name, "plain");
    same_command(|| Command::new(&program));
}

/// Runs the command of `make` without and with the library. Both runs must succeed, with the same
/// output.
#[track_caller]
pub(crate) fn same_command(make: impl Fn() -> Command) {
    let plain = run(make());
    let with = run(preloaded(make()));
    let text = |output: &Output| {
        format!(
            "{}{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    assert!(plain.status.success(), "plain: {}", text(&plain));
    assert_eq!(text(&plain), text(&with));
}

/// Returns the command that makes every system call that `syscall` serves, by
/// `tests/c/by_number.c`. `how`: where the sessions are, and of which kind they are.
pub(crate) fn by_number(program: &Path, server: &Server, how: [&str; 2]) -> Command {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/syscalls.rs");
    let table = std::fs::read_to_string(table).unwrap();
    let name = |line: &str| Some(line.strip_prefix("    SYS_")?.split_once(" = ")?.0.to_owned());
    let numbers: Vec<String> =
        table.lines().filter_map(name).map(|name| format!("SYS_{name}")).collect();
    assert!(numbers.len() >= 50, "{numbers:?}");
    let mut command = Command::new(program);
    command.args(how).args(&numbers).env("SOJOURN_SERVER", server.address());
    let calls = if how[0] == "away" { "16" } else { "1000000000" };
    command.env("SOJOURN_MOVE_AFTER_CALLS", calls);
    // A session on its way home for a trial has bytes that cannot be read for a moment.
    command.env("SOJOURN_MEASURE_BULK", "off");
    command
}

/// A session server for these tests.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Returns the address at which the server listens.
    pub(crate) fn address(&self) -> PathBuf {
        self.folder.join("server")
    }

    pub(crate) fn signal(&self, name: &str) {
        let number = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &number]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn server(name: &str) -> Server {
    server_with(name, &[])
}

/// Starts a server as [`server`] does, with more options.
pub(crate) fn server_with(name: &str, options: &[&str]) -> Server {
    let folder = std::env::temp_dir().join(format!("sojourn-away-{}-{name}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut child = Command::new(shipped().join("sojournd"))
        .args(["--idle-exit", "120", "--address"])
        .arg(folder.join("server"))
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready"), "{ready}");
    Server { child, folder }
}
