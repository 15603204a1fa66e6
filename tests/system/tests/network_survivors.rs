//! Tests that who is left of a session hears of its end, although its own session server, or that
//! of the other end, is busy with the session, ends or dies in the same moment.
//!
//! The survivors only wait for bytes: whoever sends something hears of the end by the answer, and
//! is not tested here. Deaths of the server alone: `network_server`. Needs rights over networks;
//! skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use sojourn_lab::Running;
use sojourn_lab::net::{End, Host, Link};
use sojourn_system::leftovers::Leftovers;
use sojourn_system::network::{Accelerated, Stage, hosts, next_port};
use sojourn_system::{Admin, LIMIT};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait for any condition: longer than a keeper waits for the next server.
const PATIENCE: Duration = Duration::from_secs(20);
/// Questions after which a session is worth a move.
const FEW: &str = "6";
/// Resets in the middle of a move.
const ROUNDS: usize = 4;
/// Time in which the kernel of a host hears of a byte that comes to it.
const UNHEARD: Duration = Duration::from_millis(3);
/// Asks until the stage's file of the end is there.
const ALWAYS: &str = "0";

fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts `waits.py` at an end, for the stage's port.
fn waits(stage: &Stage, end: End, words: &[&str]) -> Running {
    waits_at(stage, stage.port, end, words)
}

fn waits_at(stage: &Stage, port: u16, end: End, words: &[&str]) -> Running {
    let mut command = stage.command(end, "python3");
    command.arg(stage.programs().join("net/waits.py")).arg(words[0]);
    command.args([&stage.address, &port.to_string()]).args(&words[1..]);
    command.env("PYTHONUNBUFFERED", "1");
    Running::start(command).unwrap()
}

fn listen(link: &Link, stage: &Stage) -> TcpListener {
    listen_at(link, stage, stage.port)
}

fn listen_at(link: &Link, stage: &Stage, port: u16) -> TcpListener {
    let address = (stage.address.clone(), port);
    // A child that another test is just starting may have the listener of before until its exec.
    wait_for("a port that is free", || {
        link.host(End::A).enter(|| TcpListener::bind(&address).ok()).unwrap()
    })
}

/// Answers the questions of a program up to its last, and that with `last`.
fn answer(tcp: &mut TcpStream, last: &[u8]) {
    tcp.set_nodelay(true).unwrap();
    let mut question = [0];
    while question != *b"." {
        tcp.read_exact(&mut question).unwrap();
        tcp.write_all(if question == *b"." { last } else { b"!" }).unwrap();
    }
}

/// Returns a counter of the host's kernel, from a file whose lines come in pairs: names and values.
fn counter(host: &Host, file: &str, name: &str) -> u64 {
    let read = || std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let text = host.enter(read).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut pairs = lines
        .chunks(2)
        .flat_map(|pair| pair[0].split_whitespace().zip(pair[pair.len() - 1].split_whitespace()));
    pairs.find(|(one, _)| *one == name).unwrap().1.parse().unwrap()
}

/// Returns how many window probes the host's kernel has sent.
fn window_probes(host: &Host) -> u64 {
    counter(host, "netstat", "TCPWinProbe")
}

/// Sends byte after byte until the kernel of the host hears of none any more.
fn say_until_turned_away(host: &Host, peer: &mut TcpStream) {
    let heard = || counter(host, "snmp", "InSegs");
    wait_for("packets that are turned away", || {
        std::thread::sleep(Duration::from_millis(1));
        let before = heard();
        peer.write_all(b"+").unwrap();
        let deadline = Instant::now() + UNHEARD;
        while heard() == before {
            if Instant::now() > deadline {
                return Some(());
            }
        }
        None
    });
}

