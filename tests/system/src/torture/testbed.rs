//! The place of an episode: one host, or two with a link between them, with their servers.
//!
//! Not here: the disturbances (`strikes`).

use crate::Admin;
use crate::network::{Accelerated, Stage};
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sojourn_lab::net::{Conditions, End, Host, Link};
use sojourn_lab::{Mode, Sandbox};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Values of the settings `MOVE_AFTER_CALLS` and `RING_BYTES` to choose from.
const CALLS: [&str; 4] = ["0", "4", "4", "64"];
const RINGS: [&str; 3] = ["16k", "64k", "256k"];
/// Time between two questions to a server that begins anew.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Sandboxes with their servers.
enum Ground {
    One(Box<Sandbox>),
    Two(Box<Stage>),
}

/// The state of a server as the torture knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerState {
    /// Number of streams that the server had made at the last count.
    moves: u64,
    /// True if the server is stopped, or short of a resource: it need not answer.
    pub(super) is_hampered: bool,
    /// True if the server may end for want of memory.
    pub(super) may_starve: bool,
    /// The time until which the server may cut clients off, because a process of it was killed and
    /// the others begin anew.
    pub(super) cuts_until: Option<Instant>,
}

/// A place. The link is dropped after the hosts' programs.
pub(super) struct Testbed {
    ground: Ground,
    pub(super) link: Option<Link>,
    pub(super) servers: [ServerState; 2],
    is_through: bool,
    pub(super) name: String,
    /// The output of servers that have ended, except for information.
    pub(super) warned: Vec<String>,
}

impl Testbed {
    /// Makes one host.
    pub(super) fn one(random: &mut Random) -> Result<Self> {
        let mut sandbox = Sandbox::new()?;
        let name = format!("one host, {}", set(&mut sandbox, random));
        let ground = Ground::One(Box::new(sandbox));
        Ok(Self {
            ground,
            link: None,
            servers: Default::default(),
            is_through: false,
            name,
            warned: Vec::new(),
        })
    }

    /// Makes two hosts.
    pub(super) fn two(random: &mut Random) -> Result<Self> {
        let (a, b) = (Host::new()?, Host::new()?);
        let is_through = random.percent(60);
        let link = match is_through {
            true => Link::through(&a, &b, 1500, random.next(), weather(random))?,
            false => Link::direct(&a, &b, 1500)?,
        };
        let accelerated =
            random.pick(&[Accelerated::Server, Accelerated::Client, Accelerated::Both]);
        let accelerated = accelerated.unwrap_or(Accelerated::Both);
        let has_ports = random.percent(50);
        let mut stage = Stage::either(&link, accelerated, has_ports)?;
        let said: Vec<_> = stage.worlds.iter_mut().map(|world| set(world, random)).collect();
        let words = (if is_through { "bad link" } else { "direct" }, has_ports);
        let name = format!(
            "two hosts, {} under, {words:?}, {}",
            format!("{accelerated:?}").to_lowercase(),
            said.join("; ")
        );
        let ground = Ground::Two(Box::new(stage));
        Ok(Self {
            ground,
            link: Some(link),
            servers: Default::default(),
            is_through,
            name,
            warned: Vec::new(),
        })
    }

    /// Returns true if there are two hosts.
    pub(super) fn is_between_hosts(&self) -> bool {
        matches!(self.ground, Ground::Two(_))
    }

    /// Returns the indexes of the sandboxes whose programs are under Sojourn.
    pub(super) fn served(&self) -> Vec<usize> {
        match &self.ground {
            Ground::One(_) => vec![0],
            Ground::Two(stage) => stage.ends_under().into_iter().map(|end| end as usize).collect(),
        }
    }

    pub(super) fn world(&mut self, which: usize) -> &mut Sandbox {
        match &mut self.ground {
            Ground::One(sandbox) => sandbox,
            Ground::Two(stage) => &mut stage.worlds[which],
        }
    }

    /// Returns a folder that all users may use.
    pub(super) fn folder(&self) -> PathBuf {
        match &self.ground {
            Ground::One(sandbox) => sandbox.folder().into(),
            Ground::Two(stage) => stage.work(),
        }
    }

    /// Returns a command for `lab-peer` at an end, in the mode of that end.
    pub(super) fn peer(&self, end: End) -> Command {
        match &self.ground {
            Ground::One(sandbox) => {
                sandbox.command(Mode::Sojourn, sandbox.built().path("lab-peer"))
            }
            Ground::Two(stage) => stage.command(end, &stage.built(end, "lab-peer")),
        }
    }

