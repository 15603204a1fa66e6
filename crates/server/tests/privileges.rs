//! The privileges of the server once it serves: looked up in `/proc`, in every thread.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Folder, Program, Server, be_fake, until};
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, socketpair,
};
use rustix::thread::CapabilitySet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// In `/proc/PID/status`: a filter decides about system calls.
const FILTERED: &str = "2";

#[test]
fn fake() {
    be_fake();
}

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

/// The capabilities that the server of everybody needs to look at everybody.
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

/// The process's children that were run with that word.
fn children(pid: u32, word: &str) -> Vec<u32> {
    let of = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists =
        tasks.map(|task| of(task.unwrap().path().join("children").to_str().unwrap().into()));
    let all = lists.collect::<Vec<_>>().join(" ");
    let all = all.split_whitespace().filter_map(|pid| pid.parse().ok());
    all.filter(|pid: &u32| of(format!("/proc/{pid}/cmdline")).split('\0').any(|own| own == word))
        .collect()
}

#[test]
fn a_users_proxy_keeps_what_its_looks_take_and_makes_no_other_calls() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: not root");
    }
    let held = rustix::thread::capabilities(None).unwrap().permitted;
    let folder = Folder::new();
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    let server = Server::start(&folder.server(), &["--system"]);
    let program = Program::start_as(Some(65_534), &folder.server());
    assert!(program.hello());
    let (end, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    // Answered by a thread of the proxy, which there is from then on.
    assert!(program.offer(1, end, true));
    let proxies = children(server.child.id(), "--proxy");
    assert_eq!(proxies.len(), 1);
    for pid in proxies {
        let wanted = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
        for name in ["CapPrm", "CapEff"] {
            assert_eq!(set(pid, name), wanted & held, "{name}");
        }
        assert!(of_threads(pid, "Seccomp").iter().all(|mode| mode == FILTERED));
        assert!(of_threads(pid, "NoNewPrivs").iter().all(|value| value == "1"));
    }
}

#[test]
fn a_keeper_has_no_capability_and_makes_few_calls() {
    let folder = Folder::new();
    let path = folder.0.join("keeper");
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (control, keepers) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    let listener: OwnedFd = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sojournd"));
    let mut keeper =
        command.arg("--keep").arg(&path).stdin(keepers).stdout(listener).spawn().unwrap();
    // Standard input and output are the command's as well.
    drop(command);
    let pid = keeper.id();
    until("the keeper has a filter", || {
        of_threads(pid, "Seccomp").iter().all(|mode| mode == FILTERED)
    });
    until("it has no capability", || {
        of_threads(pid, "CapPrm").iter().all(|set| set.trim_matches('0').is_empty())
    });
    drop(control);
    let mut ended = None;
    until("it ends with nothing to keep", || {
        ended = keeper.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
    assert!(!path.exists(), "it could not remove its socket");
}
