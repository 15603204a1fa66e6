//! Tests of programs of different users under root's server: their sessions move, and neither
//! program can access more of the other's memory than the stream and the inboxes of the pair.
//!
//! They need root with CAP_SETUID and CAP_SYS_PTRACE: without the latter the server cannot inspect
//! processes of other users. Skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::thread::CapabilitySet;
use sojourn_lab::{Running, Sandbox};
use sojourn_session::SessionInfoT;
use sojourn_system::{Admin, LIMIT, free_port};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Users that nothing else here runs as.
const USERS: [u32; 3] = [65_531, 65_532, 65_533];

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A sandbox whose programs every user may run.
struct World {
    sandbox: Sandbox,
    admin: Admin,
}

impl World {
    /// Returns `None`, and prints the reason, where programs of other users cannot be run and
    /// inspected.
    fn new() -> Option<Self> {
        let wanted = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SYS_PTRACE;
        let held = rustix::thread::capabilities(None).unwrap().effective;
        if !rustix::process::geteuid().is_root() || !held.contains(wanted) {
            eprintln!("skipped: not root with CAP_SETUID and CAP_SYS_PTRACE");
            return None;
        }
        let sandbox = Sandbox::new().unwrap();
        let folder = sandbox.folder();
        let open = || PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, open()).unwrap();
        for name in ["sojourn", "libsojourn_preload.so", "lab-peer"] {
            // The build folder may be unreadable for other users.
            std::fs::copy(sandbox.built().path(name), folder.join(name)).unwrap();
            std::fs::set_permissions(folder.join(name), open()).unwrap();
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/users.py");
        std::fs::copy(script, folder.join("users.py")).unwrap();
        let admin = Admin::new(&sandbox).unwrap();
        Some(Self { sandbox, admin })
    }

    fn path(&self, name: &str) -> String {
        self.sandbox.folder().join(name).to_string_lossy().into_owned()
    }

    fn start(&self, user: u32, words: &[&str]) -> Running {
        let mut command = Command::new(self.path("sojourn"));
        command.args(["run", "--strict", "--"]).args(words);
        command.env("SOJOURN_SERVER", self.sandbox.address()).env("SOJOURN_MOVE_AFTER_CALLS", "4");
        command.env("HOME", "/").current_dir(self.sandbox.folder()).uid(user).gid(user);
        Running::start(command).unwrap()
    }

    /// Waits until `count` ends are away and bytes have gone through all of them; returns the ends.
    fn await_away(&mut self, count: usize) -> Vec<SessionInfoT> {
        let mut away = Vec::new();
        until("the sessions are away", || {
            away = self.admin.away().unwrap();
            away.len() == count && away.iter().all(|end| end.sent + end.received > 10_000)
        });
        away
    }

    fn stop(&self) {
        std::fs::write(self.path("stop"), "").unwrap();
    }
}

/// Returns the writable shared memory of a process: device and inode, with the name.
fn shared(pid: u32) -> BTreeMap<(String, u64), String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let rights = words.nth(1)?;
        let (device, inode) = (words.nth(1)?, words.next()?);
        let is_shared = rights.contains('w') && rights.ends_with('s');
        let name = words.next().unwrap_or_default();
        is_shared.then(|| ((device.to_owned(), inode.parse().unwrap()), name.to_owned()))
    };
    maps.lines().filter_map(one).collect()
}

/// Returns the shared memory that both processes have, with names.
fn common(one: u32, other: u32) -> Vec<((String, u64), String)> {
    let theirs = shared(other);
    shared(one).into_iter().filter(|(key, _)| theirs.contains_key(key)).collect()
}

fn names(common: &[((String, u64), String)]) -> Vec<&str> {
    let mut names: Vec<&str> = common.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    names
}

/// Checks that `user` can open the memory of a process neither to read nor to write.
fn assert_closed_to(user: u32, pid: u32) {
    for how in ["<", ">"] {
        let script = format!("exec 3{how}/proc/{pid}/mem");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).uid(user).gid(user).stderr(Stdio::null());
        assert!(!command.status().unwrap().success(), "{user} can open the memory of {pid}");
    }
    // Root can, so the failures above are due to the rights and not to the command.
    let script = format!("exec 3</proc/{pid}/mem");
    assert!(Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
}

const STREAM: &str = "/memfd:sojourn-stream";
const INBOX: &str = "/memfd:sojourn-inbox";

#[test]
fn programs_of_two_users_talk_through_a_stream_and_share_nothing_else() {
    let Some(mut world) = World::new() else { return };
    let address = format!("127.0.0.1:{}", free_port("127.0.0.1").unwrap());
    let stop = world.path("stop");
    let peer = world.path("lab-peer");
    let options = ["--way", "epoll", "--until", &stop];
    let start = |side, user| {
        let words = [&[peer.as_str(), side, "tcp", &address], &options[..]].concat();
        world.start(user, &words)
    };
    let programs = [start("serve", USERS[0]), start("call", USERS[1])];
    let away = world.await_away(2);
    assert_eq!(away[0].stream, away[1].stream);
    let mut users: Vec<u32> = away.iter().map(|end| end.uid).collect();
    users.sort_unstable();
    assert_eq!(users, USERS[..2]);
    let [serves, calls] = [programs[0].pid(), programs[1].pid()];
    assert_eq!(names(&common(serves, calls)), [INBOX, INBOX, STREAM]);
    assert!(shared(serves).len() > 3, "what is only its own is not counted: {:?}", shared(serves));
    assert_closed_to(USERS[0], calls);
    assert_closed_to(USERS[1], serves);
    world.stop();
    for program in programs {
        program.finish(LIMIT).unwrap().success("a peer of another user").unwrap();
    }
    until("both are home", || world.admin.away().unwrap().is_empty());
}

#[test]
fn peers_of_several_users_in_one_epoll_set_share_nothing_with_each_other() {
    let Some(mut world) = World::new() else { return };
    let script = world.path("users.py");
    assert!(std::path::Path::new("/usr/bin/python3").exists(), "no python3: install it");
    let (port, stop) = (world.path("port"), world.path("stop"));
    let python =
        |user, words: &[&str]| world.start(user, &[&["/usr/bin/python3", &script], words].concat());
    let server = python(USERS[0], &["serve", &port, "6"]);
    until("the server listens", || std::path::Path::new(&port).exists());
    let port = std::fs::read_to_string(&port).unwrap();
    let [b, c, victim] =
        [USERS[1], USERS[2], USERS[1]].map(|user| python(user, &["call", &port, "2", &stop]));
    let away = world.await_away(12);
    for (user, ends) in [(USERS[0], 6), (USERS[1], 4), (USERS[2], 2)] {
        assert_eq!(away.iter().filter(|end| end.uid == user).count(), ends, "user {user}");
    }
    // One stream for each connection, and one of the server's inboxes for each user that notifies
    // it.
    let [with_b, with_c] = [b.pid(), c.pid()].map(|pid| common(server.pid(), pid));
    for shared in [&with_b, &with_c] {
        assert_eq!(names(shared), [INBOX, INBOX, STREAM, STREAM]);
        assert!(shared.iter().all(|one| !(with_b.contains(one) && with_c.contains(one))));
    }
    assert!(common(b.pid(), c.pid()).is_empty(), "peers of two users share memory");
    assert_closed_to(USERS[2], b.pid());
    // The end of one user's program does not affect the others.
    victim.signal(rustix::process::Signal::KILL);
    world.await_away(8);
    world.stop();
    for program in [b, c, server] {
        program.finish(LIMIT).unwrap().success("a program of one of three users").unwrap();
    }
}
