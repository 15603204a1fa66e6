//! UDP sockets of unmodified programs that the protocol server has (`home = server`): their calls
//! answer as the kernel does, and nothing is lost or doubled while sessions move.
//!
//! The same programs as for home `library`: `udp_cases.py` compares calls with the kernel's, and
//! `udp_count.py` asks numbered questions, none twice. TCP: `network_home_server.rs`. Needs rights
//! over networks, and says so if they cannot be had.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use sojourn_lab::net::{End, Link};
use sojourn_lab::{Finished, Mode, Running};
use sojourn_session::{HomeT, KindT, SessionInfoT};
use sojourn_system::network::{Accelerated, Stage, await_bound, hosts};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Moves of each exchange.
const MOVES: u64 = 15;
/// Time between two recalls: long enough for a session to be away and to carry datagrams.
const STAY: Duration = Duration::from_millis(10);
/// Time (s) after which an answer counts as lost; a machine on which nobody runs for a while does
/// not come near it.
const ANSWER: &str = "5";

/// Two hosts with a program and a peer, of which one side is under Sojourn.
struct Scene {
    link: Link,
    stage: Stage,
    admin: Admin,
}

impl Scene {
    /// `None`, and says so, where there can be no hosts.
    fn new(accelerated: Accelerated, home: &str) -> Option<Self> {
        let [a, b] = hosts()?;
        let link = Link::direct(&a, &b, 1500).unwrap();
        let mut stage = Stage::new(&link, accelerated).unwrap();
        let end = if accelerated == Accelerated::Server { End::A } else { End::B };
        let world = &mut stage.worlds[end as usize];
        // Everybody's server has no protocol servers.
        world.restart_for_own_user().unwrap();
        world.set("HOME", home);
        world.set("SPIN", "never");
        let admin = Admin::new(world).unwrap();
        Some(Self { link, stage, admin })
    }

    fn script(&self, end: End, name: &str, words: &[&str]) -> Running {
        let mut command = self.stage.command(end, "python3");
        let path = self.stage.programs().join("net").join(name);
        command.arg(path).args(words).env("PYTHONUNBUFFERED", "1").env("ANSWER", ANSWER);
        Running::start(command).unwrap()
    }

    /// Starts the peer that sends back.
    fn serve(&self, way: &str) -> Running {
        let port = self.stage.port.to_string();
        let serves = self.script(End::A, "udp.py", &["serve", way, &self.stage.address, &port]);
        await_bound(self.link.host(End::A), self.stage.port).unwrap();
        serves
    }

    fn ask(&self, name: &str, words: &[&str]) -> Running {
        let port = self.stage.port.to_string();
        let all = [&[self.stage.address.as_str(), port.as_str()][..], words].concat();
        self.script(End::B, name, &all)
    }

    /// Starts the program that asks numbered questions.
    fn count(&self, way: &str, form: &str) -> Running {
        let port = self.stage.port.to_string();
        self.script(End::B, "udp_count.py", &[way, &self.stage.address, &port, form])
    }

    /// Waits until a UDP session is in that home and has had datagrams there.
    #[track_caller]
    fn await_away(&mut self, program: &mut Running, home: HomeT) -> SessionInfoT {
        self.await_anew(program, home, 0)
    }

