//! The processes of everybody's server: which rights each has, and what follows when one of them is
//! killed or stands still.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Folder, Program, Server, be_fake, until};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::CapabilitySet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

/// A user other than the one who runs the tests.
const USER: u32 = 65_534;
/// In `/proc/PID/status`: a filter decides about system calls.
const FILTERED: &str = "2";

#[test]
fn fake() {
    be_fake();
}

/// Root's server for everybody, with a carrier.
fn roots(folder: &Folder) -> Option<Server> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return None;
    }
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    Some(Server::start(&folder.server(), &["--system", "--network"]))
}

/// The child of that name, if there is one.
fn child(server: &Server, name: &str) -> Option<u32> {
    let pid = server.child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let is_it = |pid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim() == format!("sojourn-{name}")
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_it)
}

/// Waits for the child of that name that is not `before`.
fn child_other_than(server: &Server, name: &str, before: u32) -> u32 {
    let mut found = None;
    until("another process", || {
        found = child(server, name).filter(|pid| *pid != before);
        found.is_some()
    });
    found.unwrap()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

fn is_there(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("State:") && !status.contains("zombie")
}

fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim_start_matches(':').trim().to_owned()
}

fn capabilities(pid: u32) -> CapabilitySet {
    let bits = u64::from_str_radix(&status(pid, "CapPrm"), 16).unwrap();
    CapabilitySet::from_bits_retain(bits)
}

/// Two programs of another user are joined.
fn joined(server: &str) -> [Program; 2] {
    let [a, b] = [(); 2].map(|()| Program::start_as(Some(USER), server));
    assert!(a.hello() && b.hello());
    let (first, second) = UnixStream::pair().unwrap();
    // Not the only holder by its word: the prober counts.
    assert!(a.offer(1, first, false));
    let _ = b.offer(1, second, false);
    assert_eq!(a.joined().stream, b.joined().stream);
    [a, b]
}

