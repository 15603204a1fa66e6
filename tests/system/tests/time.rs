//! `sojourn time`: what the kernel's stamps say of plain programs, of a socket that is in use, of a
//! session that has moved; and what the command says where it cannot measure.
//!
//! Every test runs real programs. Without root on a kernel with eBPF only the tests about words
//! run. Not here: the arithmetic of the rows (`sojourn-time`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use sojourn_lab::{Finished, Mode, Running, Sandbox};
use sojourn_system::{Admin, LIMIT};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const MESSAGES: u64 = 300;
const SEND: [&str; 4] = ["entry_copy_in", "protocol_output", "ip_output", "link_output"];

/// A process and its child: bytes there and back, `sys.argv[2]` times; then an end with status 7.
const ECHO: &str = "
import os, socket, sys, time
kind, count = sys.argv[1], int(sys.argv[2])
pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0
def pair():
    if kind == 'unix':
        return [(end.recv, end.sendall) for end in socket.socketpair()]
    if kind == 'pipe':
        there, back = os.pipe(), os.pipe()
        return [(lambda n, fd=a: os.read(fd, n), lambda d, fd=b: os.write(fd, d)) for a, b in ((back[0], there[1]), (there[0], back[1]))]
    family = socket.AF_INET6 if '6' in kind else socket.AF_INET
    host = '::1' if '6' in kind else '127.0.0.1'
    if kind.startswith('udp'):
        ends = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(2)]
        for end in ends: end.bind((host, 0))
        for end, other in zip(ends, ends[::-1]): end.connect(other.getsockname()[:2])
    else:
        listener = socket.create_server((host, 0), family=family)
        client = socket.create_connection(listener.getsockname()[:2])
        ends = [client, listener.accept()[0]]
        for end in ends: end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    globals()['kept'] = ends
    return [(end.recv, end.sendall if kind.startswith('tcp') else end.send) for end in ends]
(ask_in, ask_out), (answer_in, answer_out) = pair()
child = os.fork()
if child == 0:
    for _ in range(count): answer_out(answer_in(100))
    os._exit(0)
for number in range(count):
    ask_out(b'x' * 10)
    assert len(ask_in(100)) == 10
    if pause: time.sleep(pause)
os.waitpid(child, 0)
sys.exit(7)
";

/// `serve PORT_FILE`, and `call PORT END_FILE`: bytes there and back until the file is there.
/// Nothing is on its way when an end sends, so both directions leave the kernel soon after the
/// move.
const EXCHANGE: &str = "
import os, socket, sys
if sys.argv[1] == 'serve':
    listener = socket.create_server(('127.0.0.1', 0))
    with open(sys.argv[2] + '.new', 'w') as file: file.write(str(listener.getsockname()[1]))
    os.rename(sys.argv[2] + '.new', sys.argv[2])
    end = listener.accept()[0]
    while got := end.recv(100): end.sendall(got)
else:
    end = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
    while not os.path.exists(sys.argv[3]):
        for _ in range(100):
            end.sendall(b'x' * 10)
            assert end.recv(100) == b'x' * 10
";

fn sojourn(world: &Sandbox, words: &[&str]) -> Finished {
    let mut command = world.command(Mode::Plain, world.built().path("sojourn"));
    command.args(words);
    Running::start(command).unwrap().finish(LIMIT).unwrap()
}

/// A world in which the kernel's stamps can be taken; none says why.
fn world() -> Option<Sandbox> {
    let world = Sandbox::new().unwrap();
    let tried = sojourn(&world, &["time", "--", "true"]);
    if tried.status != 0 {
        assert!(!rustix::process::geteuid().is_root() || tried.err.contains("kernel"), "{tried:?}");
        eprintln!("skipped: {}", tried.err);
        return None;
    }
    Some(world)
}

/// The report of a program, from a file, so that the program's own words are not in it.
fn report(world: &Sandbox, words: &[&str], program: &[&str]) -> (Finished, Value) {
    let file = world.folder().join("report");
    let own = ["time", "--json", "-o", file.to_str().unwrap()];
    let finished = sojourn(world, &[&own, words, program].concat());
    let text = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{finished:?}"));
    (finished, serde_json::from_str(&text).unwrap())
}

fn sessions<'r>(report: &'r Value, kind: &str) -> Vec<&'r Value> {
    let all = report["sessions"].as_array().unwrap().iter();
    all.filter(|session| session["kind"] == kind && session["send"]["calls"] != 0).collect()
}

