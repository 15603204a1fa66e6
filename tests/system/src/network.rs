//! Two programs on two hosts: a server and what calls it, either of them under Sojourn or not, and
//! what the caller prints.
//!
//! Not the lab (hosts, links, sandboxes are `sojourn-lab`'s), not the tests. Scripts are in
//! `programs/net/`.

use crate::rights;
use crate::{Admin, LIMIT};
use anyhow::{Context, Result, bail, ensure};
use sojourn_lab::net::{End, Host, Link, is_possible};
use sojourn_lab::{Finished, Mode, Running, Sandbox};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Who of the two is under Sojourn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// Neither.
    Nobody,
    /// The server.
    Server,
    /// The one who calls it.
    Client,
    /// Both, each with a server and a carrier of its own.
    Both,
}

impl Under {
    /// How the program at an end is run; the server is at A.
    #[must_use]
    pub fn mode(self, end: End) -> Mode {
        match (self, end) {
            (Self::Server | Self::Both, End::A) | (Self::Client | Self::Both, End::B) => {
                Mode::Sojourn
            }
            _ => Mode::Plain,
        }
    }
}

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);
/// Within which programs tell their counts (`docs/understand/moves.md`), and some.
const COUNTS_LAG: Duration = Duration::from_millis(250);
/// How often sessions are sent home.
const RECALL_EVERY: Duration = Duration::from_millis(100);

/// Two hosts; `None`, and it is said, where they cannot be had or the packet filter cannot be used.
#[must_use]
pub fn hosts() -> Option<(Host, Host)> {
    let fail = |error: &dyn core::fmt::Display| -> ! { panic!("two hosts: {error}") };
    let held = rustix::thread::capabilities(None).unwrap_or_else(|error| fail(&error)).effective;
    if !held.contains(rustix::thread::CapabilitySet::BPF) {
        eprintln!("skipped: the packet filter takes CAP_BPF");
        return None;
    }
    let host = || Host::new().unwrap_or_else(|error| fail(&error));
    is_possible().then(|| (host(), host()))
}

/// Waits until somebody has bound that UDP port on the host.
///
/// # Errors
/// If nobody does in time.
pub fn await_bound(host: &Host, port: u16) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let suffix = format!(":{port:04X}");
    let is_there = || {
        ["udp", "udp6"].iter().any(|name| {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            text.unwrap_or_default()
                .lines()
                .any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&suffix)))
        })
    };
    while !host.enter(is_there)? {
        ensure!(Instant::now() < deadline, "nobody has bound {port}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Datagrams that the kernel of that host has received for its programs.
///
/// # Errors
/// If it does not tell.
pub fn received_datagrams(host: &Host) -> Result<u64> {
    let [v4, v6] = host.enter(|| {
        ["snmp", "snmp6"].map(|name| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
        })
    })?;
    let mut lines = v4.lines().filter(|line| line.starts_with("Udp:"));
    let names = lines.next().context("no counters")?.split_whitespace();
    let mut found = names.zip(lines.next().context("no counters")?.split_whitespace());
    let (_, v4) = found.find(|(name, _)| *name == "InDatagrams").context("no counter")?;
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6InDatagrams"));
    Ok(v4.parse::<u64>()? + v6.context("no counter")?.trim().parse::<u64>()?)
}

/// Programs on that host that have a port of the packet filter's.
///
/// # Errors
/// If its interfaces cannot be listed.
pub fn filter_ports(host: &Host) -> Result<usize> {
    let links = host.ip(&["-o", "link"])?;
    let names = links.lines().filter_map(|line| line.split_whitespace().nth(1));
    Ok(names.filter(|name| name.starts_with("sojourn")).count())
}

/// A port that no other test of this process has used.
#[must_use]
pub fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(6100);
    NEXT.fetch_add(2, Ordering::Relaxed)
}

/// The folder of what programs are told to do.
#[must_use]
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// Two sandboxes at the ends of a link, and a folder that both sides work in.
#[derive(Debug)]
pub struct Stage {
    /// At A the server's, at B the caller's.
    pub worlds: [Sandbox; 2],
    /// Who is under Sojourn.
    pub under: Under,
    /// Where the server listens.
    pub address: String,
    /// On which port.
    pub port: u16,
    /// Programs under Sojourn have no rights, and each a port of the filter's: see
    /// [`Stage::with_ports`].
    pub has_ports: bool,
}