#[test]
fn each_process_has_the_rights_of_its_part() {
    let folder = Folder::new();
    let Some(server) = roots(&folder) else { return };
    let held = rustix::thread::capabilities(None).unwrap().permitted;
    if !held.contains(CapabilitySet::SYS_PTRACE) {
        return eprintln!("skipped: may not look into other processes");
    }
    let packets = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
    let carriers = packets | CapabilitySet::SYS_ADMIN | CapabilitySet::NET_BIND_SERVICE;
    let probers = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    let parts = [("front", CapabilitySet::empty()), ("prober", probers), ("carrier", carriers)];
    for (name, wanted) in parts {
        let pid = child(&server, name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(capabilities(pid), wanted & held, "{name}");
        assert_eq!(status(pid, "Seccomp"), FILTERED, "{name}");
        assert_eq!(status(pid, "NoNewPrivs"), "1", "{name}");
    }
    let own = |name: &str| status(child(&server, name).unwrap(), "Uid");
    assert!(own("front").split_whitespace().all(|user| user != "0"), "{}", own("front"));
    assert!(status(child(&server, "front").unwrap(), "Groups").is_empty());
    let parent = server.child.id();
    let wanted = probers | carriers | CapabilitySet::SETUID | CapabilitySet::SETGID;
    let wanted = wanted | CapabilitySet::SETPCAP | CapabilitySet::KILL;
    assert_eq!(capabilities(parent), wanted & held);
    assert_eq!(status(parent, "Seccomp"), FILTERED);
    assert_eq!(status(parent, "Threads"), "1", "the parent does nothing beside");
}

#[test]
fn whichever_process_is_killed_the_next_ones_serve_at_the_same_place() {
    let folder = Folder::new();
    let Some(server) = roots(&folder) else { return };
    for name in ["front", "prober", "carrier"] {
        let programs = joined(&folder.server());
        let before = ["front", "prober", "carrier"].map(|name| child(&server, name).unwrap());
        signal(child(&server, name).unwrap(), Signal::KILL);
        let after = ["front", "prober", "carrier"];
        for (name, before) in after.into_iter().zip(before) {
            child_other_than(&server, name, before);
            assert!(!is_there(before), "{name} of the generation before");
        }
        // The name was never gone, so nobody had to wait for it.
        drop(joined(&folder.server()));
        drop(programs);
    }
}

#[test]
fn all_end_with_the_parent_and_in_order_when_it_is_told_to_end() {
    for how in [Signal::KILL, Signal::TERM, Signal::INT] {
        let folder = Folder::new();
        let Some(mut server) = roots(&folder) else { return };
        let programs = joined(&folder.server());
        let children = ["front", "prober", "carrier"].map(|name| child(&server, name).unwrap());
        signal(server.child.id(), how);
        let mut ended = None;
        until("the parent's end", || {
            ended = server.child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().success(), how != Signal::KILL, "{how:?}");
        until("the others' ends", || children.iter().all(|pid| !is_there(*pid)));
        assert!(how == Signal::KILL || !folder.0.join("server").exists(), "its name is left");
        drop(programs);
        let _next = roots(&folder);
        drop(joined(&folder.server()));
    }
}

#[test]
fn who_stands_still_does_not_keep_the_server_from_ending() {
    for name in ["front", "prober", "carrier"] {
        let folder = Folder::new();
        let Some(mut server) = roots(&folder) else { return };
        let stopped = child_other_than(&server, name, 0);
        signal(stopped, Signal::STOP);
        signal(server.child.id(), Signal::TERM);
        if name == "front" {
            // It cannot do what it is told. A second signal waits for nobody.
            std::thread::sleep(Duration::from_millis(100));
            signal(server.child.id(), Signal::TERM);
        }
        let mut ended = None;
        until("the parent's end", || {
            ended = server.child.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success(), "{name}");
        until("its end", || !is_there(stopped));
    }
}

#[test]
fn an_administrators_word_ends_all() {
    let folder = Folder::new();
    let Some(mut server) = roots(&folder) else { return };
    server.admin().stop(true).unwrap();
    let mut ended = None;
    until("the end", || {
        ended = server.child.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
}

/// The messages to the service manager that come within so long.
fn heard(manager: &UnixDatagram, time: Duration) -> Vec<String> {
    let end = Instant::now() + time;
    let mut all = Vec::new();
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        manager.set_read_timeout(Some(left)).unwrap();
        let mut text = [0; 64];
        if let Ok(len) = manager.recv(&mut text) {
            all.push(String::from_utf8_lossy(&text[..len]).into_owned());
        }
    }
    all
}

#[test]
fn a_process_that_stands_still_is_told_of_and_replaced() {
    let folder = Folder::new();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: not root");
    }
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    let place = folder.0.join("manager");
    let manager = UnixDatagram::bind(&place).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sojournd"));
    command.env("NOTIFY_SOCKET", &place).env("WATCHDOG_USEC", "1000000");
    let server = Server::started(command, &folder.server(), &["--system"]);
    let first = heard(&manager, Duration::from_secs(3));
    assert_eq!(first.first().map(String::as_str), Some("READY=1"), "{first:?}");
    assert!(first.iter().filter(|text| *text == "WATCHDOG=1").count() > 2, "{first:?}");
    let stopped = child(&server, "prober").unwrap();
    signal(stopped, Signal::STOP);
    // Its last beat counts for ten seconds.
    heard(&manager, Duration::from_secs(11));
    assert_eq!(heard(&manager, Duration::from_secs(3)), [""; 0], "one of them stands still");
    let begun = Instant::now();
    until("another generation", || child(&server, "prober").is_some_and(|pid| pid != stopped));
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert!(!is_there(stopped));
    drop(joined(&folder.server()));
    assert!(heard(&manager, Duration::from_secs(3)).iter().any(|text| text == "WATCHDOG=1"));
}
