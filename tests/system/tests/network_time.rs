//! `sojourn time` of a session with another host, out of the kernel: its program stamps its own
//! layers while it is asked to, and stops when nobody asks.
//!
//! Not here: sessions in the kernel (`time`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::hosts;
use sojourn_system::{Admin, LIMIT};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const PORT: u16 = 411;
/// Answers each line with the line in upper case.
const SERVER: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET)
end, _ = listener.accept()
end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while line := end.recv(4096):
    end.sendall(line.upper())
";
const SEND: [&str; 4] = ["entry_copy_in", "protocol_output", "ip_output", "link_output"];
const RECEIVE: [&str; 6] =
    ["queue", "ip_input", "protocol_input", "wake_up", "in_socket", "copy_out_exit"];

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

/// One line there and back.
fn ask(peer: &mut BufReader<TcpStream>) {
    peer.get_mut().write_all(b"a question\n").unwrap();
    let mut line = String::new();
    peer.read_line(&mut line).unwrap();
    assert_eq!(line, "A QUESTION\n");
}

/// Lines there and back until the command has ended; what it said.
fn told(world: &Sandbox, peer: &mut BufReader<TcpStream>, words: &[&str]) -> (i32, String, String) {
    let mut command = world.command(Mode::Plain, world.built().path("sojourn"));
    command.arg("time").args(words);
    let mut running = Running::start(command).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while running.is_running() {
        assert!(Instant::now() < deadline, "it does not end");
        ask(peer);
    }
    let finished = running.finish(LIMIT).unwrap();
    (finished.status, finished.out, finished.err)
}

fn row<'r>(way: &'r Value, name: &str) -> &'r Value {
    way["rows"].as_array().unwrap().iter().find(|row| row["row"] == name).unwrap()
}

/// All rows are timed, none is negative or out of proportion, and they add up.
fn check(way: &Value, names: &[&str]) {
    let share = |name: &&str| {
        assert_eq!(row(way, name)["is"], "timed", "{name}: {way}");
        row(way, name)["share_us"].as_f64().unwrap()
    };
    let shares: Vec<f64> = names.iter().map(share).collect();
    assert!(shares.iter().all(|us| (0.0..1e6).contains(us)), "{way}");
    let (sum, total) = (shares.iter().sum::<f64>(), way["total"]["mean_us"].as_f64().unwrap());
    assert!((sum - total).abs() < 0.02, "{sum} and {total}: {way}");
    assert!(way["total"]["count"].as_u64().unwrap() > 20, "{way}");
}

#[test]
fn a_session_in_its_program_is_timed_by_it_and_only_while_it_is_asked() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut world = Sandbox::on(&a).unwrap();
    world.set("MOVE_AFTER_CALLS", "4");
    let mut admin = Admin::new(&world).unwrap();
    let address = SocketAddr::new(link.v4(End::A).into(), PORT);
    let mut server = world.command(Mode::Sojourn, "python3");
    server.args(["-c", SERVER, &address.ip().to_string(), &PORT.to_string()]);
    let server = Running::start(server).unwrap();
    let mut peer = connect(&b, address);
    let deadline = Instant::now() + PATIENCE;
    while admin.away().unwrap().is_empty() || admin.connections().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the session does not move");
        ask(&mut peer);
    }
    let stream = admin.away().unwrap()[0].stream.to_string();

    let (status, out, err) = told(&world, &mut peer, &["--json", "--duration", "1.5", &stream]);
    assert_eq!(status, 0, "{out} {err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let session = &report["sessions"][0];
    assert_eq!((&session["home"], &session["kind"]), (&"library".into(), &"tcp".into()));
    assert_eq!(session["session"], stream.as_str());
    check(&session["send"], &SEND);
    check(&session["receive"], &RECEIVE);
    assert!(report["stamps"]["clock_us"].as_f64().unwrap() > 0.0, "{report}");

    // The wish is over: nothing is added until the next one, which counts from its own beginning.
    (0..50).for_each(|_| ask(&mut peer));
    let (status, out, err) = told(&world, &mut peer, &["--duration", "0.5", &stream]);
    assert!(status == 0 && out.contains("in the library"), "{out} {err}");
    assert!(out.contains("link output") && out.contains("means"), "{out}");

    let (status, _, err) = told(&world, &mut peer, &["123456789"]);
    assert!(status == 1 && err.contains("no session 123456789"), "{err}");
    drop(peer);
    drop(server);
}
