//! Tests whether a program's own search would find a session server.
//!
//! The address follows from the program's settings, user and root folder
//! (`sojourn_session::place`). The connection is attempted with the rights of the program's user:
//! if this process is root, on a thread that has given up root's rights to files. Each socket is
//! tried once. Not here: the consequence for the program (`standing`).

use super::processes::Process;
use crate::server::answers_to;
use rustix::process::{Gid, Uid};
use sojourn_session::Inode;
use sojourn_session::place::Surroundings;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The identity of a server's socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Socket {
    File {
        device: u64,
        inode: Inode,
    },
    /// An abstract name in a network name space.
    Name {
        name: String,
        network: String,
    },
}

/// An attempt to reach a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    socket: Socket,
    /// The user whose program it is for.
    uid: Uid,
}

/// The result of a program's search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerLookup {
    /// The server at this socket answers.
    Server(Socket),
    /// The program finds no server that it can use.
    Nothing,
    /// The search cannot be repeated from this process.
    Unknown,
}

/// The results of earlier attempts.
#[derive(Debug, Default)]
pub(super) struct ProbedServers(RefCell<HashMap<Attempt, bool>>);

impl ProbedServers {
    /// Returns the result of the search of `process`.
    pub(super) fn look_up(&self, proc: &Path, process: &Process) -> ServerLookup {
        let directory = proc.join(process.pid.to_string());
        let server = process.config.as_ref().map_or("", |config| &config.server);
        if server.starts_with("fd:") {
            return ServerLookup::Unknown;
        }
        if server.starts_with('@') {
            let own = std::fs::read_link(proc.join("self/ns/net")).unwrap_or_default();
            if own.to_string_lossy() != process.network {
                return ServerLookup::Unknown;
            }
            let socket = Socket::Name { name: server.into(), network: process.network.clone() };
            return self.ask(socket, server.into(), process);
        }
        let Some(socket_path) = socket_path(&directory, server, process) else {
            return ServerLookup::Nothing;
        };
        let (Ok(found), Some(text)) = (std::fs::metadata(&socket_path), socket_path.to_str())
        else {
            return ServerLookup::Nothing;
        };
        self.ask(
            Socket::File { device: found.dev(), inode: Inode(found.ino()) },
            text.into(),
            process,
        )
    }

    fn ask(&self, socket: Socket, address: String, process: &Process) -> ServerLookup {
        if sojourn_ipc::Address::parse(&address).is_err() {
            // The path through `/proc/PID/root` is longer than a socket's address may be.
            return ServerLookup::Unknown;
        }
        let attempt = Attempt { socket: socket.clone(), uid: process.uid };
        let known = self.0.borrow().get(&attempt).copied();
        let answers =
            known.unwrap_or_else(|| as_user(process, || answers_to(&address, process.uid).is_ok()));
        self.0.borrow_mut().insert(attempt, answers);
        if answers { ServerLookup::Server(socket) } else { ServerLookup::Nothing }
    }
}

/// Returns the path of the socket that a process looks for, as this process can reach it.
fn socket_path(directory: &Path, server: &str, process: &Process) -> Option<PathBuf> {
    let root = directory.join("root");
    if server.is_empty() {
        let runtime = process.runtime.as_deref();
        let around = Surroundings::of_other(&root, "", runtime, process.uid);
        return around.for_client().ok().map(PathBuf::from);
    }
    let path = Path::new(server);
    Some(match path.strip_prefix("/") {
        Ok(inside) => root.join(inside),
        Err(_) => directory.join("cwd").join(path),
    })
}

/// Runs `work` with the process's rights to files.
fn as_user(process: &Process, work: impl FnOnce() -> bool + Send) -> bool {
    let own = rustix::process::geteuid();
    if !own.is_root() || process.uid.is_root() {
        return work();
    }
    let work = || {
        take_rights(process);
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or(false))
}

/// Gives a process's rights to files to the calling thread alone, for good.
fn take_rights(process: &Process) {
    let groups: Vec<_> = process.groups.iter().map(|group| group.as_raw()).collect();
    // The kernel knows no group -1 and keeps the present one.
    let group = process.gid.map_or(u32::MAX, Gid::as_raw);
    // SAFETY: raw system calls change this thread alone, while the C library's functions would
    // change all threads; the kernel reads as many groups as the slice has.
    unsafe {
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
        libc::syscall(libc::SYS_setfsgid, group);
        libc::syscall(libc::SYS_setfsuid, process.uid.as_raw());
    }
}
