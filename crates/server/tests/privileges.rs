//! What the server may do once it serves: looked up in `/proc`, in every thread.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Folder, Server};
use rustix::thread::CapabilitySet;

/// The line of that name, of every thread of the process.
fn of_threads(pid: u32, name: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let line = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    };
    threads
        .map(|thread| line(std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap()))
        .collect()
}

/// A capability set of every thread, if they all have the same.
fn set(pid: u32, name: &str) -> CapabilitySet {
    let sets = of_threads(pid, name);
    assert!(sets.len() > 1, "no threads but the first");
    assert!(sets.iter().all(|set| *set == sets[0]), "{name}: {sets:?}");
    CapabilitySet::from_bits_retain(u64::from_str_radix(&sets[0], 16).unwrap())
}

fn check(flags: &[&str], wanted: CapabilitySet) {
    let held = rustix::thread::capabilities(None).unwrap().permitted;
    let folder = Folder::new();
    let server = Server::start(&folder.server(), flags);
    let pid = server.child.id();
    assert!(of_threads(pid, "NoNewPrivs").iter().all(|value| value == "1"));
    if wanted.contains(CapabilitySet::SYS_PTRACE) && !held.contains(CapabilitySet::SYS_PTRACE) {
        // It could not look into processes that may do more than it may itself.
        return assert_eq!(set(pid, "CapPrm"), held, "{flags:?}");
    }
    for name in ["CapPrm", "CapEff"] {
        assert_eq!(set(pid, name), wanted & held, "{flags:?}: {name}");
    }
    for name in ["CapInh", "CapAmb"] {
        assert_eq!(set(pid, name), CapabilitySet::empty(), "{flags:?}: {name}");
    }
    if held.contains(CapabilitySet::SETPCAP) {
        assert_eq!(set(pid, "CapBnd") - wanted, CapabilitySet::empty(), "{flags:?}: CapBnd");
    }
}

/// What the server of everybody needs to look at everybody.
const EVERYBODY: [CapabilitySet; 4] = [
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::SYS_ADMIN,
];

fn everybody() -> CapabilitySet {
    match rustix::process::geteuid().is_root() {
        true => EVERYBODY.into_iter().fold(CapabilitySet::empty(), CapabilitySet::union),
        false => CapabilitySet::empty(),
    }
}

#[test]
fn a_server_of_one_host_keeps_what_its_looks_take() {
    check(&[], everybody());
}

#[test]
fn a_server_with_sessions_of_other_hosts_keeps_packets_too() {
    let network = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
    let more = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_BIND_SERVICE;
    check(&["--network"], everybody() | network | more);
}

#[test]
fn a_users_server_keeps_nothing() {
    if !rustix::process::geteuid().is_root() {
        return check(&[], CapabilitySet::empty());
    }
    let folder = Folder::new();
    std::os::unix::fs::chown(&folder.0, Some(4711), Some(4711)).unwrap();
    let server = Server::start_as(Some(4711), &folder.server(), &["--network"]);
    let pid = server.child.id();
    assert!(of_threads(pid, "NoNewPrivs").iter().all(|value| value == "1"));
    assert_eq!(set(pid, "CapPrm"), CapabilitySet::empty());
}
