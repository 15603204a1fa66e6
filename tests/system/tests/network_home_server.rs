//! Unmodified programs whose sessions with another host the protocol server has (`home = server`):
//! their calls are calls to it, in every way to wait, and go on where it dies.
//!
//! The peer on the other host is a plain echo, and the program checks every byte. Not here:
//! programs that call the server themselves (`network_protocol_server.rs`). Needs rights over
//! networks, and says so if they cannot be had.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use sojourn_lab::net::{End, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_session::{HomeT, SessionInfoT};
use sojourn_system::Admin;
use sojourn_system::compile::compile;
use sojourn_system::network::{hosts, next_port, programs};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Looks in turn that find a program in the same sleep, before it counts as waiting.
const QUIET_LOOKS: u32 = 10;

/// A process sleeps if its threads begin to run so seldom in so long: timers of its own, such as
/// looks whether anybody needs it, are seconds apart.
const ASLEEP_FOR: Duration = Duration::from_millis(300);
const ASLEEP_RUNS: u64 = 3;

/// The echo of one connection.
struct Echo {
    /// Ends with the number of bytes.
    thread: JoinHandle<usize>,
    /// Held while nothing is answered; true while the echo waits for that.
    gate: Arc<(Mutex<()>, AtomicBool)>,
}

impl Echo {
    /// Does `work` while the program of that number waits for an answer, as far as can be seen from
    /// here.
    fn hold(&self, program: u32, work: impl FnOnce()) {
        let _held = self.gate.0.lock().unwrap();
        let until = Instant::now() + PATIENCE;
        while !self.gate.1.load(Ordering::SeqCst) {
            assert!(Instant::now() < until, "no question comes");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The program finds nothing, and goes to sleep.
        let (mut last, mut looks) = (None, 0);
        while looks < QUIET_LOOKS {
            assert!(Instant::now() < until, "the program does not sleep");
            std::thread::sleep(Duration::from_millis(2));
            let sleeps = sleeps_of(program);
            looks = if sleeps.is_some() && sleeps == last { looks + 1 } else { 0 };
            last = sleeps;
        }
        work();
    }
}

/// Returns how often the main thread of a process has gone to sleep, if it sleeps now.
fn sleeps_of(pid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim());
    value("State:")?.starts_with('S').then_some(())?;
    Some(value("voluntary_ctxt_switches:")?.to_owned())
}

/// Returns how often threads of a process have begun to run (schedstat, proc(5)).
fn runs_of(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let counts = threads.map(|thread| {
        let said = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        said.split_whitespace().nth(2).map_or(0, |count| count.parse::<u64>().unwrap())
    });
    counts.sum()
}

/// Waits until a process sleeps: hardly any thread of it runs for a while.
#[track_caller]
fn await_sleep(what: &str, pid: u32) {
    let until = Instant::now() + PATIENCE;
    loop {
        let before = runs_of(pid);
        std::thread::sleep(ASLEEP_FOR);
        let runs = runs_of(pid) - before;
        if runs <= ASLEEP_RUNS {
            return;
        }
        assert!(Instant::now() < until, "{what}: {runs} runs in {ASLEEP_FOR:?}");
    }
}

/// A host with a session server, and another one with an echo.
struct Scene {
    link: Link,
    world: Sandbox,
    admin: Admin,
}

impl Scene {
    /// `None`, and says so, where there can be no hosts.
    fn new(has_ports: bool) -> Option<Self> {
        let [a, b] = hosts()?;
        let link = Link::direct(&a, &b, 1500).unwrap();
        let host = link.host(End::A);
        let world = if has_ports { Sandbox::with_ports(host) } else { Sandbox::on(host) };
        let mut world = world.unwrap();
        // Everybody's server has no protocol servers.
        world.restart_for_own_user().unwrap();
        world.set("HOME", "server");
        world.set("MOVE_AFTER_CALLS", "4");
        let admin = Admin::new(&world).unwrap();
        Some(Self { link, world, admin })
    }