/// The rows of a direction add up to its total, and none is negative.
fn check_sums(way: &Value) {
    let rows = way["rows"].as_array().unwrap();
    let shares: Vec<f64> = rows.iter().filter_map(|row| row["share_us"].as_f64()).collect();
    assert!(!shares.is_empty() && shares.iter().all(|share| *share >= 0.0), "{way}");
    let (sum, total) = (shares.iter().sum::<f64>(), way["total"]["mean_us"].as_f64().unwrap());
    assert!((sum - total).abs() < 0.001 * total + 0.001, "{sum} and {total}: {way}");
}

fn row<'w>(way: &'w Value, name: &str) -> &'w Value {
    way["rows"].as_array().unwrap().iter().find(|row| row["row"] == name).unwrap()
}

#[test]
fn every_kind_of_session_of_a_plain_program_is_timed_and_its_status_passed_on() {
    let Some(world) = world() else { return };
    for kind in ["tcp", "tcp6", "udp", "udp6", "unix", "pipe"] {
        let count = MESSAGES.to_string();
        let program = ["--", "python3", "-c", ECHO, kind, &count];
        let (finished, told) = report(&world, &[], &program);
        assert_eq!(finished.status, 7, "{kind}: {finished:?}");
        let ends = sessions(&told, kind.trim_end_matches('6'));
        // Python has a pipe of its own, perhaps, which has fewer messages.
        let busy: Vec<_> =
            ends.iter().filter(|end| end["send"]["calls"].as_u64().unwrap() >= MESSAGES).collect();
        assert_eq!(busy.len(), 2, "{kind}: {told}");
        for end in busy {
            let (send, receive) = (&end["send"], &end["receive"]);
            check_sums(send);
            check_sums(receive);
            assert_eq!(send["calls"], MESSAGES, "{kind}: {send}");
            assert_eq!(send["total"]["count"], MESSAGES, "{kind}: {send}");
            // A pipe's reader that is not asleep is not woken.
            let least = if kind == "pipe" { 1 } else { MESSAGES * 9 / 10 };
            assert!(receive["total"]["count"].as_u64().unwrap() >= least, "{kind}: {receive}");
            assert_eq!(row(receive, "copy_out_exit")["is"], "timed", "{kind}: {receive}");
            if kind.starts_with(['t', 'u']) && kind != "unix" {
                assert_eq!(row(send, "link_output")["is"], "timed", "{kind}: {send}");
                assert!(SEND.iter().all(|name| row(send, name)["is"] != "absent"), "{send}");
                let host = if kind.ends_with('6') { "[::1]:" } else { "127.0.0.1:" };
                assert!(end["from"].as_str().unwrap().starts_with(host), "{kind}: {end}");
                assert!(end["transit"]["count"].as_u64().unwrap() > MESSAGES / 2, "{kind}: {end}");
            }
        }
        assert_eq!(told["stamps"]["events_lost"], 0, "{kind}: {told}");
        assert_eq!(told["stamps"]["out_of_order"], 0, "{kind}: {told}");
        assert!(told["stamps"]["cost_us"].as_f64().unwrap() > 0.0);
    }
}

