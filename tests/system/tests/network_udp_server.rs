//! Tests of deaths of the session server while UDP sockets are away: the sockets go on, and the
//! next server takes them over.
//!
//! The questions are numbered and none is asked twice, so every loss is seen. The same for TCP:
//! `network_server`. Needs root and network namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{End, Link};
use sojourn_lab::{Finished, Running, Sandbox};
use sojourn_session::KindT;
use sojourn_system::leftovers::{Leftovers, keeper, keeper_path};
use sojourn_system::network::{Accelerated, Stage, await_bound, hosts};
use sojourn_system::{Admin, LIMIT};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of answers that shows progress.
const PROGRESS: u64 = 500;
/// Time (s) after which an answer counts as late. Who asks a program that has ended waits for it a
/// few times.
const ANSWER: &str = "1";

/// A program that asks and one that answers; one of them is under Sojourn.
struct Exchange<'l> {
    link: &'l Link,
    stage: Stage,
    end: End,
    serves: Running,
    asks: Running,
}

impl<'l> Exchange<'l> {
    fn start(link: &'l Link, end: End, bound: &str, form: &str, has_ports: bool) -> Self {
        let accelerated = if end == End::A { Accelerated::Server } else { Accelerated::Client };
        let stage = Stage::either(link, accelerated, has_ports).unwrap();
        let port = stage.port.to_string();
        let start = |end, name: &str, words: &[&str]| {
            let mut command = stage.command(end, "python3");
            let path = stage.programs().join("net").join(name);
            command.arg(path).args(words).env("PYTHONUNBUFFERED", "1").env("ANSWER", ANSWER);
            Running::start(command).unwrap()
        };
        let serves = start(End::A, "udp.py", &["serve", "epoll", bound, &port]);
        await_bound(link.host(End::A), stage.port).unwrap();
        let address = match bound.contains(':') {
            true => link.v6(End::A).to_string(),
            false => stage.address.clone(),
        };
        let asks = start(End::B, "udp_count.py", &["epoll", &address, &port, form]);
        Self { link, stage, end, serves, asks }
    }

    fn world(&mut self) -> &mut Sandbox {
        &mut self.stage.worlds[self.end as usize]
    }