/// A program leaves bytes unread while its session moves, so its packets are turned away from the
/// kernel for 20 ms, and come back. Meanwhile the peer resets the connection, which it does once.
/// `then` says what the server does about that, and returns what its end has said. With
/// `has_other` another session is away all the time, so that there is a keeper.
fn hears_of_a_reset(has_other: bool, then: impl Fn(&mut Stage) -> String) {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut stage = Stage::new(&link, Accelerated::Client).unwrap();
    let other = has_other.then(|| {
        let port = next_port();
        let listener = listen_at(&link, &stage, port);
        let program = waits_at(&stage, port, End::B, &["ask", ALWAYS, "0"]);
        let mut peer = listener.accept().unwrap().0;
        let answers = std::thread::spawn(move || answer(&mut peer, b"!"));
        await_away(&stage, End::B);
        (program, answers)
    });
    let before = window_probes(&b);
    let mut said = String::new();
    for round in 0..ROUNDS {
        if other.is_some() {
            // The server's end has sent it home. Without a session that is away the keeper ends
            // with the server.
            await_away(&stage, End::B);
        }
        let listener = listen(&link, &stage);
        let program = waits(&stage, End::B, &["ask", FEW, "0.4"]);
        let mut peer = listener.accept().unwrap().0;
        // The program reads one byte.
        answer(&mut peer, b"!+");
        say_until_turned_away(&b, &mut peer);
        set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        said += &then(&mut stage);
        let output = program.finish(LIMIT).unwrap();
        println!(
            "{round}: {} probes {}",
            window_probes(&b) - before,
            said.contains("was nobody's")
        );
        assert_eq!((output.status, output.out.trim()), (0, "reset"), "round {round}: {output:?}");
    }
    let came_back = window_probes(&b) > before || said.contains("was nobody's");
    assert!(came_back, "no session's packets were turned away and came back");
    std::fs::write(stage.end_file(), "").unwrap();
    if let Some((program, answers)) = other {
        answers.join().unwrap();
        assert_eq!(program.finish(LIMIT).unwrap().out.trim(), "end");
    }
    let left = Leftovers::of(&link, End::B, &stage.worlds[1]);
    let _ = stage.end();
    left.assert_none();
}

#[test]
fn a_reset_is_heard_in_the_middle_of_a_move() {
    hears_of_a_reset(false, |_| String::new());
}

/// Ends the server, and starts the next; returns what both have said.
fn next_server(stage: &mut Stage, signal: Signal) -> String {
    let mut said = stage.worlds[1].end_server(signal).unwrap().err;
    stage.worlds[1].start_server().unwrap();
    // The one that has come says what it found when it ends.
    said += &stage.worlds[1].stop_server().unwrap().err;
    stage.worlds[1].start_server().unwrap();
    said
}

#[test]
fn a_reset_is_heard_in_the_middle_of_a_move_whose_server_is_killed() {
    hears_of_a_reset(true, |stage| next_server(stage, Signal::KILL));
}

#[test]
fn a_reset_is_heard_in_the_middle_of_a_move_whose_server_ends() {
    hears_of_a_reset(false, |stage| next_server(stage, Signal::TERM));
}

/// Waits until a session of that end is away and its program carries it.
fn await_away(stage: &Stage, end: End) {
    let mut admin = Admin::new(&stage.worlds[end as usize]).unwrap();
    wait_for("a session that is away", || {
        admin.away().unwrap().iter().any(|session| session.received > 0).then_some(())
    });
}

/// Waits until no end of a session on the host has bytes that are not acknowledged: such a session
/// is no session whose ends only wait.
fn await_quiet(host: &Host) {
    let read = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    wait_for("acknowledgements", || {
        let text = host.enter(read).unwrap();
        let is_quiet = |line: &str| line.split_whitespace().nth(4).unwrap().starts_with("00000000");
        text.lines().skip(1).all(is_quiet).then_some(())
    });
}

/// The deaths of one case.
#[derive(Clone, Copy, Debug)]
struct Deaths {
    /// The way in which the server ends.
    signal: Signal,
    /// The server ends first.
    is_server_first: bool,
    /// Time from the first to the second.
    between_ms: u64,
    /// The next server is started.
    restarts: bool,
}

