//! Tests of `sojourn capture`: the file has the packets that went over the link, in both
//! directions, while the session was away. And of `sojourn doctor`, which lists the objects
//! attached meanwhile.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::hosts;
use sojourn_system::{Admin, LIMIT};
use sojourn_wire::frame::{self, LinkType as Header};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// A privileged port (ip(7)): sessions have to come home to such ports too.
const PORT: u16 = 410;
/// A server that answers each line with the line in upper case.
const SERVER: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET)
end, _ = listener.accept()
while line := end.recv(4096):
    end.sendall(line.upper())
";

/// A packet of the capture file.
struct Packet {
    interface: String,
    is_out: bool,
    time_ns: u64,
    comment: String,
    frame: Vec<u8>,
}

/// Reads a capture file. Written from the draft of the format (pcapng) rather than from the
/// project's writer, so that an error of the writer is seen.
fn read(path: &Path) -> Vec<Packet> {
    let file = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut interfaces, mut packets, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    while at < file.len() {
        let total = word(at + 4) as usize;
        assert_eq!(word(at + total - 4) as usize, total, "a block's lengths agree");
        let options = |from: usize| {
            let (mut found, mut at, end) = (BTreeMap::new(), from, at + total - 4);
            while at < end && word(at) != 0 {
                let (code, len) = (word(at) & 0xffff, (word(at) >> 16) as usize);
                found.insert(code, file[at + 4..at + 4 + len].to_vec());
                at += 4 + len.next_multiple_of(4);
            }
            found
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match word(at) {
            0x0a0d_0d0a => assert_eq!(word(at + 8), 0x1a2b_3c4d),
            1 => {
                assert_eq!(word(at + 8) & 0xffff, 1, "Ethernet");
                let options = options(at + 16);
                assert_eq!(options[&9], [9], "times are in nanoseconds");
                interfaces.push(text(&options[&2]));
            }
            5 => {
                let dropped = &options(at + 20)[&5];
                counted.push(u64::from_le_bytes(dropped[..].try_into().unwrap()));
            }
            6 => {
                let len = word(at + 20) as usize;
                assert_eq!(word(at + 24) as usize, len, "a frame is whole");
                let options = options(at + 28 + len.next_multiple_of(4));
                packets.push(Packet {
                    interface: interfaces[word(at + 8) as usize].clone(),
                    is_out: options[&2][0] & 3 == 2,
                    time_ns: u64::from(word(at + 12)) << 32 | u64::from(word(at + 16)),
                    comment: options.get(&1).map(|bytes| text(bytes)).unwrap_or_default(),
                    frame: file[at + 28..at + 28 + len].to_vec(),
                });
            }
            other => panic!("a block of type {other}"),
        }
        at += total;
    }
    assert_eq!(counted, vec![0; interfaces.len()], "nothing was lost");
    packets
}

/// Returns the bytes of one direction, from the first that was captured. Panics if bytes are
/// missing in between.
fn stream(packets: &[Packet], is_out: bool) -> String {
    let mut bytes: BTreeMap<u32, u8> = BTreeMap::new();
    let mut first = None;
    for packet in packets.iter().filter(|packet| packet.is_out == is_out) {
        let frame = frame::parse(&packet.frame, Header::Ethernet).unwrap();
        let segment = frame.segment().unwrap();
        let first = *first.get_or_insert(segment.seq().0);
        for (at, byte) in (0..).zip(frame.payload()) {
            bytes.insert(segment.seq().0.wrapping_sub(first).wrapping_add(at), *byte);
        }
    }
    let places: Vec<_> = bytes.keys().copied().collect();
    assert!(places.windows(2).all(|two| two[1] == two[0] + 1), "bytes are missing between");
    String::from_utf8(bytes.into_values().collect()).unwrap()
}

/// Sends one line and receives the answer.
fn ask(peer: &mut BufReader<TcpStream>, number: u32) {
    peer.get_mut().write_all(format!("question {number:06}\n").as_bytes()).unwrap();
    let mut line = String::new();
    peer.read_line(&mut line).unwrap();
    assert_eq!(line, format!("QUESTION {number:06}\n"));
}

fn connect(host: &Host, address: SocketAddr) -> BufReader<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(peer) = host.enter(|| TcpStream::connect(address)).unwrap() {
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            peer.set_nodelay(true).unwrap();
            return BufReader::new(peer);
        }
        assert!(Instant::now() < deadline, "nobody listens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn capture(world: &Sandbox, file: &Path, words: &[&str]) -> Running {
    let mut command: Command = world.command(Mode::Plain, world.built().path("sojourn"));
    command.args(["capture", "-w"]).arg(file).args(words);
    let running = Running::start(command).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // The file has its first blocks once the capture runs.
    while std::fs::metadata(file).map_or(0, |found| found.len()) == 0 {
        assert!(Instant::now() < deadline, "no capture");
        std::thread::sleep(Duration::from_millis(5));
    }
    running
}

fn ended(running: Running) -> String {
    running.signal(rustix::process::Signal::INT);
    let finished = running.finish(LIMIT).unwrap();
    assert!(finished.status == 0, "{finished:?}");
    finished.err
}

#[test]
fn both_directions_from_the_move_on() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut world = Sandbox::on(&a).unwrap();
    world.set("MOVE_AFTER_CALLS", "4");
    let mut admin = Admin::new(&world).unwrap();
    let address = SocketAddr::new(link.v4(End::A).into(), PORT);
    let mut server = world.command(Mode::Sojourn, "python3");
    server.args(["-c", SERVER, &address.ip().to_string(), &PORT.to_string()]);
    let server = Running::start(server).unwrap();
    let [whole, other, few] = ["whole", "other", "few"].map(|name| world.folder().join(name));
    let running = capture(&world, &whole, &["-i", link.interface()]);
    let elsewhere = capture(&world, &other, &["-i", link.interface(), "--port", "1"]);

    let mut peer = connect(&b, address);
    let deadline = Instant::now() + PATIENCE;
    let mut number = 0;
    while admin.away().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the session does not move");
        ask(&mut peer, number);
        number += 1;
    }
    // The stream is joined. The session is away only when the kernel drops its packets, which is so
    // when a capture of this session has some.
    let session = admin.away().unwrap()[0].stream.to_string();
    let mut limited = capture(&world, &few, &["--session", &session, "--count", "10"]);
    while limited.is_running() {
        assert!(Instant::now() < deadline, "ten packets do not come: is the session carried?");
        ask(&mut peer, number);
        number += 1;
    }
    let output = limited.finish(LIMIT).unwrap();
    assert!(output.status == 0 && output.err.contains("10 packets captured"), "{output:?}");
    assert_eq!(read(&few).len(), 10);
    assert_eq!(attached(&world), ["hook sojourn_ingress"]);
    let first = number;
    while number < first + 300 {
        ask(&mut peer, number);
        number += 1;
    }

    let returns = admin.moves().unwrap().returns;
    admin.recall_all().unwrap();
    while admin.moves().unwrap().returns == returns {
        assert!(Instant::now() < deadline, "the session does not come home");
        std::thread::sleep(Duration::from_millis(5));
    }
    let last = number;
    (last..last + 3).for_each(|number| ask(&mut peer, number));

    let output = ended(running);
    assert!(output.contains(" of 1 sessions"), "{output}");
    assert!(ended(elsewhere).contains("0 packets captured"));
    assert!(read(&other).is_empty());
    check(&read(&whole), link.interface(), first..last);
    drop(server);
    drop(peer);
    let deadline = Instant::now() + PATIENCE;
    while !attached(&world).is_empty() {
        assert!(Instant::now() < deadline, "the filter stays after the last session");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that all lines are there in both directions, and that every packet names its program and
/// interface.
fn check(packets: &[Packet], interface: &str, numbers: std::ops::Range<u32>) {
    for (is_out, word) in [(false, "question"), (true, "QUESTION")] {
        let bytes = stream(packets, is_out);
        for number in numbers.clone() {
            let line = format!("{word} {number:06}\n");
            assert!(bytes.contains(&line), "{line:?} is not in the capture");
        }
    }
    let is_named =
        |packet: &Packet| packet.comment.starts_with("python3") && packet.interface == interface;
    assert!(packets.iter().all(is_named), "{}", packets[0].comment);
    // Two processors may queue packets in the other order than they have stamped them.
    let is_later = |two: &[Packet]| two[0].time_ns < two[1].time_ns + 1_000_000;
    assert!(packets.windows(2).all(is_later), "in order of time");
}

/// Checks the output of `sojourn doctor`; returns the objects that the sandbox's server keeps on
/// interfaces.
fn attached(world: &Sandbox) -> Vec<String> {
    let mut command = world.command(Mode::Plain, world.built().path("sojourn"));
    command.args(["doctor", "--json"]);
    let output = Running::start(command).unwrap().finish(LIMIT).unwrap();
    let told: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    let items = told["items"].as_array().unwrap();
    let state =
        |name: &str| items.iter().find(|item| item["name"] == name).unwrap()["state"].clone();
    for name in
        ["network-server", "network-rights", "packet-filter", "bpf", "tcp_repair", "packet-fanout"]
    {
        assert_eq!(state(name), "ok", "{name}: {told}");
    }
    let carrier = u64::from(world.server_part("carrier").unwrap());
    let on_link = |one: &&serde_json::Value| one["interface"] != "";
    let attached = told["attached"].as_array().unwrap().iter().filter(on_link);
    let words = |one: &serde_json::Value| {
        // The server itself, or the keeper, which holds the objects for the case of the server's
        // death.
        let keeper = &one["kept_by"][0];
        assert!(keeper["pid"] == carrier || keeper["program"] == "sojourn-keeper", "{one}");
        assert_eq!(one["is_left_over"], false, "{one}");
        format!("{} {}", one["what"].as_str().unwrap(), one["name"].as_str().unwrap())
    };
    attached.map(words).collect()
}

#[test]
fn without_the_right_it_says_what_to_do() {
    let world = Sandbox::new().unwrap();
    let mut command = world.command(Mode::Plain, "setpriv");
    command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"]);
    command.arg(world.built().path("sojourn")).args(["capture", "-w", "/dev/null"]);
    let finished = Running::start(command).unwrap().finish(LIMIT).unwrap();
    assert_eq!(finished.status, 1, "{finished:?}");
    assert!(finished.err.contains("CAP_NET_RAW") && finished.err.contains("root"), "{finished:?}");
}