    fn await_that<T>(&mut self, what: &str, mut ask: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            let are_running = self.asks.is_running() && self.serves.is_running();
            assert!(are_running && Instant::now() < deadline, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a session is away and datagrams of it have gone past the kernel; returns its
    /// stream.
    fn await_away(&mut self) -> u64 {
        let mut admin = Admin::new(self.world()).unwrap();
        self.await_that("a socket that is away", |_| {
            let away = admin.away().unwrap();
            let is_it = |session: &&_| is_carried(session);
            away.iter().find(is_it).map(|session| session.stream)
        })
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.stage.end_file().with_extension(suffix)
    }

    fn asked(&self) -> u64 {
        let text = std::fs::read_to_string(self.file("asked")).unwrap_or_default();
        text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// Returns the number of datagrams that the kernel of the end under Sojourn has delivered to
    /// programs.
    fn by_kernel(&self) -> u64 {
        sojourn_system::network::received_datagrams(self.link.host(self.end)).unwrap()
    }

    /// Waits for `PROGRESS` answers; returns how many of them the kernel has delivered.
    fn await_progress(&mut self, what: &str) -> u64 {
        let (before, by_kernel) = (self.asked(), self.by_kernel());
        self.await_that(what, |this| (this.asked() > before + PROGRESS).then_some(()));
        self.by_kernel() - by_kernel
    }

    /// Ends the exchange: every question must have been answered, and nothing may be left behind.
    fn finish(mut self) {
        std::fs::write(self.stage.end_file(), "").unwrap();
        let left = Leftovers::of(self.link, self.end, self.world());
        let [asks, serves] = [self.asks, self.serves].map(|one| one.finish(LIMIT).unwrap());
        assert_eq!((asks.status, serves.status), (0, 0), "{asks:?} {serves:?}");
        assert_nothing_lost(&asks);
        self.stage.end().unwrap();
        left.assert_none();
    }
}

fn is_carried(session: &sojourn_session::SessionInfoT) -> bool {
    session.kind == KindT::Udp && session.received > 0
}

#[track_caller]
fn assert_nothing_lost(asks: &Finished) {
    let output: serde_json::Value = serde_json::from_str(asks.out.trim()).unwrap();
    println!("{output}");
    assert_eq!(output["lost"], serde_json::json!([]), "{output}");
    assert_eq!(output["late"], 0, "{output}");
}

/// Kills the server twice. The session goes on past the kernel; the next server has it and can send
/// it home.
fn outlives(link: &Link, end: End, bound: &str, form: &str, has_ports: bool) {
    let mut exchange = Exchange::start(link, end, bound, form, has_ports);
    let stream = exchange.await_away();
    for death in 1..=2 {
        exchange.world().kill_server();
        let by_kernel = exchange.await_progress("answers without a server");
        assert!(by_kernel < PROGRESS / 4, "{by_kernel} of {PROGRESS} by the kernel");
        exchange.world().start_server().unwrap();
        // The stream is the same, so this is no new move.
        assert_eq!(exchange.await_away(), stream, "{death}");
        let by_kernel = exchange.await_progress("answers with the next server");
        assert!(by_kernel < PROGRESS / 4, "{by_kernel} of {PROGRESS} by the kernel");
        assert_eq!(exchange.await_away(), stream, "{death}");
    }
    let shown = exchange.world().sessions().unwrap();
    let number = serde_json::Value::from(stream.to_string());
    let is_it = |session: &&serde_json::Value| session["stream"] == number;
    let session = shown["sessions"].as_array().unwrap().iter().find(is_it).expect("ss shows it");
    assert_eq!((&session["home"], &session["kind"]), (&"library".into(), &"udp".into()));
    exchange.world().sojourn(&["move", &stream.to_string(), "kernel"]).unwrap();
    let mut admin = Admin::new(exchange.world()).unwrap();
    exchange.await_that("the way home", |_| {
        admin.away().unwrap().iter().all(|session| session.stream != stream).then_some(())
    });
    exchange.await_progress("answers after the way home");
    exchange.finish();
}

#[test]
fn sockets_outlive_servers() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let v4 = link.v4(End::A).to_string();
    for (end, bound) in [(End::A, &*v4), (End::A, "0.0.0.0"), (End::A, "::"), (End::B, &v4)] {
        for form in ["connected", "unconnected"] {
            outlives(&link, end, bound, form, false);
        }
    }
}

#[test]
fn sockets_behind_ports_outlive_servers() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let bound = link.v4(End::A).to_string();
    outlives(&link, End::A, "::", "unconnected", true);
    outlives(&link, End::B, &bound, "connected", true);
}

/// Tests that a call which sends the session home waits for the next server, as with TCP.
#[test]
fn what_sends_it_home_without_a_server_waits_for_the_next() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let bound = link.v4(End::A).to_string();
    let mut exchange = Exchange::start(&link, End::B, &bound, "connected", false);
    exchange.await_away();
    exchange.world().kill_server();
    exchange.await_progress("answers without a server");
    let option = exchange.file("option");
    std::fs::write(&option, "").unwrap();
    exchange.await_that("the call", |_| (!option.exists()).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    let before = exchange.asked();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(exchange.asked(), before, "it has not waited");
    exchange.world().start_server().unwrap();
    exchange.await_progress("answers after the call");
    exchange.finish();
}

#[test]
fn a_program_that_ends_without_a_server_leaves_its_port() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let bound = link.v4(End::A).to_string();
    for signal in [None, Some(rustix::process::Signal::KILL)] {
        let mut exchange = Exchange::start(&link, End::A, &bound, "unconnected", false);
        exchange.await_away();
        exchange.world().kill_server();
        exchange.await_progress("answers without a server");
        let path = keeper_path(exchange.world());
        assert!(keeper(&path).is_some(), "nobody keeps it");
        match signal {
            Some(signal) => exchange.serves.signal(signal),
            None => std::fs::write(exchange.stage.end_file(), "").unwrap(),
        }
        exchange.await_end_of_serving();
        exchange.world().start_server().unwrap();
        std::fs::write(exchange.stage.end_file(), "").unwrap();
        assert_eq!(exchange.asks.finish(LIMIT).unwrap().status, 0);
        let left = Leftovers::of(&link, End::A, &exchange.stage.worlds[0]);
        left.assert_none();
    }
}

impl Exchange<'_> {
    fn await_end_of_serving(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.serves.is_running() {
            assert!(Instant::now() < deadline, "it has not ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