/// A program whose session is away is killed, and its server ends. The peer, which has nothing to
/// say, hears of it.
fn program_and_server_end(link: &Link, deaths: Deaths) {
    let Deaths { signal, is_server_first, between_ms, restarts } = deaths;
    let mut stage = Stage::new(link, Accelerated::Client).unwrap();
    let listener = listen(link, &stage);
    let program = waits(&stage, End::B, &["ask", ALWAYS, "60"]);
    let mut peer = listener.accept().unwrap().0;
    let mut heard = peer.try_clone().unwrap();
    let answers = std::thread::spawn(move || answer(&mut peer, b"!"));
    await_away(&stage, End::B);
    std::fs::write(stage.end_file(), "").unwrap();
    answers.join().unwrap();
    await_quiet(link.host(End::A));
    for is_server in [is_server_first, !is_server_first] {
        match is_server {
            true => drop(stage.worlds[1].end_server(signal).unwrap()),
            false => program.signal(Signal::KILL),
        }
        std::thread::sleep(Duration::from_millis(between_ms));
    }
    if restarts {
        stage.worlds[1].start_server().unwrap();
    }
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let found = heard.read(&mut [0; 16]).map_err(|error| error.kind());
    let has_heard = matches!(found, Ok(0) | Err(std::io::ErrorKind::ConnectionReset));
    assert!(has_heard, "{deaths:?}: {found:?}");
    let _ = program.finish(LIMIT);
    let left = Leftovers::of(link, End::B, &stage.worlds[1]);
    let _ = stage.end();
    left.assert_none();
}

#[test]
fn a_peer_that_waits_hears_of_a_program_and_its_server() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for between_ms in [0, 1, 10] {
        for (signal, is_server_first) in
            [(Signal::KILL, false), (Signal::KILL, true), (Signal::TERM, false)]
        {
            let deaths = Deaths { signal, is_server_first, between_ms, restarts: true };
            program_and_server_end(&link, deaths);
        }
    }
}

/// No server comes: the keeper ends what it holds, after a few seconds.
#[test]
fn a_peer_that_waits_hears_of_a_program_whose_server_does_not_come_back() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let (signal, is_server_first) = (Signal::KILL, true);
    let deaths = Deaths { signal, is_server_first, between_ms: 0, restarts: false };
    program_and_server_end(&link, deaths);
}

/// The survivor is under Sojourn as well, and its own server ends in order.
#[test]
fn a_program_that_waits_hears_of_its_peer_while_its_server_ends() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for (killed, after_ms) in [0, 2, 10, 40].into_iter().flat_map(|ms| [(0, ms), (1, ms)]) {
        let mut stage = Stage::new(&link, Accelerated::Both).unwrap();
        let serves = waits(&stage, End::A, &["serve"]);
        stage.await_listener(&link, stage.port).unwrap();
        let asks = waits(&stage, End::B, &["ask", ALWAYS, "0"]);
        await_away(&stage, End::A);
        await_away(&stage, End::B);
        std::fs::write(stage.end_file(), "").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let (dies, survives) = if killed == 0 { (serves, asks) } else { (asks, serves) };
        dies.signal(Signal::KILL);
        std::thread::sleep(Duration::from_millis(after_ms));
        stage.worlds[1 - killed].stop_server().unwrap();
        stage.worlds[1 - killed].start_server().unwrap();
        let output = survives.finish(LIMIT).unwrap();
        let has_heard = ["end", "reset"].contains(&output.out.trim());
        assert!(has_heard, "{killed} killed, {after_ms} ms: {output:?}");
        let _ = dies.finish(LIMIT);
        let _ = stage.end();
    }
}

/// Connections whose process ends in the middle, by itself or killed.
const ORPHANS: u32 = 20;

/// The child may use the connection before the carrier knows that the process has ended.
#[test]
fn a_child_goes_on_with_a_connection_whose_process_ends() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::new(&link, Accelerated::Server).unwrap();
    let role = |end, role: &str| {
        let mut command = stage.command(end, "python3");
        command.arg(stage.programs().join("orphan.py")).args([role, &stage.address]);
        command.args([stage.port.to_string(), ORPHANS.to_string()]);
        Running::start(command).unwrap()
    };
    let server = role(End::A, "serve");
    stage.await_listener(&link, stage.port).unwrap();
    let client = role(End::B, "call");
    for program in [client, server] {
        let output = program.finish(LIMIT).unwrap().success("a role").unwrap();
        assert_eq!(output, "all is well\n");
    }
    assert!(stage.moves().unwrap() >= u64::from(ORPHANS / 2), "most have moved");
}
