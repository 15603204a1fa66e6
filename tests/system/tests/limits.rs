//! Tests of programs whose limits (setrlimit(2)) are lowered while their sessions move: they can do
//! everything that they could plainly, and a session stays in the kernel where the library is
//! refused a resource.
//!
//! Not here: programs that are confined before their first session (`confined`), and all
//! disturbances at once (`torture`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sojourn_lab::net::{End, Link};
use sojourn_lab::{Running, Sandbox};
use sojourn_system::network::{Accelerated, Stage, hosts};
use sojourn_system::{Admin, LIMIT, free_port, tcp_peers};
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

#[track_caller]
fn wait_for(what: &str, peers: &mut [Running], mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(peers.iter_mut().all(Running::is_running), "{what}: a program has ended");
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn set(pid: u32, resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    let process = Pid::from_raw(pid.cast_signed());
    prlimit(process, resource, Rlimit { current, maximum }).unwrap();
}

#[track_caller]
fn end(peers: Vec<Running>, file: &Path) {
    std::fs::write(file, "").unwrap();
    for peer in peers {
        peer.finish(LIMIT).unwrap().success("a peer").unwrap();
    }
}

/// Tests poll(2) with as many descriptors as the process may have open. The library's own
/// descriptors must not count.
#[test]
fn a_poll_of_as_many_as_there_may_be() {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let mut admin = Admin::new(&sandbox).unwrap();
    let over = sandbox.folder().join("end");
    let text = over.to_string_lossy().into_owned();
    let address = "127.0.0.1";
    // Questions and answers, so that each side waits in poll(2).
    let words = ["--way", "poll", "--rounds", "1", "--until", &text];
    let port = free_port(address).unwrap();
    let mut peers = tcp_peers(&sandbox, address, address, port, &words).unwrap();
    wait_for("a session that is away", &mut peers, || !admin.away().unwrap().is_empty());
    peers.iter().for_each(|peer| set(peer.pid(), Resource::Nofile, Some(3)));
    wait_for("the way home", &mut peers, || admin.away().unwrap().is_empty());
    end(peers, &over);
}

/// Tests a program without memory for a remote session: the session stays in the kernel, and the
/// program survives.
#[test]
fn a_session_that_there_is_no_memory_for() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::new(&link, Accelerated::Client).unwrap();
    let over = stage.end_file().to_string_lossy().into_owned();
    let peer = stage.worlds[0].built().path("lab-peer").to_string_lossy().into_owned();
    let address = format!("{}:{}", stage.address, stage.port);
    let start = |end: End, role: &str| {
        let mut command = stage.command(end, &peer);
        command.args([role, "tcp", &address, "--way", "poll", "--until", &over]);
        Running::start(command).unwrap()
    };
    let mut peers = vec![start(End::A, "serve"), start(End::B, "call")];
    let mut admin = Admin::new(&stage.worlds[End::B as usize]).unwrap();
    let limited = peers[1].pid();
    wait_for("a session that is away", &mut peers, || !admin.away().unwrap().is_empty());
    admin.recall_all().unwrap();
    wait_for("the way home", &mut peers, || admin.away().unwrap().is_empty());
    let text = std::fs::read_to_string(format!("/proc/{limited}/statm")).unwrap();
    let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
    let mapped = pages * rustix::param::page_size() as u64;
    set(limited, Resource::As, Some(mapped));
    let before = admin.offers().unwrap();
    wait_for("another offer", &mut peers, || admin.offers().unwrap() > before);
    std::thread::sleep(Duration::from_millis(50));
    assert!(peers.iter_mut().all(Running::is_running), "a program has ended");
    set(limited, Resource::As, None);
    end(peers, &stage.end_file());
}