impl Stage {
    /// Sandboxes at the link's ends. The address is the server's, IPv4.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn new(link: &Link, under: Under) -> Result<Self> {
        let hosts = [link.host(End::A), link.host(End::B)];
        Self::between(hosts, &link.v4(End::A).to_string(), under)
    }

    /// Sandboxes on two hosts, however they are joined. The address is the server's, who is on the
    /// first.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn between(hosts: [&Host; 2], address: &str, under: Under) -> Result<Self> {
        Self::of([Sandbox::on(hosts[0])?, Sandbox::on(hosts[1])?], address, under)
    }

    /// As [`Stage::new`], but packets reach and leave programs through ports, and those under
    /// Sojourn have no rights at all.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn with_ports(link: &Link, under: Under) -> Result<Self> {
        let world = |end| Sandbox::with_ports(link.host(end));
        let worlds = [world(End::A)?, world(End::B)?];
        let mut stage = Self::of(worlds, &link.v4(End::A).to_string(), under)?;
        stage.has_ports = true;
        for world in &stage.worlds {
            rights::open(world)?;
        }
        rights::open_folder(&stage.work())?;
        rights::copy(&programs().join("net"), &stage.worlds[0].folder().join("net"))?;
        Ok(stage)
    }

    /// [`Stage::with_ports`] or [`Stage::new`].
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn either(link: &Link, under: Under, has_ports: bool) -> Result<Self> {
        if has_ports { Self::with_ports(link, under) } else { Self::new(link, under) }
    }

    fn of(mut worlds: [Sandbox; 2], address: &str, under: Under) -> Result<Self> {
        for world in &mut worlds {
            world.set("MOVE_AFTER_CALLS", "4");
        }
        std::fs::create_dir(worlds[0].folder().join("work"))?;
        let (address, port) = (address.to_owned(), next_port());
        Ok(Self { worlds, under, address, port, has_ports: false })
    }

    /// A program of the lab's, where those of this stage may run it.
    #[must_use]
    pub fn built(&self, end: End, name: &str) -> String {
        let world = &self.worlds[end as usize];
        let path =
            if self.has_ports { world.folder().join(name) } else { world.built().path(name) };
        path.to_string_lossy().into_owned()
    }

    /// The folder of what programs are told to do, where those of this stage may read it.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        if self.has_ports { self.worlds[0].folder().to_owned() } else { programs() }
    }

    /// Where both sides work.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.worlds[0].folder().join("work")
    }

    /// A file that is there when the server is to end.
    #[must_use]
    pub fn end_file(&self) -> PathBuf {
        self.worlds[0].folder().join("end")
    }

    /// A command at an end, in its mode.
    #[must_use]
    pub fn command(&self, end: End, program: &str) -> Command {
        let world = &self.worlds[end as usize];
        let mut command = match self.under.mode(end) {
            Mode::Sojourn if self.has_ports => rights::none(world, program),
            mode => world.command(mode, program),
        };
        command.current_dir(self.work()).env("PROGRAMS", self.programs());
        command.env("END", self.end_file());
        command.env("ADDRESS", &self.address).env("PORT", self.port.to_string());
        command.env("HOME", self.work());
        command
    }

    /// Starts a role of a script.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn role(&self, end: End, script: &str) -> Result<Running> {
        let role = if end == End::A { "serve" } else { "call" };
        let mut command = self.command(end, "bash");
        let text = ". \"$PROGRAMS/net/prelude.sh\"; . \"$PROGRAMS/net/$1\"; play \"$2\"";
        command.args(["-c", text, "-", script, role]);
        Running::start(command)
    }

    /// Waits until somebody listens on that port of the server's host.
    ///
    /// # Errors
    /// If nobody does in time.
    pub fn await_listener(&self, link: &Link, port: u16) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let suffix = format!(":{port:04X}");
        let listens = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            local.ends_with(&suffix) && fields.nth(1) == Some("0A")
        };
        loop {
            let text = link.host(End::A).enter(|| {
                ["tcp", "tcp6"]
                    .map(|name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")))
                    .map(Result::unwrap_or_default)
                    .concat()
            })?;
            if text.lines().any(listens) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "nobody listens on port {port}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The ends that are under Sojourn.
    #[must_use]
    pub fn ends_under(&self) -> Vec<End> {
        let is_under = |end: &End| self.under.mode(*end) == Mode::Sojourn;
        [End::A, End::B].into_iter().filter(is_under).collect()
    }

    /// The session servers of the ends that are under Sojourn.
    ///
    /// # Errors
    /// If one does not answer.
    pub fn admins(&self) -> Result<Vec<Admin>> {
        let ends = self.ends_under().into_iter();
        ends.map(|end| Admin::new(&self.worlds[end as usize])).collect()
    }

    /// Waits for a program's end, and meanwhile sends all sessions home again and again.
    ///
    /// # Errors
    /// If it does not end in time, or a server does not answer.
    pub fn finish_recalling(&self, mut program: Running, limit: Duration) -> Result<Finished> {
        let mut admins = self.admins()?;
        let deadline = Instant::now() + limit;
        while program.is_running() && Instant::now() < deadline {
            for admin in &mut admins {
                admin.recall_all()?;
            }
            std::thread::sleep(RECALL_EVERY);
        }
        program.finish(Duration::ZERO)
    }

    /// Datagrams that UDP sockets have received past the kernel that are away now. Programs tell
    /// them a moment late.
    ///
    /// # Errors
    /// If a server does not answer.
    pub fn datagrams(&self) -> Result<u64> {
        std::thread::sleep(COUNTS_LAG);
        let mut count = 0;
        for admin in &mut self.admins()? {
            count += admin.away()?.iter().map(|session| session.datagrams_received).sum::<u64>();
        }
        Ok(count)
    }

    /// Streams made so far.
    ///
    /// # Errors
    /// If a server does not answer.
    pub fn moves(&self) -> Result<u64> {
        self.admins()?.iter_mut().map(|admin| Ok(admin.moves()?.0)).sum()
    }

    /// Ends the session servers. What they have warned of is an error: a session that could not be
    /// put back, an interface that could not be used.
    ///
    /// # Errors
    /// As said.
    pub fn end(mut self) -> Result<()> {
        for world in &mut self.worlds {
            let said = world.stop_server()?;
            let is_news = |line: &&str| !line.contains(": info: ");
            let warnings: Vec<&str> = said.err.lines().filter(is_news).collect();
            ensure!(warnings.is_empty(), "a session server said: {warnings:?}");
        }
        Ok(())
    }
}

/// What a script came to.
#[derive(Debug)]
pub struct Ran {
    /// What the caller printed.
    pub said: String,
    /// Streams that were made.
    pub moves: u64,
    /// Datagrams that UDP sockets received past the kernel which were away when the caller ended.
    pub datagrams: u64,
}

/// Runs both roles of a script.
///
/// # Errors
/// What was said, if anything fails.
pub fn run(link: &Link, script: &str, under: Under, recalls: bool) -> Result<Ran> {
    let started = Instant::now();
    let stage = Stage::new(link, under)?;
    let what = format!("{script} {under:?}{}", if recalls { " recalled" } else { "" });
    let server = stage.role(End::A, script)?;
    let listening = stage.await_listener(link, stage.port);
    let caller = listening.and_then(|()| {
        let caller = stage.role(End::B, script)?;
        if recalls { stage.finish_recalling(caller, LIMIT) } else { caller.finish(LIMIT) }
    });
    let (moves, datagrams) = (stage.moves()?, stage.datagrams()?);
    for end in stage.ends_under() {
        println!("{what} {end:?}: {}", stage.worlds[end as usize].stats()?);
    }
    std::fs::write(stage.end_file(), "")?;
    let served = server.finish(PATIENCE);
    let caller = match caller {
        Ok(caller) => caller,
        Err(error) => bail!("{what}: {error:#}\nserver: {served:?}\n{:?}", stage.end()),
    };
    let folder = stage.worlds[0].folder().to_string_lossy().into_owned();
    let said = format!("{}{}status {}", caller.out, caller.err, caller.status);
    let said = said.replace(&folder, "FOLDER");
    println!("{what}: {:.1} s, {moves} streams", started.elapsed().as_secs_f64());
    ensure!(caller.status == 0, "{what}: {said}\nserver: {served:?}\n{:?}", stage.end());
    let served = served.context("the server")?;
    stage.end().with_context(|| format!("{what}: {said}\nserver: {served:?}"))?;
    Ok(Ran { said, moves, datagrams })
}