    /// The same, in another process than that.
    #[track_caller]
    fn await_anew(&mut self, program: &mut Running, home: HomeT, pid: u32) -> SessionInfoT {
        let until = Instant::now() + PATIENCE;
        loop {
            let away = self.admin.away().unwrap().into_iter();
            let mut away = away.filter(|one| one.kind == KindT::Udp && one.datagrams_received > 0);
            if let Some(found) = away.find(|one| one.home == home && one.pid != pid) {
                return found;
            }
            let refused: Vec<_> =
                self.admin.refused().unwrap().into_iter().map(|one| one.reason).collect();
            if !program.is_running() {
                panic!("it has ended; refused: {refused:?}\n{}", program.output());
            }
            assert!(Instant::now() < until, "none is in {home:?}; refused: {refused:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Moves the session by hand; returns its new name.
    #[track_caller]
    fn move_by_hand(&self, stream: u64, home: &str) -> u64 {
        let world = &self.stage.worlds[End::B as usize];
        let said = world.sojourn(&["move", &stream.to_string(), home]).unwrap();
        let name = said.trim_end().split_once("is away from the kernel, as ");
        name.unwrap_or_else(|| panic!("{home}: {said}")).1.parse().unwrap()
    }

    /// Ends both programs; returns what the asking one has counted.
    fn end(self, asks: Running, serves: Running) -> Counts {
        std::fs::write(self.stage.end_file(), "").unwrap();
        let [asks, serves] = [asks, serves].map(|program| program.finish(LIMIT).unwrap());
        assert_eq!((asks.status, serves.status), (0, 0), "{asks:?} {serves:?}");
        let said: serde_json::Value = serde_json::from_str(asks.out.trim()).unwrap();
        let number = |name: &str| said[name].as_u64().unwrap();
        let lost = said["lost"].as_array().unwrap().len();
        Counts { asked: number("asked"), lost, late: number("late"), twice: number("twice") }
    }
}

#[derive(Debug)]
struct Counts {
    asked: u64,
    lost: usize,
    late: u64,
    twice: u64,
}

impl Counts {
    #[track_caller]
    fn are_whole(&self, what: &str) {
        assert!(self.asked > 100, "{what}: {self:?}");
        assert_eq!((self.lost, self.late, self.twice), (0, 0, 0), "{what}: {self:?}");
    }
}

/// Recalls all sessions again and again.
fn moves_about(scene: &mut Scene, asks: &mut Running) {
    let until = Instant::now() + PATIENCE;
    while asks.is_running() && scene.admin.moves().unwrap().returns < MOVES {
        assert!(Instant::now() < until, "{:?}", scene.admin.moves());
        scene.admin.recall_all().unwrap();
        std::thread::sleep(STAY);
    }
}

/// Tests that sessions which come and go lose nothing.
fn nothing_is_lost(accelerated: Accelerated, ways: &[[&str; 2]]) {
    for [way, form] in ways {
        let Some(mut scene) = Scene::new(accelerated, "server") else { return };
        let serves = scene.serve(if accelerated == Accelerated::Server { way } else { "epoll" });
        let is_asking = accelerated == Accelerated::Client;
        let mut asks = scene.count(if is_asking { way } else { "poll" }, form);
        scene.await_away(&mut asks, HomeT::Server);
        moves_about(&mut scene, &mut asks);
        scene.end(asks, serves).are_whole(&format!("{accelerated:?} {way} {form}"));
    }
}

#[test]
fn of_those_who_ask() {
    let ways = [["blocking", "connected"], ["poll", "unconnected"], ["epollet", "connected"]];
    nothing_is_lost(Accelerated::Client, &ways);
}

#[test]
fn of_those_who_answer() {
    let ways = [["blocking", "unconnected"], ["epoll", "connected"]];
    nothing_is_lost(Accelerated::Server, &ways);
}

/// Runs the cases; returns what they say.
fn cases(mode: Mode) -> Option<String> {
    let accelerated = match mode {
        Mode::Sojourn => Accelerated::Client,
        _ => Accelerated::Neither,
    };
    let scene = Scene::new(accelerated, "server")?;
    let _serves = scene.serve("epoll");
    let ended: Finished = scene.ask("udp_cases.py", &[]).finish(LIMIT).unwrap();
    assert_eq!(ended.status, 0, "{mode:?}: {ended:#?}");
    Some(ended.out)
}

#[test]
fn calls_answer_as_the_kernel_does() {
    let Some(plain) = cases(Mode::Plain) else { return };
    assert!(plain.lines().count() > 25, "{plain}");
    assert_eq!(cases(Mode::Sojourn).unwrap(), plain);
}

#[test]
fn many_datagrams_by_one_call_and_both_processes_after_fork() {
    let Some(mut scene) = Scene::new(Accelerated::Client, "server") else { return };
    let _serves = scene.serve("epoll");
    let mut asks = scene.ask("udp_homes.py", &[]);
    scene.await_away(&mut asks, HomeT::Server);
    let said = asks.finish(LIMIT).unwrap().success("udp_homes.py").unwrap();
    assert_eq!(said, "done\n");
}

#[test]
fn a_session_is_moved_by_hand_between_library_and_server() {
    let Some(mut scene) = Scene::new(Accelerated::Client, "library") else { return };
    let serves = scene.serve("epoll");
    let mut asks = scene.count("poll", "connected");
    for _ in 0..3 {
        let away = scene.await_away(&mut asks, HomeT::Library);
        let served = scene.move_by_hand(away.stream, "server");
        let away = scene.await_away(&mut asks, HomeT::Server);
        assert_eq!(away.stream, served);
        let why = scene.stage.worlds[End::B as usize].sojourn(&["ss", "--why"]).unwrap();
        assert!(why.contains("protocol-server"), "{why}");
        scene.move_by_hand(served, "library");
    }
    scene.end(asks, serves).are_whole("by hand");
}

#[test]
fn the_program_goes_on_when_its_protocol_server_is_killed() {
    for way in ["blocking", "epollet"] {
        let Some(mut scene) = Scene::new(Accelerated::Client, "server") else { return };
        let serves = scene.serve("epoll");
        let mut asks = scene.count(way, "connected");
        let mut last = 0;
        for _ in 0..2 {
            last = scene.await_anew(&mut asks, HomeT::Server, last).pid;
            kill_process(Pid::from_raw(last.cast_signed()).unwrap(), Signal::KILL).unwrap();
        }
        scene.await_anew(&mut asks, HomeT::Server, last);
        let counts = scene.end(asks, serves);
        // At most the question or answer that was under way, each time.
        assert!(counts.lost + counts.late as usize <= 3 && counts.twice <= 3, "{way}: {counts:?}");
        assert!(counts.asked > 100, "{way}: {counts:?}");
    }
}
