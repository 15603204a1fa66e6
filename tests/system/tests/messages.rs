//! Tests of Sojourn's messages about missing things: each names the thing, the true cause and the
//! next step.
//!
//! Rights, name spaces and `/proc` are really taken away, which needs root; skipped with a message
//! otherwise. `crates/cli/tests/run.rs` has the messages that need no rights to test.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Built, Running};
use sojourn_system::compile::compile;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// A folder with copies of the programs that every user can run; drop removes it.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !sojourn_lab::net::is_possible() {
            eprintln!("skipped: not root with name spaces");
            return None;
        }
        let folder =
            std::env::temp_dir().join(format!("sojourn-said-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let folder = Self(folder);
        let built = Built::find().unwrap();
        for program in ["sojourn", "sojournd", "libsojourn_preload.so"] {
            std::fs::copy(built.path(program), folder.0.join(program)).unwrap();
        }
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
        Some(folder)
    }

    /// Returns both outputs of a shell line, which finds the programs in `$D`. The words of
    /// `before` start the shell.
    fn says(&self, before: &[&str], line: &str) -> String {
        let mut command = Command::new("setsid");
        command.args(before).args(["sh", "-c", line]).current_dir("/");
        command.env("D", &self.0).env("HOME", "/nonexistent").env_remove("XDG_RUNTIME_DIR");
        command.env_remove("SOJOURN_SERVER");
        let output = Running::start(command).unwrap().finish(PATIENCE).unwrap();
        format!("{}{}", output.out, output.err)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn has(output: &str, all: &[&str]) {
    assert!(all.iter().all(|one| output.contains(one)), "not all of {all:?} in: {output}");
}

#[test]
fn without_proc() {
    let Some(folder) = TestFolder::new("proc") else { return };
    let before = ["unshare", "-m"];
    let output = folder.says(&before, "umount -l /proc; $D/sojourn ss");
    has(&output, &["/proc: No such file", "cannot be seen", "mount /proc"]);
    let output = folder.says(&before, "umount -l /proc; $D/sojourn run --strict true; echo $?");
    has(&output, &["/proc/self/exe", "mount /proc", "125"]);
    let output = folder.says(&before, "umount -l /proc; $D/sojourn doctor");
    has(&output, &["mount /proc here"]);
    let served = "umount -l /proc; timeout 1 $D/sojournd --address @said-$$";
    has(&folder.says(&before, served), &["/proc", "stay in the kernel", "mount /proc"]);
}

#[test]
fn root_of_a_user_namespace() {
    let Some(folder) = TestFolder::new("user") else { return };
    let inside: Vec<&str> =
        ["setpriv"].into_iter().chain(NOBODY).chain(["unshare", "-Ur"]).collect();
    let output = folder.says(&inside, "$D/sojourn server start; echo $?");
    if output.contains("unshare failed") {
        eprintln!("skipped: {output}");
        return;
    }
    has(&output, &["/run/sojourn", "user namespace", "SOJOURN_SERVER=DIR/server", "1\n"]);
    let output = folder.says(&inside, "$D/sojourn doctor");
    assert!(!output.contains("Linux 6.6 attaches"), "rights lack, not a later kernel: {output}");
    has(&output, &["bpf-links", "user namespaces"]);
}

#[test]
fn the_systems_server_without_rights() {
    let Some(folder) = TestFolder::new("system") else { return };
    let nobody: Vec<&str> = ["setpriv"].into_iter().chain(NOBODY).collect();
    let output = folder.says(&nobody, "$D/sojournd --system; echo $?");
    has(&output, &["/run/sojourn", "Only root can serve the whole system", "--user", "1\n"]);
}

#[test]
fn a_root_file_system_that_cannot_be_written() {
    let Some(folder) = TestFolder::new("read") else { return };
    let line = "mount -t tmpfs -o ro none /run && mount -t tmpfs -o ro none /mnt; $D/sojourn server start; echo $?";
    let output = folder.says(&["unshare", "-m"], line);
    has(&output, &["/run/sojourn-root: Read-only file system", "SOJOURN_SERVER=DIR/server", "1\n"]);
    assert!(!output.contains("as root"), "{output}");
}

#[test]
fn a_filter_of_system_calls_is_not_an_old_kernel() {
    let Some(folder) = TestFolder::new("filter") else { return };
    compile(&folder.0.join("why"), &["why/why.c"], &[]).unwrap();
    let output = folder.says(&[], "$D/why forbid $D/sojourn doctor");
    has(
        &output,
        &["descriptor-tables", "Operation not permitted", "seccomp", "CLOSE_RANGE_UNSHARE"],
    );
}
