//! Where an episode plays: one host, or two with a link between them; their servers.
//!
//! Not what is done there (`strikes`).

use super::random::Random;
use crate::Admin;
use crate::network::{Stage, Under};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sojourn_lab::net::{Conditions, End, Host, Link};
use sojourn_lab::{Mode, Sandbox};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What there is to choose from.
const CALLS: [&str; 4] = ["0", "4", "4", "64"];
const RINGS: [&str; 3] = ["16k", "64k", "256k"];

/// Worlds with their servers.
enum Ground {
    One(Box<Sandbox>),
    Two(Box<Stage>),
}

/// A server of a world.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerState {
    /// Streams that it had made when it was last asked.
    moves: u64,
    /// Stopped, or short of something: it need not answer.
    pub(super) is_hampered: bool,
    /// It may end for want of memory.
    pub(super) may_starve: bool,
}

/// A place. The link goes last.
pub(super) struct Place {
    ground: Ground,
    pub(super) link: Option<Link>,
    pub(super) servers: [ServerState; 2],
    is_through: bool,
    pub(super) name: String,
    /// What servers that have ended said, but for news.
    pub(super) warned: Vec<String>,
}

impl Place {
    /// One host.
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

    /// Two hosts.
    pub(super) fn two(random: &mut Random) -> Result<Self> {
        let (a, b) = (Host::new()?, Host::new()?);
        let is_through = random.percent(60);
        let link = match is_through {
            true => Link::through(&a, &b, 1500, random.next(), weather(random))?,
            false => Link::direct(&a, &b, 1500)?,
        };
        let under = random.pick(&[Under::Server, Under::Client, Under::Both]);
        let under = under.unwrap_or(Under::Both);
        let has_ports = random.percent(50);
        let mut stage = Stage::either(&link, under, has_ports)?;
        let said: Vec<_> = stage.worlds.iter_mut().map(|world| set(world, random)).collect();
        let words = (if is_through { "bad link" } else { "direct" }, has_ports);
        let name = format!(
            "two hosts, {} under, {words:?}, {}",
            format!("{under:?}").to_lowercase(),
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

    /// Whether there are two hosts.
    pub(super) fn is_between_hosts(&self) -> bool {
        matches!(self.ground, Ground::Two(_))
    }

    /// The worlds whose programs are under Sojourn.
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

    /// A folder that everybody here may use.
    pub(super) fn folder(&self) -> PathBuf {
        match &self.ground {
            Ground::One(sandbox) => sandbox.folder().into(),
            Ground::Two(stage) => stage.work(),
        }
    }

    /// `lab-peer` at an end, in its mode.
    pub(super) fn peer(&self, end: End) -> Command {
        match &self.ground {
            Ground::One(sandbox) => {
                sandbox.command(Mode::Sojourn, sandbox.built().path("lab-peer"))
            }
            Ground::Two(stage) => stage.command(end, &stage.built(end, "lab-peer")),
        }
    }

    /// Streams made since the last time.
    pub(super) fn new_moves(&mut self) -> Result<u64> {
        let mut sum = 0;
        for which in self.served() {
            if self.servers[which].is_hampered || !self.world(which).has_server() {
                continue;
            }
            let now = Admin::new(self.world(which))?.moves()?.0;
            sum += now.saturating_sub(self.servers[which].moves);
            self.servers[which].moves = now;
        }
        Ok(sum)
    }

    /// Sessions that are away now, as far as servers can be asked.
    pub(super) fn away(&mut self) -> Result<u64> {
        let mut sum = 0;
        for which in self.served() {
            if !self.servers[which].is_hampered && self.world(which).has_server() {
                sum += Admin::new(self.world(which))?.away()?.len() as u64;
            }
        }
        Ok(sum)
    }

    /// Sends all home.
    pub(super) fn recall(&mut self) -> Result<()> {
        for which in self.served() {
            if !self.servers[which].is_hampered && self.world(which).has_server() {
                Admin::new(self.world(which))?.recall_all()?;
            }
        }
        Ok(())
    }

    /// Starts a server where there is none.
    pub(super) fn start(&mut self, which: usize) -> Result<()> {
        if self.world(which).has_server() {
            return Ok(());
        }
        self.servers[which] = ServerState::default();
        self.world(which).start_server()
    }

    /// Ends a server by a signal. What it has said must not be of its own code's faults.
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

    /// The process numbers of the server's own processes.
    pub(super) fn servers_processes(&mut self, which: usize) -> Vec<u32> {
        let Some(server) = self.world(which).server_pid() else { return Vec::new() };
        let tasks = std::fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten();
        let of_task = |task: std::fs::DirEntry| {
            let children = std::fs::read_to_string(task.path().join("children"));
            let pids = children.unwrap_or_default();
            pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        };
        tasks.flatten().flat_map(of_task).collect()
    }

    /// Another weather; `false` if this link has none.
    pub(super) fn change_weather(&self, conditions: impl FnMut() -> Conditions) -> Result<bool> {
        let Some(link) = self.link.as_ref().filter(|_| self.is_through) else { return Ok(false) };
        let mut conditions = conditions;
        for end in [End::A, End::B] {
            link.set_conditions(end, conditions())?;
        }
        Ok(true)
    }

    /// Pulls the link's cable, or puts it in; `false` if it has none.
    pub(super) fn set_carrier(&self, is_up: bool) -> Result<bool> {
        let Some(link) = self.link.as_ref().filter(|_| self.is_through) else { return Ok(false) };
        link.set_carrier(is_up)?;
        Ok(true)
    }

    /// Where to listen and where to call.
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

    /// Waits until no session is away any more.
    pub(super) fn await_none_away(&mut self, limit: Duration) -> Result<()> {
        let deadline = std::time::Instant::now() + limit;
        while self.away().context("a server at the end")? > 0 {
            ensure!(
                std::time::Instant::now() < deadline,
                "sessions are listed whose programs have ended"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Chooses a world's settings; says them.
fn set(sandbox: &mut Sandbox, random: &mut Random) -> String {
    let calls = random.pick(&CALLS).unwrap_or("4");
    let ring = random.pick(&RINGS).unwrap_or("64k");
    sandbox.set("MOVE_AFTER_CALLS", calls);
    sandbox.set("RING_BYTES", ring);
    format!("after {calls} calls, rings of {ring}")
}

/// What a link does to frames.
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
