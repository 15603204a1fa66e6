//! Tests that real programs do the same under Sojourn as without it, while their sessions move.
//!
//! The scripts are in `programs/`. Bash runs each once plainly and once as a whole under `sojourn
//! run`; the outputs must be the same. Not here: the preload library without a server
//! (`crates/preload/tests/programs.rs`) and single calls (`conform.rs`). Read
//! `docs/understand/testing.md` first.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running};
use sojourn_session::SessionInfoT;
use sojourn_system::world::{FOLDERS, World, programs};
use sojourn_system::{Admin, free_port};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(50);

/// Programs, and the Debian packages that have them.
const PACKAGES: [(&str, &str); 17] = [
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("nginx", "nginx"),
    ("wrk", "wrk"),
    ("psql", "postgresql"),
    ("memcached", "memcached"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("rsync", "rsync"),
    ("iperf3", "iperf3"),
    ("socat", "socat"),
    ("curl", "curl"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("java", "openjdk-17-jdk-headless"),
    ("setpriv", "util-linux"),
    ("gzip", "gzip"),
];

fn is_there(program: &str) -> bool {
    FOLDERS.iter().any(|folder| Path::new(folder).join(program).exists())
}

#[track_caller]
fn need(wanted: &[&str]) {
    for program in wanted {
        let package = PACKAGES.iter().find(|known| known.0 == *program).unwrap().1;
        assert!(is_there(program), "no {program}: install the package {package}");
    }
}

fn world(mode: Mode) -> World {
    let mut world = World::new(mode).unwrap();
    world.sandbox.set("MOVE_AFTER_CALLS", "4");
    world
}

/// Checks of a sandbox.
trait Looks {
    fn python(&self, script: &str, words: &[&str]) -> Running;
    fn check_clean(&self);
    fn regions(&self) -> usize;
}

impl Looks for World {
    fn python(&self, script: &str, words: &[&str]) -> Running {
        let mut command = self.command("bash");
        let script = programs().join(script);
        command.args(["-c", "ulimit -n 8192; exec python3 \"$@\"", "-"]).arg(script).args(words);
        Running::start(command).unwrap()
    }

    /// Checks that nothing is left of programs that have ended: no process, session, region or
    /// file.
    fn check_clean(&self) {
        let left = self.left_behind();
        assert!(left.is_empty(), "left behind: {left:?}");
        let mut admin = Admin::new(&self.sandbox).unwrap();
        wait_for("sessions forgotten", || admin.away().unwrap().is_empty());
        wait_for("regions closed", || self.regions() == 0);
        let mut files: Vec<String> = std::fs::read_dir(self.sandbox.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        files.retain(|name| name != "work" && !name.starts_with("server"));
        assert!(files.is_empty(), "files left: {files:?}");
    }

    /// Counts the regions that the server holds, which are memory files.
    fn regions(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.sandbox.server_part("front").unwrap());
        let links = std::fs::read_dir(folder).unwrap().flatten();
        let names = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.to_string_lossy().contains("memfd:sojourn")).count()
    }
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within 15 seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a script; returns its output, and the number of streams.
#[track_caller]
fn run(mode: Mode, script: &str) -> (String, u64) {
    let world = world(mode);
    let command = world.script(script).unwrap();
    let started = Instant::now();
    let finished = Running::start(command).unwrap().finish(LIMIT).unwrap();
    let joins = Admin::new(&world.sandbox).unwrap().moves().unwrap().joins;
    let took = started.elapsed().as_secs_f64();
    let stats = world.sandbox.stats().unwrap();
    println!("{script} {mode:?}: {took:.1} s, {joins} streams: {stats}");
    let folder = world.sandbox.folder().to_string_lossy().into_owned();
    let output = format!("{}{}status {}", finished.out, finished.err, finished.status);
    assert_eq!(finished.status, 0, "{script} {mode:?}: {output}");
    world.check_clean();
    (output.replace(&folder, "FOLDER"), joins)
}

/// Checks that the script's output is the same both ways, and that there were at least `streams`
/// streams.
#[track_caller]
fn same(wanted: &[&str], script: &str, streams: u64) {
    need(wanted);
    let (plain, none) = run(Mode::Plain, script);
    let (with, joins) = run(Mode::Sojourn, script);
    assert_eq!(plain, with, "{script}");
    assert_eq!(none, 0);
    assert!(joins >= streams, "{script}: only {joins} streams");
}

#[test]
fn redis() {
    same(&["redis-server", "redis-benchmark"], "redis.sh", 20);
}

#[test]
fn nginx_with_reloads() {
    same(&["nginx", "curl", "wrk"], "nginx.sh", 10);
}

/// Started by root, PostgreSQL runs as another user. Without the right to inspect that user's
/// processes (ptrace(2)), the server moves nothing.
#[test]
fn postgres() {
    let held = rustix::thread::capabilities(None).unwrap().effective;
    let is_root = rustix::process::geteuid().is_root();
    let moves = !is_root || held.contains(rustix::thread::CapabilitySet::SYS_PTRACE);
    same(&["psql", "setpriv"], "postgres.sh", if moves { 8 } else { 0 });
}

#[test]
fn memcached() {
    same(&["memcached", "python3"], "memcached.sh", 2);
}

#[test]
fn python() {
    same(&["python3"], "python.sh", 1);
}

#[test]
fn pipelines() {
    // Three of the pipelines last long enough; the others may end before they have moved.
    same(&["gzip"], "shell.sh", 3);
}

/// Two processes of sshd hold each connection, so that these need not move.
#[test]
fn ssh() {
    same(&["sshd", "ssh", "rsync"], "ssh.sh", 0);
}

#[test]
fn rsync_daemon() {
    same(&["rsync"], "rsyncd.sh", 0);
}

#[test]
fn iperf3_socat_curl() {
    same(&["iperf3", "socat", "curl", "python3"], "relay.sh", 3);
}

#[test]
fn node() {
    same(&["node"], "node.sh", 1);
}

#[test]
fn java() {
    same(&["java"], "java.sh", 1);
}

#[test]
fn what_an_ended_writer_has_left_is_passed_on() {
    same(&["python3"], "rests.sh", 15);
}

/// Kills one end in the middle of a transfer; returns the output of the other.
fn death(mode: Mode, kind: &str, victim_way: &str, survivor_way: &str) -> String {
    let world = world(mode);
    let address = match kind {
        "unix" => world.work().join("place").to_string_lossy().into_owned(),
        _ => free_port("127.0.0.1").unwrap().to_string(),
    };
    let survivor = world.python("death.py", &[survivor_way, kind, "serve", &address]);
    let victim = world.python("death.py", &[victim_way, kind, "call", &address]);
    let mut admin = Admin::new(&world.sandbox).unwrap();
    wait_for("a transfer", || world.work().join("busy").exists());
    wait_for("sessions moved", || mode == Mode::Plain || admin.away().unwrap().len() == 2);
    // A moment later, so that the kill meets the transfer at no particular place.
    std::thread::sleep(Duration::from_millis(100));
    drop(victim);
    let output = survivor.finish(Duration::from_secs(10)).unwrap().success("survivor").unwrap();
    world.check_clean();
    output
}

#[test]
fn death_of_one_side() {
    need(&["python3"]);
    for kind in ["tcp", "unix"] {
        for (victim, survivor, says) in
            [("read", "write", "peer gone\n"), ("write", "read", "end of file\n")]
        {
            assert_eq!(death(Mode::Plain, kind, victim, survivor), says, "{kind} {survivor} plain");
            assert_eq!(death(Mode::Sojourn, kind, victim, survivor), says, "{kind} {survivor}");
        }
    }
}

/// Returns the number of calls that a Redis server has answered.
fn calls_served(port: u16) -> u64 {
    let port = port.to_string();
    let output = Command::new("redis-cli").args(["-p", &port, "info", "stats"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap()
}

#[test]
fn death_of_the_server() {
    need(&["redis-server", "redis-benchmark"]);
    let mut world = world(Mode::Sojourn);
    let port = free_port("127.0.0.1").unwrap();
    let mut command = world.command("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    let _redis = Running::start(command).unwrap();
    wait_for("redis-server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut command = world.command("redis-benchmark");
    // More calls than it can make while it is looked at: it ends with the test.
    command.args(["-p", &port.to_string(), "-q", "-n", "1000000000", "-c", "10", "-t", "get"]);
    let mut benchmark = Running::start(command).unwrap();
    let mut admin = Admin::new(&world.sandbox).unwrap();
    // Bytes have gone through every stream: so both ends, and not only the server, know that they
    // are away.
    wait_for("sessions moved", || {
        let away = admin.away().unwrap();
        away.len() == 20 && away.iter().all(|session| session.sent > 0)
    });
    world.sandbox.kill_server();
    assert!(benchmark.is_running());
    std::thread::sleep(Duration::from_millis(200));
    world.sandbox.start_server().unwrap();
    let mut admin = Admin::new(&world.sandbox).unwrap();
    wait_for("sessions registered again", || {
        let away = admin.away().unwrap();
        assert!(benchmark.is_running(), "it ended when {} were registered again", away.len());
        // The bytes are counted in memory that the server does not have.
        away.len() == 20 && away.iter().all(|session| !session.has_counts)
    });
    let before = calls_served(port);
    wait_for("calls", || calls_served(port) > before + 1000);
    assert!(benchmark.is_running());
}

/// A server with an epoll set that forks, and its clients from before and after the fork.
struct Children {
    world: World,
    port: String,
    server: Running,
    old: Running,
    admin: Admin,
}

impl Children {
    fn new(how: &str) -> Self {
        need(&["python3"]);
        let world = world(Mode::Sojourn);
        let port = free_port("127.0.0.1").unwrap().to_string();
        let server = world.python("children.py", &["serve", &port, how]);
        wait_for("a listener", || world.work().join("listens").exists());
        let old = world.python("children.py", &["call", &port, "3", "end-old"]);
        let admin = Admin::new(&world.sandbox).unwrap();
        let mut children = Self { world, port, server, old, admin };
        children.wait_used("sessions moved before the fork", 6);
        children.make("fork");
        wait_for("a fork", || children.is_there("forked"));
        children
    }

    fn make(&self, name: &str) {
        std::fs::write(self.world.work().join(name), "").unwrap();
    }

    fn is_there(&self, name: &str) -> bool {
        self.world.work().join(name).exists()
    }

    fn wait_away(&mut self, what: &str, count: usize) {
        wait_for(what, || self.admin.away().unwrap().len() == count);
    }

    /// Waits as [`Children::wait_away`] does, and until all sessions have carried bytes both ways.
    /// The server counts a session as away when it has notified its ends. An end that has not read
    /// the notification when its program forks has to leave the session to the kernel, because the
    /// child holds it too.
    fn wait_used(&mut self, what: &str, count: usize) {
        wait_for(what, || {
            let away = self.admin.away().unwrap();
            let is_used = |session: &SessionInfoT| session.sent > 0 && session.received > 0;
            away.len() == count && away.iter().all(is_used)
        });
    }

    fn call(&self, end: &str) -> Running {
        self.world.python("children.py", &["call", &self.port, "2", end])
    }

    /// Ends all programs; every question must have been answered.
    fn end(self, others: Vec<(Running, &str)>) {
        self.make("leave");
        for (caller, end) in others {
            self.make(end);
            assert_eq!(caller.finish(LIMIT).unwrap().success("caller").unwrap(), "rounds True\n");
        }
        self.make("end-old");
        assert_eq!(self.old.finish(LIMIT).unwrap().success("caller").unwrap(), "rounds True\n");
        std::fs::write(self.world.work().join("end"), "").unwrap();
        self.server.finish(LIMIT).unwrap().success("server").unwrap();
        self.world.check_clean();
    }
}

/// Tests a child that leaves the set alone, like that of redis-server which saves the database.
#[test]
fn sessions_move_while_a_child_leaves_the_set_alone() {
    let mut children = Children::new("idle");
    let new = children.call("end-new");
    children.wait_away("those of later connections moved, too", 10);
    children.admin.recall_all().unwrap();
    children.make("leave");
    wait_for("the child's end", || children.is_there("left"));
    children.wait_away("all moved again after the child's end", 10);
    children.end(vec![(new, "end-new")]);
}

#[test]
fn a_child_that_uses_the_set_has_it_in_the_kernel() {
    let mut children = Children::new("use");
    let new = children.call("end-new");
    children.wait_away("those of later connections moved, too", 10);
    children.make("use");
    wait_for("the child's waits", || children.is_there("seen"));
    wait_for("the child's word", || {
        !std::fs::read(children.world.work().join("seen")).unwrap().is_empty()
    });
    let seen = std::fs::read_to_string(children.world.work().join("seen")).unwrap();
    assert_eq!(seen, "some", "what the child's waits gave");
    children.wait_away("all at home", 0);
    children.end(vec![(new, "end-new")]);
}

/// Returns the processor time of a process with all its threads, in ticks of 10 ms (proc(5),
/// `stat`).
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_thousand_idle_sessions_cost_nothing() {
    need(&["python3"]);
    let world = world(Mode::Sojourn);
    let port = free_port("127.0.0.1").unwrap().to_string();
    let quiet = world.work().join("quiet");
    let words = |side| [side, port.as_str(), "1000", quiet.to_str().unwrap()];
    let server = world.python("idle.py", &words("serve"));
    wait_for("a listener", || {
        let listening = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let local = format!("0100007F:{:04X} 00000000:0000", port.parse::<u16>().unwrap());
        listening.contains(&local)
    });
    let client = world.python("idle.py", &words("call"));
    let mut admin = Admin::new(&world.sandbox).unwrap();
    wait_for("1,000 streams", || admin.away().unwrap().len() == 2000);
    std::fs::write(&quiet, "").unwrap();
    wait_for("idle", || world.work().join("quiet.seen").exists());
    // Time for the echoes of the last questions, and for the protocol threads' work on them.
    std::thread::sleep(Duration::from_millis(500));
    let mut pids = vec![server.pid(), client.pid()];
    pids.extend(world.sandbox.server_pids());
    let all = || pids.iter().map(|pid| ticks(*pid)).collect::<Vec<_>>();
    let before = all();
    std::thread::sleep(Duration::from_secs(2));
    let after = all();
    for (before, after) in before.iter().zip(after) {
        assert!(after - before < 2, "{} ms in 2 s", (after - before) * 10);
    }
    assert_eq!(admin.away().unwrap().len(), 2000, "they are away still");
    drop((server, client));
    world.check_clean();
}
