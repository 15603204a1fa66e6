//! Removes a socket's file when its endpoint has gone, even by `kill -9`.
//!
//! A Unix socket's file outlives its process. So every endpoint with a path has a guard: a shell that
//! reads from a pipe whose only writer is the endpoint, and removes the file when the pipe ends. The
//! file is removed only if it is still the same one (device and inode). Not here: binding; see `listen`.

use rustix::fd::OwnedFd;
use rustix::fs::stat;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Removes the file `$1` at the end of the pipe if it is still the one that was bound (device, inode,
/// time of birth), unless a line comes first: then the endpoint has removed it itself.
///
/// The shell forks and ends at once: the guard is nobody's child that a program could stumble over.
const SCRIPT: &str = r#"exec 3<&0
identity() { stat -c %d:%i:%w -- "$1"; }
bound=$(identity "$1")
( read -r _ <&3 || { [ "$(identity "$1")" = "$bound" ] && rm -f -- "$1"; } ) &"#;

/// Keeps the file of one bound socket until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Guard {
    path: PathBuf,
    identity: (u64, u64),
    /// Its closing, or a line, is what the guard waits for.
    pipe: Option<OwnedFd>,
}

impl Guard {
    /// Watches over the socket just bound at `path`. Where no shell can be started the file is still
    /// removed at an orderly end, and replaced by the next endpoint after any other.
    pub(crate) fn new(path: &Path) -> Self {
        // The shell has another working directory than we may have by then.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let identity = identity(&path).unwrap_or_default();
        let pipe = spawn(&path);
        Self { path, identity, pipe }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    #[allow(clippy::useless_conversion, reason = "the widths depend on the platform")]
    stat(path).ok().map(|found| (found.st_dev.into(), found.st_ino.into()))
}

fn spawn(path: &Path) -> Option<OwnedFd> {
    // Sockets, not a pipe: writing to one whose reader was killed must not raise a signal.
    let (reader, writer) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", SCRIPT, "sojourn-guard"])
        .arg(path)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::from(reader))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: setsid is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            // Out of the endpoint's process group, so that a signal to all of it spares the guard.
            let _ = rustix::process::setsid();
            Ok(())
        });
    }
    let mut shell = command.spawn().ok()?;
    // A program that ignores SIGCHLD gets no status; the shell has ended all the same.
    let _ = shell.wait();
    Some(writer)
}

impl Drop for Guard {
    fn drop(&mut self) {
        if identity(&self.path) == Some(self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
        if let Some(pipe) = &self.pipe {
            // The shell is asleep in a read, so there is room for a byte.
            let _ = send(pipe, b"\n", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orderly_end_removes_the_file_and_a_later_one_is_left_alone() {
        let path = std::env::temp_dir().join(format!("sojourn-guard-{}", std::process::id()));
        for content in ["first", "second"] {
            std::fs::write(&path, content).unwrap();
            drop(Guard::new(&path));
            assert!(!path.exists());
        }
        std::fs::write(&path, "third").unwrap();
        let guard = Guard::new(&path);
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        std::fs::write(&path, "another's").unwrap();
        drop(guard);
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(path.with_extension("old")).unwrap();
    }
}