    /// Asks a server, if it can answer; again while it may cut clients off.
    fn ask<T>(
        &mut self,
        which: usize,
        question: impl Fn(&mut Admin) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            let state = self.servers[which];
            if state.is_hampered || !self.world(which).has_server() {
                return Ok(None);
            }
            let answer = Admin::new(self.world(which)).and_then(|mut admin| question(&mut admin));
            let is_cut = state.cuts_until.is_some_and(|until| Instant::now() < until);
            if answer.is_ok() || !is_cut {
                return answer.map(Some);
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Counts the streams made since the last count.
    pub(super) fn new_moves(&mut self) -> Result<u64> {
        let mut sum = 0;
        for which in self.served() {
            let Some(moves) = self.ask(which, Admin::moves)? else { continue };
            sum += moves.joins.saturating_sub(self.servers[which].moves);
            self.servers[which].moves = moves.joins;
        }
        Ok(sum)
    }

    /// Counts the sessions that are away now, at the servers that can answer.
    pub(super) fn away(&mut self) -> Result<u64> {
        let mut sum = 0;
        for which in self.served() {
            sum += self.ask(which, Admin::away)?.map_or(0, |away| away.len() as u64);
        }
        Ok(sum)
    }

    /// Recalls all sessions.
    pub(super) fn recall(&mut self) -> Result<()> {
        for which in self.served() {
            self.ask(which, Admin::recall_all)?;
        }
        Ok(())
    }

    /// Starts a server, if it does not run.
    pub(super) fn start(&mut self, which: usize) -> Result<()> {
        if self.world(which).has_server() {
            return Ok(());
        }
        self.servers[which] = ServerState::default();
        self.world(which).start_server()
    }

    /// Ends a server by a signal. Fails if it has panicked, or ended with an error when it was told
    /// to end.
    pub(super) fn end(&mut self, which: usize, signal: Signal) -> Result<()> {
        let said = self.world(which).end_server(signal)?;
        self.servers[which] = ServerState::default();
        let is_news = |line: &&str| line.contains(": info: ");
        let warned = said.err.lines().filter(|line| !is_news(line));
        self.warned.extend(warned.map(|line| format!("server {which}: {line}")));
        ensure!(!said.err.contains("panicked"), "the server has panicked: {}", said.err);
        let is_well = signal != Signal::TERM || said.status == 0;
        ensure!(is_well, "the server told to end: {said:?}");
        Ok(())
    }

    /// Returns the process numbers of the server's children.
    pub(super) fn servers_processes(&mut self, which: usize) -> Vec<u32> {
        self.world(which).server_pids().into_iter().skip(1).collect()
    }

    /// Sets other conditions; returns `false` if this link has none.
    pub(super) fn change_weather(&self, conditions: impl FnMut() -> Conditions) -> Result<bool> {
        let Some(link) = self.link.as_ref().filter(|_| self.is_through) else { return Ok(false) };
        let mut conditions = conditions;
        for end in [End::A, End::B] {
            link.set_conditions(end, conditions())?;
        }
        Ok(true)
    }

    /// Pulls the link's cable, or plugs it in; returns `false` if this link has none.
    pub(super) fn set_carrier(&self, is_up: bool) -> Result<bool> {
        let Some(link) = self.link.as_ref().filter(|_| self.is_through) else { return Ok(false) };
        link.set_carrier(is_up)?;
        Ok(true)
    }

    /// Returns an address at which to listen, and which to connect to.
    pub(super) fn tcp_address(&self, is_v6: bool) -> Result<String> {
        let Some(link) = &self.link else {
            let address = if is_v6 { "[::1]" } else { "127.0.0.1" };
            return Ok(format!("{address}:{}", crate::free_port(address)?));
        };
        let port = crate::network::next_port();
        Ok(match is_v6 {
            true => format!("[{}]:{port}", link.v6(End::A)),
            false => format!("{}:{port}", link.v4(End::A)),
        })
    }

    /// Waits until no session is away.
    pub(super) fn await_none_away(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while self.away().context("a server at the end")? > 0 {
            ensure!(Instant::now() < deadline, "sessions are listed whose programs have ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Chooses a sandbox's settings; returns their description.
fn set(sandbox: &mut Sandbox, random: &mut Random) -> String {
    let calls = random.pick(&CALLS).unwrap_or("4");
    let ring = random.pick(&RINGS).unwrap_or("64k");
    sandbox.set("MOVE_AFTER_CALLS", calls);
    sandbox.set("RING_BYTES", ring);
    format!("after {calls} calls, rings of {ring}")
}

/// Chooses the conditions of a link.
pub(super) fn weather(random: &mut Random) -> Conditions {
    if random.percent(25) {
        return Conditions::default();
    }
    Conditions {
        loss: random.probability(0.03),
        duplicate: random.probability(0.03),
        corrupt: random.probability(0.01),
        reorder: random.probability(0.05),
        delay: random.ms(0..=10),
        jitter: random.ms(0..=4),
        rate: random.percent(30).then(|| random.within(10..=200) * 1_000_000),
        ..Conditions::default()
    }
}
