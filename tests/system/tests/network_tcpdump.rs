//! Tests that tcpdump(8) on the interface sees every byte of a session that is away, in both
//! directions: by default, no frame that is sent bypasses the queueing discipline, where taps
//! receive copies.
//!
//! The program is the real one; its file is parsed here. Not here: the project's own capture
//! (`capture.rs`), and sockets that bypass the queueing discipline
//! (`crates/netif/tests/sockets.rs`). Needs root and network namespaces; skipped with a message
//! otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::Signal;
use sojourn_lab::Running;
use sojourn_lab::net::{End, Link};
use sojourn_session::SessionInfoT;
use sojourn_system::network::{Accelerated, Stage, filter_ports, hosts};
use sojourn_system::{Admin, LIMIT};
use sojourn_wire::frame::{self, Frame, LinkType as Header};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Number of questions while the session is away and tcpdump runs.
const QUESTIONS: u32 = 500;
/// A server that answers each line with the line in upper case, three times.
const SERVER: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
end, _ = listener.accept()
while line := end.recv(4096):
    end.sendall(line.upper() * 3)
";

#[track_caller]
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

/// Sends one line, and receives three.
fn ask(peer: &mut BufReader<TcpStream>, number: u32) {
    let question = question(number);
    peer.get_mut().write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    for _ in 0..3 {
        peer.read_line(&mut answer).unwrap();
    }
    assert_eq!(answer, question.to_uppercase().repeat(3));
}

fn question(number: u32) -> String {
    format!("question {number:06}\n")
}

/// Starts tcpdump on a host's end of the link, and waits until it captures.
fn tcpdump(stage: &Stage, link: &Link, end: End) -> (Running, PathBuf) {
    let file = stage.worlds[end as usize].folder().join("dump");
    let mut command = Command::new("tcpdump");
    link.host(end).place(&mut command);
    // The arguments of an ordinary user, and: each packet is written at once, tcpdump stays root,
    // and a large buffer keeps packets from being lost.
    command.args([
        "-i",
        link.interface(),
        "-n",
        "-U",
        "--immediate-mode",
        "-Z",
        "root",
        "-B",
        "16384",
    ]);
    command.arg("-w").arg(&file).args(["tcp", "port", &stage.port.to_string()]);
    let mut running = Running::start(command).unwrap();
    wait_for("tcpdump", || {
        assert!(running.is_running(), "tcpdump has ended");
        std::fs::metadata(&file).is_ok_and(|found| found.len() >= FILE_HEADER).then_some(())
    });
    (running, file)
}

/// Lengths of the headers of a file of tcpdump's (pcap-savefile(5)), and of each packet.
const FILE_HEADER: u64 = 24;
const PACKET_HEADER: usize = 16;

/// Returns the complete packets of a file.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let mut rest = bytes.get(FILE_HEADER as usize..).unwrap_or_default();
    let mut found = Vec::new();
    while let Some(head) = rest.first_chunk::<PACKET_HEADER>() {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(word(8), word(12), "a packet is whole");
        let Some(packet) = rest.get(PACKET_HEADER..PACKET_HEADER + word(8)) else { break };
        found.push(packet.to_vec());
        rest = &rest[PACKET_HEADER + word(8)..];
    }
    found
}

/// Returns the bytes of one direction, from the first that is there. `None` if bytes are missing in
/// between: two processors may write their packets in either order.
fn bytes_of(packets: &[Vec<u8>], is_it: impl Fn(&Frame<'_>) -> bool) -> Option<String> {
    let mut bytes: BTreeMap<i32, u8> = BTreeMap::new();
    let mut first = None;
    for packet in packets {
        let frame = frame::parse(packet, Header::Ethernet).unwrap();
        if !is_it(&frame) {
            continue;
        }
        let seq = frame.segment().unwrap().seq().0;
        let at = seq.wrapping_sub(*first.get_or_insert(seq)).cast_signed();
        bytes.extend((at..).zip(frame.payload().iter().copied()));
    }
    let places: Vec<_> = bytes.keys().copied().collect();
    let is_whole = places.windows(2).all(|two| two[1] == two[0] + 1);
    is_whole.then(|| String::from_utf8(bytes.into_values().collect()).unwrap())
}

/// Asks until a session is away and has transferred bytes past the kernel; returns it.
fn away(admin: &mut Admin, peer: &mut BufReader<TcpStream>, next: &mut u32) -> SessionInfoT {
    wait_for("a session that is away", || {
        ask(peer, *next);
        *next += 1;
        let found = admin.away().unwrap().pop();
        found.filter(|one| one.sent > 1000 && one.received > 1000)
    })
}

fn play(has_ports: bool) {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::either(&link, Accelerated::Server, has_ports).unwrap();
    let mut server = stage.command(End::A, "python3");
    server.args(["-c", SERVER, &stage.address, &stage.port.to_string()]);
    let server = Running::start(server).unwrap();
    stage.await_listener(&link, stage.port).unwrap();
    let address = (link.v4(End::A), stage.port);
    let peer = b.enter(|| TcpStream::connect(address)).unwrap().unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut peer = BufReader::new(peer);
    let mut admin = stage.admins().unwrap().remove(0);
    let mut next = 0;
    let before = away(&mut admin, &mut peer, &mut next);
    assert_eq!(filter_ports(&a).unwrap(), usize::from(has_ports));

    let (running, file) = tcpdump(&stage, &link, End::A);
    let asked = next..next + QUESTIONS;
    let output = |is_out: bool| {
        let is_it = |frame: &Frame<'_>| (frame.key.source.port() == stage.port) == is_out;
        bytes_of(&packets(&file), is_it)
    };
    let mut expected = String::new();
    for number in asked {
        ask(&mut peer, number);
        expected += &question(number);
        // tcpdump's buffer has room for 256 packets, and on a busy machine tcpdump runs late.
        if number % 32 == 0 {
            wait_for("questions in tcpdump's file", || {
                output(false).filter(|found| found.len() >= expected.len())
            });
        }
    }
    let thrice = |line: &str| format!("{line}\n").repeat(3).to_uppercase();
    let answers: String = expected.lines().map(thrice).collect();
    for (is_out, expected) in [(false, &expected), (true, &answers)] {
        wait_for(&format!("all in tcpdump's file, sent: {is_out}"), || {
            output(is_out).filter(|found| found.len() >= expected.len())
        });
        assert!(output(is_out).as_ref() == Some(expected), "sent: {is_out}: {:?}", output(is_out));
    }
    let after = admin.away().unwrap().pop().unwrap();
    assert_eq!(after.stream, before.stream, "it has moved meanwhile");
    running.signal(Signal::INT);
    let told = running.finish(LIMIT).unwrap();
    assert!(told.status == 0 && told.err.contains("\n0 packets dropped by kernel"), "{told:?}");
    drop(peer);
    server.finish(LIMIT).unwrap();
    stage.end().unwrap();
}

#[test]
fn every_byte_both_ways() {
    if std::env::var_os("LAB_XDP").is_some() {
        // Short frames bypass the taps of the interface that they are sent on. Behind a port that
        // is the port's own: the next test.
        return;
    }
    play(false);
}

#[test]
fn every_byte_both_ways_through_a_port() {
    play(true);
}
