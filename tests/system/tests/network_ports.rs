//! Tests of remote sessions of programs that may not have packets of the interface: each has a
//! port.
//!
//! An unmodified program runs as an ordinary user on one host, against the plain kernel on another.
//! The peers check every byte. Not here: the frames that a port lets through
//! (`crates/filter/tests/ports.rs`). Needs root and network namespaces; skipped with a message
//! otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::Signal;
use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::{hosts, next_port};
use sojourn_system::talk::rule;
use sojourn_system::{Admin, LIMIT, rights};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time for the moves.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of moves of each session.
const MOVES: u64 = 20;

/// The parameters of a transfer.
#[derive(Clone, Copy, Debug)]
struct Plan<'p> {
    is_v6: bool,
    /// True if the program under Sojourn is the caller.
    calls: bool,
    way: &'p str,
    options: &'p [&'p str],
}

const PLAIN: Plan<'_> = Plan { is_v6: false, calls: false, way: "blocking", options: &[] };

/// Makes a sandbox at the link's end A whose programs every user may run.
fn world(link: &Link) -> Sandbox {
    let mut world = Sandbox::on(link.host(End::A)).unwrap();
    world.set("MOVE_AFTER_CALLS", "4");
    rights::open(&world).unwrap();
    world
}

/// Starts both ends of a session: the first under Sojourn, the second plain on the other host.
fn start(link: &Link, world: &Sandbox, plan: Plan<'_>) -> [Running; 2] {
    let port = next_port();
    let end = if plan.calls { End::B } else { End::A };
    let address = match plan.is_v6 {
        true => format!("[{}]:{port}", link.v6(end)),
        false => format!("{}:{port}", link.v4(end)),
    };
    let until = world.folder().join("end");
    let start = |mut command: Command, is_caller: bool| {
        command.args([if is_caller { "call" } else { "serve" }, "tcp", &address]);
        command.args(["--way", plan.way]).args(plan.options).arg("--until").arg(&until);
        Running::start(command).unwrap()
    };
    let mut plain = Command::new(world.built().path("lab-peer"));
    link.host(End::B).place(&mut plain);
    let under = rights::none(world, "lab-peer");
    match plan.calls {
        false => [start(under, false), start(plain, true)],
        true => {
            let plain = start(plain, false);
            [start(under, true), plain]
        }
    }
}

/// The carrier's objects on the host of a sandbox.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traces {
    /// Programs on interfaces, and ports, as `sojourn doctor` lists them.
    attached: Vec<String>,
    /// Interfaces of ports, as ip-link(8) lists them.
    interfaces: Vec<String>,
    /// Number of other network namespaces that the host's interfaces refer to, as ip-netns(8) lists
    /// them.
    namespaces: usize,
}