/// The inodes of a process's sockets.
fn sockets(pid: u32) -> Vec<String> {
    let Ok(list) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = list.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inode = |link: std::path::PathBuf| {
        Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    links.filter_map(inode).collect()
}

#[test]
fn a_socket_in_use_is_timed_by_its_inode_and_others_are_not() {
    let Some(world) = world() else { return };
    let mut program: Command = world.command(Mode::Plain, "python3");
    program.args(["-c", ECHO, "tcp", "100000", "0.001"]);
    let mut running = Running::start(program).unwrap();
    let pid = running.pid();
    let deadline = Instant::now() + PATIENCE;
    let mut inodes = sockets(pid);
    while inodes.len() < 2 {
        assert!(running.is_running() && Instant::now() < deadline, "no sockets: {inodes:?}");
        std::thread::sleep(Duration::from_millis(10));
        inodes = sockets(pid);
    }
    let timed: Vec<(String, Value)> = inodes
        .iter()
        .map(|inode| {
            let name = format!("@{inode}");
            let (finished, told) = report(&world, &["--duration", "0.7", &name], &[]);
            assert_eq!(finished.status, 0, "{finished:?}");
            (name, told)
        })
        .collect();
    for (name, told) in &timed {
        let all = told["sessions"].as_array().unwrap();
        assert!(all.iter().all(|session| session["session"] == name.as_str()), "{told}");
    }
    let has_many = |told: &&(String, Value)| {
        sessions(&told.1, "tcp").iter().any(|end| end["send"]["calls"].as_u64().unwrap() > 20)
    };
    // Each is one end of the connection, and is told alone.
    assert_eq!(timed.iter().filter(has_many).count(), 2, "{timed:?}");
    let picture = world.folder().join("picture.svg");
    let (pid, file) = (pid.to_string(), picture.to_str().unwrap());
    let output = sojourn(&world, &["time", "--pid", &pid, "--duration", "0.5", "--svg", file]);
    assert!(output.status == 0 && output.out.contains("receive"), "{output:?}");
    assert!(std::fs::read_to_string(&picture).unwrap().contains("tcp in the kernel"));
    running.signal(rustix::process::Signal::KILL);
    // It ends with its holders, long before its time.
    let begun = Instant::now();
    let output = sojourn(&world, &["time", "--pid", &pid, "--duration", "25"]);
    assert!(output.status == 1 || begun.elapsed() < Duration::from_secs(20), "{output:?}");
}

#[test]
fn a_moved_session_says_where_it_is() {
    let Some(mut world) = world() else { return };
    world.set("MOVE_AFTER_CALLS", "4");
    // It must stay away, even where the kernel would be faster at this moment.
    world.set("MEASURE_BULK", "off");
    let mut admin = Admin::new(&world).unwrap();
    let [port, end] = ["port", "end"].map(|name| world.folder().join(name));
    let start = |words: &[&str]| {
        let mut command = world.command(Mode::Sojourn, "python3");
        command.args(["-c", EXCHANGE]).args(words);
        Running::start(command).unwrap()
    };
    let server = start(&["serve", port.to_str().unwrap()]);
    let deadline = Instant::now() + LIMIT;
    while !port.exists() {
        assert!(Instant::now() < deadline, "nobody listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    let port = std::fs::read_to_string(&port).unwrap();
    let running = [server, start(&["call", &port, end.to_str().unwrap()])];
    let session = loop {
        let away = admin.away().unwrap();
        if let Some(found) = away.into_iter().find(|end| end.sent > 0 && end.received > 0) {
            break found;
        }
        assert!(Instant::now() < deadline, "no bytes go both ways past the kernel");
        std::thread::sleep(Duration::from_millis(10));
    };
    let output = sojourn(&world, &["time", &session.stream.to_string()]);
    assert!(output.status == 1 && output.err.contains("two programs share"), "{output:?}");
    let pid = session.pid.to_string();
    let output = sojourn(&world, &["time", "--pid", &pid, "--duration", "0.5"]);
    assert_eq!(output.status, 0, "{output:?}");
    assert!(!output.out.contains("tcp @"), "its messages go through the kernel: {output:?}");
    std::fs::write(&end, "").unwrap();
    for peer in running {
        peer.finish(LIMIT).unwrap().success("a peer").unwrap();
    }
}

#[test]
fn what_is_not_there_and_what_may_not_be_is_said_with_the_next_step() {
    let world = Sandbox::new().unwrap();
    let output = sojourn(&world, &["time", "--", "no-such-program"]);
    assert!(output.status == 127 && output.err.contains("no such program"), "{output:?}");
    let output = sojourn(&world, &["time", "@18446744073709551615"]);
    assert!(output.status == 1 && output.err.contains("ss -e"), "{output:?}");
    let output = sojourn(&world, &["time", "--pid", "4294967295"]);
    assert!(output.status == 1 && output.err.contains("no process"), "{output:?}");
    let mut command = world.command(Mode::Plain, "setpriv");
    let without = "--bounding-set=-bpf,-perfmon,-sys_admin";
    command.args([without, "--inh-caps=-bpf,-perfmon,-sys_admin", "--"]);
    command.arg(world.built().path("sojourn")).args(["time", "--", "touch"]);
    let touched = world.folder().join("touched");
    command.arg(&touched);
    let output = Running::start(command).unwrap().finish(LIMIT).unwrap();
    assert!(output.status == 125 && output.err.contains("CAP_BPF"), "{output:?}");
    assert!(output.err.contains("sudo") && !touched.exists(), "{output:?}");
}

#[test]
fn a_program_that_a_signal_ends_gives_its_status() {
    let Some(world) = world() else { return };
    let (finished, told) = report(&world, &[], &["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(finished.status, 128 + 15, "{finished:?}");
    assert!(sessions(&told, "tcp").is_empty(), "{told}");
}
