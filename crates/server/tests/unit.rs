//! The server as its unit starts it: the user, the capabilities and the system calls that
//! `systemd/sojournd.service` leaves it suffice, and the unit leaves it little.
//!
//! Not here: sessions with other hosts (`tests/system/tests/network_server.rs`), and what the unit
//! does with mounts, devices and control groups, which only a service manager can do.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Folder, Program, Server, be_fake, until};
use rustix::thread::CapabilitySet;
use sojourn_lab::unit;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

const UNIT: &str = include_str!("../systemd/sojournd.service");
/// Users of programs.
const USERS: [u32; 2] = [65_533, 65_534];
/// The most exposure that `systemd-analyze security` may find.
const EXPOSED_MAX: f32 = 3.0;

#[test]
fn fake() {
    be_fake();
}

fn systemd_analyze(words: &[&str]) -> Option<String> {
    let output = Command::new("systemd-analyze").args(words).arg("--no-pager").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_unit_is_exposed_little() {
    let folder = Folder::new();
    let copy = folder.0.join("sojournd.service");
    std::fs::write(&copy, UNIT.replace("/usr/bin/sojournd", "/bin/true")).unwrap();
    let words = ["security", "--offline=true", copy.to_str().unwrap()];
    let Some(output) = systemd_analyze(&words).filter(|output| output.contains("exposure level"))
    else {
        return eprintln!("skipped: no systemd-analyze that looks at files");
    };
    let level = output.split("exposure level for sojournd.service: ").nth(1).unwrap();
    let level: f32 = level.split_whitespace().next().unwrap().parse().unwrap();
    assert!(level <= EXPOSED_MAX, "{output}");
}

/// The server as the unit starts it, at the folder's address.
fn started(folder: &Folder, flags: &[&str]) -> Option<Server> {
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sojournd"));
    if !unit::become_unit(&mut command) {
        eprintln!("skipped: not root, or no systemd-analyze that knows groups of system calls");
        return None;
    }
    std::os::unix::fs::chown(&folder.0, Some(unit::USER), Some(unit::USER)).unwrap();
    Some(Server::started(command, &folder.server(), flags))
}

/// The server's other processes: their names, users, and permitted capabilities.
fn children(server: &Server) -> Vec<(String, String, CapabilitySet)> {
    let pid = server.child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let held = u64::from_str_radix(&field("CapPrm:"), 16).ok()?;
        Some((field("Name:"), field("Uid:"), CapabilitySet::from_bits_retain(held)))
    };
    children.split_whitespace().filter_map(child).collect()
}

/// Ends of two users' programs are joined: of a socket, and of a pipe, which only the prober may
/// pin.
fn assert_serves(server: &str) {
    let [a, b] = USERS.map(|user| Program::start_as(Some(user), server));
    assert!(a.hello() && b.hello());
    let (first, second) = UnixStream::pair().unwrap();
    assert!(a.offer(1, first, false));
    let _ = b.offer(1, second, false);
    assert_eq!(a.joined().stream, b.joined().stream);
    let (reader, writer) = std::io::pipe().unwrap();
    assert!(a.offer(2, reader, false));
    let _ = b.offer(2, writer, false);
    assert_eq!(a.joined().stream, b.joined().stream);
}

#[test]
fn as_the_unit_starts_it_it_serves_everybody() {
    for flags in [&["--system"][..], &["--system", "--network"]] {
        let folder = Folder::new();
        let Some(server) = started(&folder, flags) else { return };
        assert_serves(&folder.server());
        let children = children(&server);
        let names: Vec<_> = children.iter().map(|(name, ..)| name.as_str()).collect();
        assert!(names.contains(&"sojourn-front") && names.contains(&"sojourn-prober"), "{names:?}");
        assert_eq!(names.contains(&"sojourn-carrier"), flags.len() > 1, "it can carry: {names:?}");
        for (name, users, held) in &children {
            let is_its = users.split_whitespace().all(|user| user == unit::USER.to_string());
            assert!(is_its, "{name}: {users}");
            assert!(name != "sojourn-front" || held.is_empty(), "{name}: {held:?}");
        }
    }
}

#[test]
fn as_the_unit_starts_it_it_goes_on_without_one_of_its_processes() {
    let folder = Folder::new();
    let Some(server) = started(&folder, &["--system"]) else { return };
    let pid = server.child.id();
    let path = format!("/proc/{pid}/task/{pid}/children");
    let before = std::fs::read_to_string(&path).unwrap();
    let first: i32 = before.split_whitespace().next().unwrap().parse().unwrap();
    let first = rustix::process::Pid::from_raw(first).unwrap();
    rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
    until("the next generation", || {
        let now = std::fs::read_to_string(&path).unwrap();
        !now.is_empty() && now.split_whitespace().all(|pid| !before.contains(pid))
    });
    assert_serves(&folder.server());
}