fn traces(world: &Sandbox, host: &Host) -> Traces {
    let mut command = world.command(Mode::Plain, world.built().path("sojourn"));
    command.args(["doctor", "--json"]);
    let output = Running::start(command).unwrap().finish(LIMIT).unwrap();
    let told: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    let name = |one: &serde_json::Value| match one["interface"].as_str() {
        None | Some("") => None,
        Some(_) => Some(format!("{} {}", one["what"], one["name"]).replace('"', "")),
    };
    let attached = told["attached"].as_array().unwrap().iter().filter_map(name).collect();
    let links = host.ip(&["-o", "link"]).unwrap();
    let names = links.lines().filter_map(|line| line.split_whitespace().nth(1));
    let interfaces = names.filter(|name| name.starts_with("sojourn")).map(str::to_owned).collect();
    let namespaces = host.ip(&["netns", "list-id"]).unwrap().lines().count();
    Traces { attached, interfaces, namespaces }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a session is away and has sent more than its ring holds.
fn wait_until_away(admin: &mut Admin) {
    wait_for("a session that is away", || {
        admin.away().unwrap().iter().any(|session| session.sent > 1_000_000)
    });
}

fn play(link: &Link, plan: Plan<'_>) {
    let world = world(link);
    let mut running = start(link, &world, plan);
    let mut admin = Admin::new(&world).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut moves = 0;
    while moves < MOVES && Instant::now() < deadline && running.iter_mut().all(Running::is_running)
    {
        admin.recall_all().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        moves = admin.moves().unwrap().joins;
    }
    std::fs::write(world.folder().join("end"), "").unwrap();
    // Both ends are collected before either is judged, because the failure of one may be caused by
    // the other's.
    let ended = running.map(|peer| peer.finish(LIMIT).unwrap());
    let is_well = ended.iter().all(|peer| peer.status == 0);
    assert!(is_well, "{plan:?}: {ended:#?}");
    println!("{plan:?}: {moves} moves; {}", ended[0].out.trim());
    assert!(moves >= MOVES / 4, "{plan:?}: only {moves} moves");
}

#[test]
fn only_who_shows_packets_gets_them() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if std::env::var_os("LAB_PORTS").is_some() {
        return;
    }
    for shows in [false, true] {
        let world = world(&link);
        let address = format!("{}:{}", link.v4(End::A), next_port());
        let until = world.folder().join("end");
        let start = |mut command: Command, how: &str| {
            command.args([how, "tcp", &address, "--way", "blocking", "--until"]).arg(&until);
            Running::start(command).unwrap()
        };
        let under = match shows {
            true => world.command(Mode::Sojourn, world.built().path("lab-peer")),
            false => rights::none(&world, "lab-peer"),
        };
        let mut plain = Command::new(world.built().path("lab-peer"));
        link.host(End::B).place(&mut plain);
        let running = [start(under, "serve"), start(plain, "call")];
        wait_until_away(&mut Admin::new(&world).unwrap());
        let ports = traces(&world, &a).interfaces.len();
        std::fs::write(&until, "").unwrap();
        for peer in running {
            assert_eq!(peer.finish(LIMIT).unwrap().status, 0);
        }
        assert_eq!(ports, usize::from(!shows), "it shows packets: {shows}");
    }
}

#[test]
fn streams_in_both_directions() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for is_v6 in [false, true] {
        for calls in [false, true] {
            for way in ["blocking", "poll", "epoll", "epollet"] {
                play(&link, Plan { is_v6, calls, way, ..PLAIN });
            }
        }
    }
}

#[test]
fn questions_and_answers() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for calls in [false, true] {
        for way in ["blocking", "epoll"] {
            let options = &["--rounds", "1", "--size", "3000"];
            play(&link, Plan { calls, way, options, ..PLAIN });
        }
    }
}

/// The end of a program behind a port, or of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Exit,
    Killed,
    ServerKilled,
}

#[test]
fn nothing_stays() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    // Several times: a program is seldom killed in the middle of a round, when it has sent bytes
    // that it has not recorded yet.
    let killed = [Ending::Killed; 6];
    for how in [Ending::Exit, Ending::ServerKilled].into_iter().chain(killed) {
        let mut world = world(&link);
        let before = traces(&world, &a);
        assert_eq!(before.interfaces, [""; 0]);
        let [program, peer] = start(&link, &world, PLAIN);
        let mut admin = Admin::new(&world).unwrap();
        wait_until_away(&mut admin);
        let there = traces(&world, &a);
        let has = |what: &str| there.attached.iter().any(|one| one.starts_with(what));
        assert!(has("port sojourn") && has("hook sojourn_ingress"), "{there:?}");
        assert!(has("hook sojourn_portout") && has("hook sojourn_closed"), "{there:?}");
        assert_eq!((there.interfaces.len(), there.namespaces), (1, before.namespaces + 1));
        drop(admin);
        let is_well = match how {
            Ending::Exit => {
                std::fs::write(world.folder().join("end"), "").unwrap();
                true
            }
            Ending::Killed => {
                program.signal(Signal::KILL);
                false
            }
            // Without a server, a session that is away is reset when its program ends, as
            // documented.
            Ending::ServerKilled => {
                world.kill_server();
                false
            }
        };
        for ended in [program, peer].map(|one| one.finish(LIMIT).unwrap()) {
            assert_eq!(ended.status == 0, is_well, "{how:?}: {ended:?}");
        }
        wait_for(&format!("{how:?}: nothing left"), || traces(&world, &a) == before);
    }
}

