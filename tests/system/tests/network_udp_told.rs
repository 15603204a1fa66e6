//! Tests of UDP sockets of programs without code for Sojourn: the control messages of each
//! datagram, the socket that gets it, and the counters.
//!
//! One program runs plainly and under Sojourn; its output must be the same. The program tells when
//! a socket has to be away, and goes on when the server has counted datagrams of the socket, so
//! that nothing depends on the duration of a move. Not here: waiting, readiness, either family
//! bound in every way (`network_udp.rs`). Needs root and network namespaces; skipped with a message
//! otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{End, Link};
use sojourn_session::{KindT, ReasonT, RefusedInfoT, SessionInfoT};
use sojourn_system::network::{Accelerated, Stage, hosts};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// Longest wait for any condition: a file, a move.
const PATIENCE: Duration = Duration::from_secs(30);

/// Repeats `is_so` until it returns a value.
#[track_caller]
fn until<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn script(stage: &Stage, link: &Link, end: End, words: &[&str]) -> Running {
    let mut command = stage.command(end, "python3");
    command.arg(stage.programs().join("net/udp_told.py")).args(words);
    command.env("ADDRESS6", link.v6(End::A).to_string()).env("PYTHONUNBUFFERED", "1");
    Running::start(command).unwrap()
}

/// Starts the peer, which listens on the stage's port and the next one.
fn serve(stage: &Stage, link: &Link) -> Running {
    let ports = [stage.port, stage.port + 1].map(|port| port.to_string());
    let server = script(stage, link, End::A, &["serve", &ports[0], &ports[1]]);
    let suffix = format!(":{:04X}", stage.port + 1);
    let is_bound = || {
        let text = std::fs::read_to_string("/proc/thread-self/net/udp6").unwrap();
        text.lines()
            .any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&suffix)))
    };
    until("the peer listens", || link.host(End::A).enter(is_bound).unwrap().then_some(()));
    server
}

/// Returns the UDP sessions that are away and have exchanged datagrams.
fn counted(admin: &mut Admin) -> Vec<SessionInfoT> {
    let is_it = |session: &SessionInfoT| {
        session.kind == KindT::Udp && session.datagrams_sent > 0 && session.datagrams_received > 0
    };
    admin.away().unwrap().into_iter().filter(is_it).collect()
}

/// Where the program's sockets are while they are away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Library,
    LibraryWithPorts,
    ProtocolServer,
}