    /// Starts an echo for one connection; it ends with the number of bytes.
    fn echo(&self, port: u16) -> Echo {
        let address = (self.link.v4(End::B), port);
        let listener =
            self.link.host(End::B).enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let gate = Arc::new((Mutex::new(()), AtomicBool::new(false)));
        let waits = Arc::clone(&gate);
        let thread = std::thread::spawn(move || {
            let mut peer = listener.accept().unwrap().0;
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut buffer, mut all) = (vec![0; 100_000], 0);
            loop {
                // A program may be cut off.
                let len = peer.read(&mut buffer).unwrap_or(0);
                waits.1.store(true, Ordering::SeqCst);
                drop(waits.0.lock().unwrap());
                waits.1.store(false, Ordering::SeqCst);
                if len == 0 || peer.write_all(&buffer[..len]).is_err() {
                    return all;
                }
                all += len;
            }
        });
        Echo { thread, gate }
    }

    /// Starts the program, which goes on at least until the file is there.
    fn start(&self, way: &str, port: u16, rounds: u32) -> (Running, PathBuf) {
        let end = self.world.folder().join("end");
        let mut command = self.program(way, port, rounds);
        command.arg(&end);
        (Running::start(command).unwrap(), end)
    }

    fn program(&self, way: &str, port: u16, rounds: u32) -> Command {
        let mut command = self.world.command(Mode::Sojourn, "python3");
        let address = IpAddr::from(self.link.v4(End::B)).to_string();
        command.arg(programs().join("net/homes.py")).args([way, &address, &port.to_string()]);
        command.arg(rounds.to_string());
        command
    }

    /// Moves the session `stream` by hand; returns its new name.
    #[track_caller]
    fn move_by_hand(&self, stream: u64, home: &str) -> u64 {
        let said = self.world.sojourn(&["move", &stream.to_string(), home]).unwrap();
        let name = said.trim_end().split_once("is away from the kernel, as ");
        name.unwrap_or_else(|| panic!("{home}: {said}")).1.parse().unwrap()
    }

    /// Waits until the protocol server has sent and received for the program.
    #[track_caller]
    fn await_served(&mut self, program: &mut Running) -> SessionInfoT {
        self.await_away(program, HomeT::Server)
    }

    /// Waits until the program's session has had bytes in that home.
    #[track_caller]
    fn await_away(&mut self, program: &mut Running, home: HomeT) -> SessionInfoT {
        let until = Instant::now() + PATIENCE;
        loop {
            let away = self.admin.away().unwrap();
            if let Some(found) = away.into_iter().find(|one| one.received > 0) {
                assert_eq!(found.home, home);
                return found;
            }
            let refused: Vec<_> =
                self.admin.refused().unwrap().into_iter().map(|one| one.reason).collect();
            if !program.is_running() {
                panic!("it has ended; refused: {refused:?}\n{}", program.output());
            }
            assert!(Instant::now() < until, "nothing is away; refused: {refused:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs the program in one way, with what happens meanwhile.
#[track_caller]
fn runs(
    way: &str,
    has_ports: bool,
    rounds: u32,
    meanwhile: impl FnOnce(&mut Scene, &SessionInfoT),
) {
    let Some(mut scene) = Scene::new(has_ports) else { return };
    let port = next_port();
    let echo = scene.echo(port);
    let (mut program, end) = scene.start(way, port, rounds);
    let away = scene.await_served(&mut program);
    meanwhile(&mut scene, &away);
    std::fs::write(end, "").unwrap();
    let said = program.finish(PATIENCE).unwrap().success(way).unwrap();
    assert_eq!(said, "done\n", "{way}");
    assert!(echo.thread.join().unwrap() > rounds as usize, "{way}");
}

/// Kills the protocol server of a program that waits for an answer. Returns true if the program has
/// gone on; false if a call was under way, of which nobody knows if it was done: then its error
/// says so.
fn end_of_killed(way: &str) -> Option<bool> {
    let mut scene = Scene::new(false)?;
    let port = next_port();
    let echo = scene.echo(port);
    let (mut program, end) = scene.start(way, port, 3000);
    let away = scene.await_served(&mut program);
    echo.hold(program.pid(), || {
        kill_process(Pid::from_raw(away.pid.cast_signed()).unwrap(), Signal::KILL).unwrap()
    });
    std::fs::write(end, "").unwrap();
    let finished = program.finish(PATIENCE).unwrap();
    let goes_on = finished.out == "done\n";
    assert!(goes_on || finished.err.contains("ConnectionResetError"), "{}", finished.err);
    Some(goes_on)
}

#[test]
fn calls_that_wait() {
    runs("blocking", false, 2000, |_, _| {});
    runs("timeout", true, 2000, |_, _| {});
}

#[test]
fn calls_that_wait_in_the_server_end_by_limits_and_signals_and_lose_nothing() {
    runs("limit", false, 2000, |_, _| {});
    runs("signals", false, 2000, |_, _| {});
}

#[test]
fn who_jumps_out_of_a_wait_in_the_server_loses_nothing() {
    let Some(mut scene) = Scene::new(false) else { return };
    let program = scene.world.folder().join("jumps");
    compile(&program, &["jumps/jumps.c"], &["-Wall", "-Werror"]).unwrap();
    let port = next_port();
    let echo = scene.echo(port);
    let end = scene.world.folder().join("end");
    let mut command = scene.world.command(Mode::Sojourn, program);
    command.args([IpAddr::from(scene.link.v4(End::B)).to_string(), port.to_string()]).arg(&end);
    let mut program = Running::start(command).unwrap();
    scene.await_served(&mut program);
    std::fs::write(end, "").unwrap();
    let said = program.finish(PATIENCE).unwrap().success("jumps").unwrap();
    assert_eq!(said, "done\n");
    assert!(echo.thread.join().unwrap() > 2000);
}

#[test]
fn one_thread_sends_while_another_waits_for_bytes() {
    runs("threads", false, 1000, |_, _| {});
}

#[test]
fn calls_that_do_not_wait_and_select_and_poll() {
    runs("select", false, 2000, |_, _| {});
    runs("poll", false, 2000, |_, _| {});
}

#[test]
fn epoll_by_level_and_by_edge() {
    runs("epoll", false, 2000, |_, _| {});
    runs("edge", false, 2000, |_, _| {});
}

#[test]
fn both_processes_go_on_after_fork_and_the_session_stays_away() {
    runs("fork", false, 1000, |_, _| {});
}

#[test]
fn the_program_goes_on_in_the_kernel_when_its_protocol_server_is_killed() {
    for way in ["blocking", "epoll"] {
        let mut ends = Vec::new();
        while ends.last() != Some(&true) {
            assert!(ends.len() < 8, "{way}: always in the middle of a call");
            let Some(end) = end_of_killed(way) else { return };
            ends.push(end);
        }
    }
}

#[test]
fn who_waits_for_bytes_sleeps_and_so_does_its_protocol_server() {
    for way in ["blocking", "epoll"] {
        let Some(mut scene) = Scene::new(false) else { return };
        let port = next_port();
        let echo = scene.echo(port);
        let (mut program, end) = scene.start(way, port, 100);
        let away = scene.await_served(&mut program);
        echo.hold(program.pid(), || {
            await_sleep("the protocol server", away.pid);
            await_sleep("the program", program.pid());
        });
        std::fs::write(end, "").unwrap();
        let said = program.finish(PATIENCE).unwrap().success(way).unwrap();
        assert_eq!(said, "done\n", "{way}");
        echo.thread.join().unwrap();
    }
}

#[test]
fn sessions_that_are_recalled_again_and_again_lose_nothing() {
    runs("poll", false, 4000, |scene, _| {
        for _ in 0..20 {
            scene.admin.recall_all().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_session_is_moved_by_hand_between_library_and_server() {
    let Some(mut scene) = Scene::new(false) else { return };
    scene.world.set("HOME", "library");
    // It is to stay where it is put.
    scene.world.set("MEASURE_BULK", "off");
    let port = next_port();
    let echo = scene.echo(port);
    let (mut program, end) = scene.start("poll", port, 1);
    for _ in 0..3 {
        let away = scene.await_away(&mut program, HomeT::Library);
        let served = scene.move_by_hand(away.stream, "server");
        let away = scene.await_away(&mut program, HomeT::Server);
        assert_eq!(away.stream, served);
        scene.move_by_hand(served, "library");
    }
    std::fs::write(&end, "").unwrap();
    let said = program.finish(PATIENCE).unwrap().success("moved by hand").unwrap();
    assert_eq!(said, "done\n");
    assert!(echo.thread.join().unwrap() > 0);
}