/// Tests a process that becomes another program by execve(2). The new program gets its own port,
/// because it knows nothing of the first one's.
#[test]
fn a_program_that_becomes_another() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let world = world(&link);
    let script = sojourn_system::network::programs().join("net/exec.py");
    let copy = world.folder().join("exec.py");
    std::fs::copy(script, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o644)).unwrap();
    let port = next_port();
    let run = |mut command: Command, role: &str| {
        command.arg(&copy).arg(role).env("PORT", port.to_string());
        command.env("ADDRESS", link.v4(End::A).to_string());
        Running::start(command).unwrap()
    };
    let server = run(rights::none(&world, "/usr/bin/python3"), "serve");
    wait_for_listener(&link, port);
    let mut plain = Command::new("/usr/bin/python3");
    b.place(&mut plain);
    let client = run(plain, "ask");
    let mut admin = Admin::new(&world).unwrap();
    for ended in [client, server].map(|one| one.finish(LIMIT).unwrap()) {
        assert_eq!(ended.status, 0, "{ended:?}");
    }
    // One move of the first program, and one of the second.
    assert!(admin.moves().unwrap().joins >= 2, "{:?}", admin.moves());
}

fn wait_for_listener(link: &Link, port: u16) {
    let address = (link.v4(End::A), port);
    let bind = || std::net::TcpListener::bind(address).is_err();
    wait_for("a listener", || link.host(End::A).enter(bind).unwrap());
}

/// Returns a command for `programs/net/hostile.py` in a role, with the addresses that it needs.
fn hostile(mut command: Command, link: &Link, world: &Sandbox, role: &str) -> Command {
    let mut admin = Admin::new(world).unwrap();
    let victim = admin.away().unwrap().remove(0);
    let script = sojourn_system::network::programs().join("net/hostile.py");
    let copy = world.folder().join("hostile.py");
    std::fs::copy(script, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o644)).unwrap();
    command.arg(copy).arg(role);
    command.env("ADDRESS", link.v4(End::A).to_string()).env("PORT", "7999");
    let name = |end: Option<std::ffi::CString>| end.unwrap().into_string().unwrap();
    command.env("VICTIM_LOCAL", name(victim.from)).env("VICTIM_REMOTE", name(victim.to));
    command.env("OWN_MAC", link.mac(End::A)).env("NEXT_MAC", link.mac(End::B));
    command.env("INTERFACE", link.interface()).env("END", world.folder().join("end"));
    command
}

/// Tests a program that has its own session delegated, and misuses the packet socket.
#[test]
fn a_hostile_program_gets_nothing_through() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let world = world(&link);
    // Traffic of others: another session of this user behind a port.
    let victims = start(&link, &world, PLAIN);
    let mut admin = Admin::new(&world).unwrap();
    wait_until_away(&mut admin);
    let on_b = |role: &str| {
        let mut command = Command::new("/usr/bin/python3");
        link.host(End::B).place(&mut command);
        Running::start(hostile(command, &link, &world, role)).unwrap()
    };
    let tap = on_b("tap");
    let program = rights::none(&world, "/usr/bin/python3");
    let program = Running::start(hostile(program, &link, &world, "try")).unwrap();
    wait_for_listener(&link, 7999);
    let peer = on_b("ask");
    // The tap ends with the one allowed frame, which the port receives last.
    let seen = tap.finish(LIMIT).unwrap();
    std::fs::write(world.folder().join("end"), "").unwrap();
    let output = program.finish(LIMIT).unwrap();
    assert_eq!(seen.out, "ready\nALLOWED\n", "{seen:?} {output:?}");
    let told: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert!(told["seen"].as_u64().unwrap() >= 10, "it sees its own session: {told}");
    assert_eq!(told["foreign"].as_array().unwrap().len(), 0, "it sees what is not its own: {told}");
    assert_eq!(told["sent"].as_array().unwrap().len(), 15, "{told} {}", output.err);
    // Two interfaces at most: the port's far end, and the loopback interface of its namespace.
    assert!(told["reached"].as_array().unwrap().len() <= 2, "{told}");
    assert_eq!(told["entered"], -1, "{told}");
    for ended in [peer].into_iter().chain(victims).map(|one| one.finish(LIMIT).unwrap()) {
        assert_eq!(ended.status, 0, "{ended:?}");
    }
}

