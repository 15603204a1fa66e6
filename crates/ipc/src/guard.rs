//! Removes a socket's file when its endpoint has gone, even by `kill -9`.
//!
//! A Unix socket's file outlives its process. So every endpoint with a path has a guard: a shell
//! that reads from a pipe whose only writer is the endpoint, and removes the file when the pipe
//! ends.
//!
//! The file is removed only if it is still the same one (device, inode, time of birth). Linux
//! cannot compare and remove in one step, so binding and removing hold a lock ([`Turn`]): between a
//! guard's comparison and its removal no other endpoint can put its own file there. Not here:
//! binding (`endpoint`).

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, Stat, flock, openat, stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Removes the file `$1` at the end of the pipe if it is still the one that was bound (device,
/// inode, time of birth), unless a line comes first: then the endpoint has removed the file itself.
/// The shell takes its turn ([`Turn`]) if there is a flock(1).
///
/// The shell forks and ends at once, so that the guard is not a child that the program's wait(2)
/// could return.
const SCRIPT: &str = r#"exec 3<&0
identity() { stat -c %d:%i:%w -- "$1"; }
bound=$(identity "$1")
folder="${1%/*}/"
turn() { [ -r "$folder" ] && command -v flock >/dev/null && exec 4<"$folder" && flock -w 5 4; }
( read -r _ <&3 || { turn; [ "$(identity "$1")" = "$bound" ] && rm -f -- "$1"; } ) &"#;

/// The time limit for another's turn. Every process that may read the folder can hold the lock for
/// ever, so after this time the work is done without the lock.
const TURN_WAIT: Duration = Duration::from_secs(2);

/// The turn to change the file at a path: an exclusive flock(2) of the folder, which leaves no file
/// behind.
#[derive(Debug)]
pub(crate) struct Turn(Option<OwnedFd>);

impl Turn {
    /// Waits for the turn, at most [`TURN_WAIT`].
    pub(crate) fn take(path: &Path) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty());
        let Ok(folder) = folder else { return Self(None) };
        let begun = Instant::now();
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Self(Some(folder)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if begun.elapsed() < TURN_WAIT => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return Self(None),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // The lock is released explicitly, because a child that another thread has just forked
            // may keep the description open.
            let _ = flock(folder, FlockOperation::Unlock);
        }
    }
}

/// Keeps the file of one bound socket until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Guard {
    path: PathBuf,
    identity: FileIdentity,
    /// The guard waits for a line on this socket or for its closing.
    pipe: Option<OwnedFd>,
}

impl Guard {
    /// Starts the guard of the socket just bound at `path`, in the turn in which it was bound. If
    /// no shell can be started, the file is still removed at an orderly end, and replaced by the
    /// next endpoint after any other end.
    pub(crate) fn new(path: &Path) -> Self {
        // The shell's working directory may differ from the program's, so the path is made
        // absolute.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let identity = identity(&path).unwrap_or_default();
        let pipe = spawn(&path);
        Self { path, identity, pipe }
    }
}

/// The numbers that tell one file from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

fn identity(path: &Path) -> Option<FileIdentity> {
    #[allow(clippy::useless_conversion, reason = "the widths depend on the platform")]
    let identity =
        |found: Stat| FileIdentity { device: found.st_dev.into(), inode: found.st_ino.into() };
    stat(path).ok().map(identity)
}

fn spawn(path: &Path) -> Option<OwnedFd> {
    // Sockets are used instead of a pipe, because a write to a killed reader must not raise
    // `SIGPIPE`.
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
            // A new session, so that a signal to the endpoint's process group spares the guard.
            let _ = rustix::process::setsid();
            Ok(())
        });
    }
    let mut shell = command.spawn().ok()?;
    // A program that ignores SIGCHLD gets no status (wait(2)), but the shell has ended.
    let _ = shell.wait();
    Some(writer)
}

impl Drop for Guard {
    fn drop(&mut self) {
        {
            let _turn = Turn::take(&self.path);
            if identity(&self.path) == Some(self.identity) {
                let _ = std::fs::remove_file(&self.path);
            }
        }
        if let Some(pipe) = &self.pipe {
            // The shell sleeps in a read, so there is room for a byte.
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

    /// Returns true if somebody waits for the lock of that folder.
    fn is_waited_for(folder: &Path) -> bool {
        let inode = format!(":{} ", stat(folder).unwrap().st_ino);
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("->") && line.contains(&inode))
    }

    #[test]
    fn a_guard_does_not_remove_what_is_put_there_after_its_look() {
        if !Path::new("/usr/bin/flock").exists() && !Path::new("/bin/flock").exists() {
            eprintln!("skipped: no flock(1)");
            return;
        }
        let folder = std::env::temp_dir().join(format!("sojourn-turn-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("socket");
        std::fs::write(&path, "first").unwrap();
        let mut guard = Guard::new(&path);
        // We bind anew, and just now the first endpoint dies.
        let turn = Turn::take(&path);
        guard.pipe = None;
        let begun = Instant::now();
        while !is_waited_for(&folder) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the guard takes no turn");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(path.exists(), "removed out of turn");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "second").unwrap();
        drop(turn);
        let begun = Instant::now();
        while is_guarded(&path) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the guard stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        core::mem::forget(guard);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn is_guarded(path: &Path) -> bool {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines =
            processes.filter_map(|found| std::fs::read(found.path().join("cmdline")).ok());
        lines.any(|line| {
            let line = String::from_utf8_lossy(&line);
            line.contains("sojourn-guard") && line.contains(path.to_str().unwrap())
        })
    }
}
