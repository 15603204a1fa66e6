//! A transfer with another host whose every byte is checked, while a test does things to the
//! session and to its server.
//!
//! Not here: the peers (`lab-peer`), and the hosts (`network`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use crate::leftovers::Leftovers;
use crate::network::{Accelerated, Stage};
use crate::{Admin, LIMIT};
use sojourn_lab::net::{End, Link};
use sojourn_lab::{Running, Sandbox};
use std::time::{Duration, Instant};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes in each direction that show progress: more than the buffers on the way hold.
pub const PROGRESS: u64 = 4_000_000;

/// Repeats `ask` until it returns an answer.
///
/// # Panics
/// It gets none in time.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The form of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Form<'f> {
    /// By IPv6 addresses.
    pub is_v6: bool,
    /// The way in which its programs wait (`lab-peer --way`).
    pub way: &'f str,
}

/// A transfer in both directions between a program under Sojourn and a plain one, until it is told
/// to end.
pub struct Transfer<'l> {
    /// The way between the two hosts.
    pub link: &'l Link,
    /// Where the programs run.
    pub stage: Stage,
    /// The end of the program under Sojourn.
    pub end: End,
    /// The programs at A and at B.
    pub peers: [Running; 2],
}

impl<'l> Transfer<'l> {
    /// Starts a transfer on a stage of its own, with the program at `end` under Sojourn.
    pub fn start(link: &'l Link, end: End, is_v6: bool, way: &str) -> Self {
        let accelerated = if end == End::A { Accelerated::Server } else { Accelerated::Client };
        Self::on(Stage::new(link, accelerated).unwrap(), link, end, Form { is_v6, way })
    }

    /// Starts a transfer.
    pub fn on(mut stage: Stage, link: &'l Link, end: End, form: Form<'_>) -> Self {
        let Form { is_v6, way } = form;
        // A trial would make another stream of a transfer that takes long.
        stage.worlds[end as usize].set("MEASURE_BULK", "off");
        let address = match is_v6 {
            true => format!("[{}]:{}", link.v6(End::A), stage.port),
            false => format!("{}:{}", link.v4(End::A), stage.port),
        };
        let over = stage.end_file().to_string_lossy().into_owned();
        let peer = stage.worlds[0].built().path("lab-peer").to_string_lossy().into_owned();
        let start = |end: End, role: &str| {
            let mut command = stage.command(end, &peer);
            command.args([role, "tcp", &address, "--way", way, "--until", &over]);
            Running::start(command).unwrap()
        };
        let peers = [start(End::A, "serve"), start(End::B, "call")];
        Self { link, stage, end, peers }
    }

    /// Returns the sandbox of the program under Sojourn.
    pub fn world(&mut self) -> &mut Sandbox {
        &mut self.stage.worlds[self.end as usize]
    }

    /// Waits until a session is away and its program carries it, which shows in bytes received
    /// through the ring; returns the stream.
    pub fn await_away(&mut self) -> u64 {
        self.await_that("a session that is away", |world| {
            // The server may have just died.
            let away = Admin::new(world).and_then(|mut admin| admin.away()).ok()?;
            away.first().filter(|session| session.received > 0).map(|session| session.stream)
        })
    }

    /// Repeats `ask` until it returns an answer; both programs have to run meanwhile.
    pub fn await_that<T>(&mut self, what: &str, mut ask: impl FnMut(&Sandbox) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self.world()) {
                return answer;
            }
            let is_over = Instant::now() > deadline;
            if is_over || !self.peers.iter_mut().all(Running::is_running) {
                let ended = self.peers.each_mut().map(|peer| !peer.is_running());
                let shown = self.world().sojourn(&["ss", "--why"]);
                std::fs::write(self.stage.end_file(), "").unwrap();
                let server = self.world().stop_server();
                let output = self.peers.each_mut().map(|peer| {
                    let idle = Running::start(std::process::Command::new("true")).unwrap();
                    std::mem::replace(peer, idle).finish(LIMIT)
                });
                panic!(
                    "{what}: not in time; programs have ended: {ended:?}; {output:?} {server:?} \
                     {shown:?}"
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the bytes that the other end's kernel has received and sent.
    pub fn counters(link: &Link, end: End) -> [u64; 2] {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let text = link.host(end.other()).enter(read).unwrap();
        let mut sums = [0; 2];
        for line in text.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:")) {
            let Some((_, numbers)) = line.split_once(':') else { continue };
            let numbers: Vec<u64> =
                numbers.split_whitespace().map(|number| number.parse().unwrap()).collect();
            sums[0] += numbers[0];
            sums[1] += numbers[8];
        }
        sums
    }

    /// Waits until `PROGRESS` bytes have gone each way.
    #[track_caller]
    pub fn await_progress(&mut self, what: &str) {
        let (link, end) = (self.link, self.end);
        let before = Self::counters(link, end);
        self.await_that(what, |_| {
            let now = Self::counters(link, end);
            let is_enough = |(now, before): (&u64, &u64)| now - before > PROGRESS;
            now.iter().zip(&before).all(is_enough).then_some(())
        });
    }

    /// Kills the server, as a crash would.
    pub fn kill_server(&mut self) {
        self.world().kill_server();
    }

    /// Starts the next server.
    pub fn start_server(&mut self) {
        self.world().start_server().unwrap();
    }

    /// Ends the transfer: all bytes that were sent have to arrive, and nothing may be left behind.
    pub fn finish(self) {
        self.finish_with(|_| false);
    }

    /// As [`Self::finish`], although a server has said things that are expected.
    pub fn finish_with(self, is_expected: impl Fn(&str) -> bool) {
        std::fs::write(self.stage.end_file(), "").unwrap();
        let output = self.peers.map(|peer| peer.finish(LIMIT).unwrap().success("a peer"));
        let left = Leftovers::of(self.link, self.end, &self.stage.worlds[self.end as usize]);
        let warnings = self.stage.end();
        let warnings = warnings.or_else(|error| match is_expected(&error.to_string()) {
            true => Ok(()),
            false => Err(error),
        });
        let is_well = output.iter().all(Result::is_ok) && warnings.is_ok();
        assert!(is_well, "{output:?} {warnings:?}");
        left.assert_none();
    }
}