/// A program that lets nobody take its session away: another process sends through its port, while
/// it may be stopped itself.
struct Keeper<'l> {
    link: &'l Link,
    world: Sandbox,
    running: [Running; 2],
    sender: Running,
    tap: Running,
    /// Number of frames that have been seen on the other host.
    seen: u64,
}

impl<'l> Keeper<'l> {
    fn start(link: &'l Link) -> Self {
        let world = world(link);
        let running = start(link, &world, PLAIN);
        wait_until_away(&mut Admin::new(&world).unwrap());
        let python = |end: End, words: &[&str]| {
            let mut command = Command::new("/usr/bin/python3");
            link.host(end).place(&mut command);
            let mut command = hostile(command, link, &world, words[0]);
            command.args(&words[1..]);
            Running::start(command).unwrap()
        };
        let tap = python(End::B, &["count"]);
        let sender = python(End::A, &["through", &running[0].pid().to_string()]);
        let mut all = Self { link, world, running, sender, tap, seen: 0 };
        wait_for("frames", || all.have_come());
        all
    }

    /// Returns true if frames have come since the last call.
    fn have_come(&mut self) -> bool {
        let seen = std::fs::metadata(self.world.folder().join("end.seen"));
        let now = seen.map_or(0, |seen| seen.len());
        std::mem::replace(&mut self.seen, now) < now
    }

    /// Waits until no frame has come for fifteen times the pause between two.
    fn wait_for_silence(&mut self) {
        wait_for("silence", || {
            std::thread::sleep(Duration::from_millis(300));
            !self.have_come()
        });
        assert!(self.sender.is_running() && self.tap.is_running());
    }

    fn finish(self) {
        std::fs::write(self.world.folder().join("end"), "").unwrap();
        let ended = self.running.into_iter().chain([self.sender, self.tap]);
        let ended: Vec<_> = ended.map(|one| one.finish(LIMIT).unwrap()).collect();
        assert!(ended.iter().all(|one| one.status == 0), "{ended:#?}");
    }
}

#[test]
fn a_program_that_keeps_its_session_sends_nothing_past_a_new_rule() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if !rule(&a, "add table inet held") {
        return;
    }
    let mut keeper = Keeper::start(&link);
    keeper.running[0].signal(Signal::STOP);
    assert!(rule(&a, "add chain inet held out { type filter hook output priority 0; }"));
    assert!(rule(&a, "add rule inet held out meta l4proto tcp drop"));
    keeper.wait_for_silence();
    assert!(rule(&a, "delete table inet held"));
    keeper.running[0].signal(Signal::CONT);
    // What it has been called home for is not forgotten, and no byte is.
    keeper.finish();
}

#[test]
fn a_program_that_has_no_route_sends_nothing_until_it_has_one() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for kind in ["unreachable", "blackhole", "prohibit"] {
        let mut keeper = Keeper::start(&link);
        let peer = keeper.link.v4(End::B).to_string();
        a.ip(&["route", "add", kind, &peer]).unwrap();
        keeper.wait_for_silence();
        a.ip(&["route", "del", kind, &peer]).unwrap();
        wait_for("frames", || keeper.have_come());
        keeper.finish();
    }
}