/// Runs the program. Each time that it asks for its socket to be away, waits until this is so, then
/// answers. Returns the program's output, and the number of its questions.
fn told(link: &Link, accelerated: Accelerated, place: Place) -> (String, usize) {
    let has_ports = place == Place::LibraryWithPorts;
    let mut stage = Stage::either(link, accelerated, has_ports).unwrap();
    stage.worlds[1].set("SPIN", "never");
    let is_served = place == Place::ProtocolServer;
    if is_served {
        // Everybody's server has no protocol servers.
        stage.worlds[1].restart_for_own_user().unwrap();
        stage.worlds[1].set("HOME", "server");
    }
    let server = serve(&stage, link);
    let mut caller = script(&stage, link, End::B, &["call"]);
    let mut admin =
        (accelerated != Accelerated::Neither).then(|| Admin::new(&stage.worlds[1]).unwrap());
    // Streams of sockets that were away before, in order.
    let mut known = Vec::new();
    let mut asked = 0;
    while caller.is_running() {
        let next = ["away", "same"].map(|word| (word, format!("{}.{word}", asked + 1)));
        let found = next.into_iter().find(|(_, name)| stage.work().join(name).exists());
        let Some((word, name)) = found else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        asked += 1;
        if let Some(admin) = &mut admin {
            until(&name, || {
                if !caller.is_running() {
                    return Some(());
                }
                let away: Vec<u64> = counted(admin).iter().map(|session| session.stream).collect();
                match word {
                    "away" => {
                        let new = away.into_iter().find(|stream| !known.contains(stream))?;
                        known.push(new);
                    }
                    // An option sends a socket home from the protocol server.
                    _ if is_served => {}
                    // The socket must not have been home since the last question.
                    _ => assert!(away.contains(known.last().unwrap()), "{name}: it went home"),
                }
                Some(())
            });
        }
        std::fs::write(stage.work().join(format!("{name}.yes")), "").unwrap();
    }
    let output = caller.finish(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{accelerated:?}: {output:#?}");
    std::fs::write(stage.end_file(), "").unwrap();
    server.finish(LIMIT).unwrap();
    stage.end().unwrap();
    (output.out, asked)
}

#[test]
fn it_is_what_the_kernel_tells() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let (plain, asked) = told(&link, Accelerated::Neither, Place::Library);
    for place in [Place::Library, Place::LibraryWithPorts, Place::ProtocolServer] {
        let (carried, asked_there) = told(&link, Accelerated::Client, place);
        let differ: Vec<_> =
            plain.lines().zip(carried.lines()).filter(|(plain, ours)| plain != ours).collect();
        assert!(differ.is_empty(), "{place:?} (plain, carried): {differ:#?}");
        let counts = (carried.lines().count(), asked_there);
        assert_eq!((plain.lines().count(), asked), counts, "{carried}");
    }
    assert!(plain.lines().count() > 70 && asked > 20, "{plain}");
    // The cases in question really ran.
    let has = |text: &str| plain.lines().any(|line| line.contains(text));
    assert!(has("merged 12000 1200 12000"), "{plain}");
    assert!(has("class b'class 40'") && has("class b'class 0'"), "{plain}");
    assert!(has("threads True") && !has("threads False") && !has(" False)"), "{plain}");
}

#[test]
fn who_shares_a_port_stays_unless_it_has_a_peer_of_its_own() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::new(&link, Accelerated::Client).unwrap();
    let server = serve(&stage, &link);
    let caller = script(&stage, &link, End::B, &["shares"]);
    let mut admin = Admin::new(&stage.worlds[1]).unwrap();
    let peer = format!("{}:{}", stage.address, stage.port);
    let is_own =
        |to: &Option<std::ffi::CString>| to.as_ref().is_some_and(|to| to.to_str() == Ok(&peer));
    let own = until("the connected one is away", || {
        let away = counted(&mut admin);
        assert!(away.iter().all(|session| is_own(&session.to)), "{away:?}");
        away.into_iter().next()
    });
    // Each datagram has three bytes.
    assert_eq!((own.sent, own.received), (own.datagrams_sent * 3, own.datagrams_received * 3));
    until("the other was refused", || {
        let refused = admin.refused().unwrap();
        let is_it = |one: &RefusedInfoT| one.pid == own.pid && one.reason == ReasonT::SharedPort;
        refused.iter().any(is_it).then_some(())
    });
    let listed = stage.worlds[1].sessions().unwrap();
    // The list has all programs of this machine.
    let is_its = |row: &&serde_json::Value| row["kind"] == "udp" && row["pid"] == own.pid;
    let its = listed["sessions"].as_array().unwrap().iter().filter(is_its);
    let (stays, away): (Vec<_>, Vec<_>) = its.partition(|row| row["home"] == "kernel");
    assert!(stays.len() == 1 && stays[0]["reason"] == "shared-port", "{stays:?}");
    assert!(away.len() == 1 && away[0]["to"] == peer, "{away:?}");
    assert!(away[0]["datagrams"]["received"].as_u64().unwrap() > 0, "{away:?}");
    std::fs::write(stage.work().join("1.shares.yes"), "").unwrap();
    let output = caller.finish(LIMIT).unwrap();
    assert_eq!((output.status, output.out.as_str()), (0, "shared\n"), "{output:#?}");
    // The server's counters include the last numbers that the program has published.
    let total = until("it is over", || {
        let stats = stage.worlds[1].stats().unwrap();
        (admin.away().unwrap().is_empty()).then_some(stats)
    });
    assert!(total["bytes"].as_u64().unwrap() >= own.sent + own.received, "{total}");
    std::fs::write(stage.end_file(), "").unwrap();
    server.finish(LIMIT).unwrap();
    stage.end().unwrap();
}
