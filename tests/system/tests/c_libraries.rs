//! Tests of programs of other Debian releases, in root folders with those releases' C libraries:
//! they run under Sojourn, their sessions move, and every byte is compared.
//!
//! `cargo xtask test` fetches the releases (`xtask/src/c_libraries.rs`). The tests need root,
//! because only root may change the root folder. Not here: the symbols that the library needs
//! (`linking.rs` of `sojourn-preload`), C libraries other than glibc (`addresses.rs`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const QUESTIONS: &str = "5000";
/// How long the asking end goes on after them until its session is away, in seconds.
const MORE_S: &str = "30";

/// Returns the root folders of the releases that have been fetched.
fn releases() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/c-libraries");
    let found = fs::read_dir(all).into_iter().flatten().flatten();
    found.map(|entry| entry.path().join("root")).filter(|root| root.exists()).collect()
}

/// A sandbox whose folder is a root folder, so that the server's socket is in it.
struct Root(Sandbox);

impl Root {
    fn new(release: &Path) -> Self {
        let sandbox = Sandbox::new().unwrap();
        let folder = sandbox.folder();
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(release.join(".")).arg(folder);
        assert!(copy.status().unwrap().success(), "{}", release.display());
        fs::create_dir_all(folder.join("proc")).unwrap();
        fs::create_dir_all(folder.join("dev")).unwrap();
        fs::write(folder.join("dev/null"), "").unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/echo.pl");
        fs::copy(script, folder.join("echo.pl")).unwrap();
        let library = sandbox.built().path("libsojourn_preload.so");
        fs::copy(library, folder.join("preload.so")).unwrap();
        Self(sandbox)
    }

    /// Returns a command for `echo.pl` with arguments, in the root folder, in a mount name space
    /// that has `/proc` and `/dev/null`.
    fn echo(&self, mode: Mode, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        let script = "mount -t proc proc \"$0/proc\" && mount --bind /dev/null \"$0/dev/null\" \
                      && exec chroot \"$0\" \"$@\"";
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(["--mount", "sh", "-c", script]).arg(self.0.folder()).arg("/usr/bin/perl");
        if mode == Mode::Sojourn {
            // Set by the script itself, so that `unshare` and `chroot`, which are the host's
            // programs, do not load the library.
            // Not measured: a session that is slower away, as any may be on a busy machine, would
            // be in the kernel at the end.
            let preloaded = "@ENV{qw(LD_PRELOAD SOJOURN_SERVER)} = splice(@ARGV, 0, 2); \
                             $ENV{SOJOURN_MEASURE_BULK} = 'off'; exec @ARGV";
            command.args(["-e", preloaded, "/preload.so", "/server", "/usr/bin/perl"]);
        }
        command.arg("/echo.pl").args(words);
        command
    }

    /// Runs both ends; returns the last output of the asking end.
    fn exchange(&self, mode: Mode) -> String {
        let socket = self.0.folder().join("socket");
        let _ = fs::remove_file(&socket);
        let mut server = Running::start(self.echo(mode, &["serve", "/socket"])).unwrap();
        let begun = Instant::now();
        while !socket.exists() {
            assert!(server.is_running() && begun.elapsed() < PATIENCE, "nobody listens");
            std::thread::sleep(Duration::from_millis(5));
        }
        let more = if mode == Mode::Sojourn { MORE_S } else { "0" };
        let client = Running::start(self.echo(mode, &["ask", "/socket", QUESTIONS, more])).unwrap();
        let output = client.finish(PATIENCE).unwrap().success("ask").unwrap();
        server.finish(PATIENCE).unwrap().success("serve").unwrap();
        output
    }
}

#[test]
fn sessions_move_with_older_and_newer_c_libraries() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let releases = releases();
    if releases.is_empty() {
        eprintln!("skipped: no other release has been fetched");
    }
    for release in releases {
        let root = Root::new(&release);
        assert_eq!(root.exchange(Mode::Plain).trim(), "kernel", "{}", release.display());
        assert_eq!(root.exchange(Mode::Sojourn).trim(), "away", "{}", release.display());
    }
}
