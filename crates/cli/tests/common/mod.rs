//! Parts that the tests of the command share.

#![allow(dead_code, reason = "each test uses its part")]

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that Drop removes.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sojourn-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command under test, in an environment without settings and with a watchdog.
pub(crate) fn sojourn(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    // With --foreground, timeout(1) makes no process group and ignores the terminal.
    command.args(["--foreground", "-s", "KILL", "30", env!("CARGO_BIN_EXE_sojourn")]).args(words);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SOJOURN_") {
            command.env_remove(name);
        }
    }
    command.env("SOJOURN_CONFIG", "/dev/null").stdin(Stdio::null());
    command
}

/// Compiles C.
pub(crate) fn cc(source: &Path, to: &Path, flags: &[&str]) {
    let done = Command::new("cc").args(flags).arg("-o").args([to, source]).status().unwrap();
    assert!(done.success());
}

/// A socket that listens as a session server's does.
pub(crate) fn listen(path: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 128).unwrap();
    socket
}
