//! Whether a program would find a session server where it looks for one, tried in its place.
//!
//! It looks where its settings, its user and its root folder say (`sojourn_session::place`), with
//! its user's rights. Root, who may do everything, tries on a thread with that user's rights to
//! files. Each socket is tried once. Not here: what follows from it (`standing`).

use super::processes::Process;
use crate::server::answers_to;
use sojourn_session::place::Surroundings;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The socket of a server, whatever it is called: a file by device and inode, a name without a file
/// by itself and its network name space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Socket {
    File(u64, u64),
    Name(String, String),
}

/// What a program finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This one, which answers.
    Server(Socket),
    /// No server that it can use.
    Nothing,
    /// It cannot be tried from here.
    Unknown,
}

/// What was tried already, for which user.
#[derive(Debug, Default)]
pub(super) struct Tried(RefCell<HashMap<(Socket, u32), bool>>);

impl Tried {
    /// What `process` finds.
    pub(super) fn reach(&self, proc: &Path, process: &Process) -> Reach {
        let directory = proc.join(process.pid.to_string());
        let server = process.config.as_ref().map_or("", |config| &config.server);
        if server.starts_with("fd:") {
            return Reach::Unknown;
        }
        if server.starts_with('@') {
            let own = std::fs::read_link(proc.join("self/ns/net")).unwrap_or_default();
            if own.to_string_lossy() != process.network {
                return Reach::Unknown;
            }
            return self.ask(
                Socket::Name(server.into(), process.network.clone()),
                server.into(),
                process,
            );
        }
        let Some(place) = place(&directory, server, process) else { return Reach::Nothing };
        let (Ok(found), Some(text)) = (std::fs::metadata(&place), place.to_str()) else {
            return Reach::Nothing;
        };
        self.ask(Socket::File(found.dev(), found.ino()), text.into(), process)
    }

    fn ask(&self, socket: Socket, address: String, process: &Process) -> Reach {
        if sojourn_ipc::Address::parse(&address).is_err() {
            // Too long, with the way to it from here.
            return Reach::Unknown;
        }
        let key = (socket.clone(), process.uid);
        let known = self.0.borrow().get(&key).copied();
        let answers =
            known.unwrap_or_else(|| as_user(process, || answers_to(&address, process.uid).is_ok()));
        self.0.borrow_mut().insert(key, answers);
        if answers { Reach::Server(socket) } else { Reach::Nothing }
    }
}

/// Where a process looks, as seen from here.
fn place(directory: &Path, server: &str, process: &Process) -> Option<PathBuf> {
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

/// Does it with the rights to files that the process has.
fn as_user(process: &Process, work: impl FnOnce() -> bool + Send) -> bool {
    let own = rustix::process::geteuid();
    if !own.is_root() || process.uid == 0 {
        return work();
    }
    let work = || {
        take_rights(process);
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or(false))
}

/// Gives the calling thread, and no other, a process's rights to files. It does not get its own
/// back.
fn take_rights(process: &Process) {
    let groups = &process.groups;
    // SAFETY: the calls concern this thread alone, made past the C library, which would have all
    // threads make them; the kernel reads as many numbers as there are.
    unsafe {
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
        libc::syscall(libc::SYS_setfsgid, process.gid);
        libc::syscall(libc::SYS_setfsuid, process.uid);
    }
}
