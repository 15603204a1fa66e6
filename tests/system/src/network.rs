//! Two programs on two hosts: a server, and a caller whose output is compared; each of them plain
//! or under Sojourn.
//!
//! Not here: hosts, links and sandboxes (`sojourn-lab`), and the tests. The scripts are in
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

/// The programs that are under Sojourn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerated {
    /// Neither program.
    Neither,
    /// The server.
    Server,
    /// The caller.
    Client,
    /// Both programs, each with a session server and a carrier of its own.
    Both,
}

impl Accelerated {
    /// Returns the mode of the program at an end; the server is at A.
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

/// Longest time until a server listens.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time after which the counters of programs are up to date (`docs/understand/moves.md`), with a
/// margin.
const COUNTS_LAG: Duration = Duration::from_millis(250);
/// Time between two recalls of all sessions.
const RECALL_EVERY: Duration = Duration::from_millis(100);

/// Makes two hosts. Returns `None`, and prints the reason, where hosts or the packet filter are not
/// allowed.
#[must_use]
pub fn hosts() -> Option<[Host; 2]> {
    let fail = |error: &dyn core::fmt::Display| -> ! { panic!("two hosts: {error}") };
    let held = rustix::thread::capabilities(None).unwrap_or_else(|error| fail(&error)).effective;
    if !held.contains(rustix::thread::CapabilitySet::BPF) {
        eprintln!("skipped: the packet filter takes CAP_BPF");
        return None;
    }
    let host = || Host::new().unwrap_or_else(|error| fail(&error));
    is_possible().then(|| [host(), host()])
}

/// Waits until a program on the host has bound a UDP port.
///
/// # Errors
/// If none does in time.
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

/// Returns the number of datagrams that the host's kernel has received for programs
/// (`InDatagrams`).
///
/// # Errors
/// If the counters cannot be read.
pub fn received_datagrams(host: &Host) -> Result<u64> {
    datagrams(host, "InDatagrams")
}

/// Returns the number of datagrams for which there was no room in a socket of the host's kernel.
///
/// # Errors
/// If the counters cannot be read.
pub fn datagrams_without_room(host: &Host) -> Result<u64> {
    datagrams(host, "RcvbufErrors")
}

/// Returns a counter of the host's UDP, of both address families together (proc_net_snmp(5)).
fn datagrams(host: &Host, counter: &str) -> Result<u64> {
    let [v4, v6] = host.enter(|| {
        ["snmp", "snmp6"].map(|name| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
        })
    })?;
    let mut lines = v4.lines().filter(|line| line.starts_with("Udp:"));
    let names = lines.next().context("no counters")?.split_whitespace();
    let mut found = names.zip(lines.next().context("no counters")?.split_whitespace());
    let (_, v4) = found.find(|(name, _)| *name == counter).context("no counter")?;
    let v6 = v6.lines().find_map(|line| line.strip_prefix(&format!("Udp6{counter}")));
    Ok(v4.parse::<u64>()? + v6.context("no counter")?.trim().parse::<u64>()?)
}

/// Returns how often a retransmission time-out of a TCP session has run out in the host's kernel
/// (`TCPTimeouts`).
///
/// # Errors
/// If the counters cannot be read.
pub fn retransmission_timeouts(host: &Host) -> Result<u64> {
    let text = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))??;
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next().context("no counters")?.split_whitespace();
    let mut found = names.zip(lines.next().context("no counters")?.split_whitespace());
    let (_, value) = found.find(|(name, _)| *name == "TCPTimeouts").context("no counter")?;
    Ok(value.parse()?)
}

/// Counts the ports of the packet filter on the host: one for each program that has one.
///
/// # Errors
/// If the host's interfaces cannot be listed.
pub fn filter_ports(host: &Host) -> Result<usize> {
    let links = host.ip(&["-o", "link"])?;
    let names = links.lines().filter_map(|line| line.split_whitespace().nth(1));
    Ok(names.filter(|name| name.starts_with("sojourn")).count())
}

/// Returns a port that no other test of this process has used.
#[must_use]
pub fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(6100);
    NEXT.fetch_add(2, Ordering::Relaxed)
}

/// Returns the folder of the scripts.
#[must_use]
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// Two sandboxes at the ends of a link, and a working folder for both sides.
#[derive(Debug)]
pub struct Stage {
    /// The sandboxes: at A the server's, at B the caller's.
    pub worlds: [Sandbox; 2],
    /// The programs that are under Sojourn.
    pub accelerated: Accelerated,
    /// The address at which the server listens.
    pub address: String,
    /// The port on which the server listens.
    pub port: u16,
    /// True if programs under Sojourn have no rights, and each has a port of the packet filter: see
    /// [`Stage::with_ports`].
    pub has_ports: bool,
}

impl Stage {
    /// Makes sandboxes at the link's ends. The address is the server's IPv4 address.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn new(link: &Link, accelerated: Accelerated) -> Result<Self> {
        let hosts = [link.host(End::A), link.host(End::B)];
        Self::between(hosts, &link.v4(End::A).to_string(), accelerated)
    }

    /// Makes sandboxes on two hosts, which may be joined in any way. The server is on the first, at
    /// `address`.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn between(hosts: [&Host; 2], address: &str, accelerated: Accelerated) -> Result<Self> {
        Self::of([Sandbox::on(hosts[0])?, Sandbox::on(hosts[1])?], address, accelerated)
    }

    /// Makes a stage as [`Stage::new`] does, whose programs under Sojourn have no rights and send
    /// and receive packets through ports.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn with_ports(link: &Link, accelerated: Accelerated) -> Result<Self> {
        let world = |end| Sandbox::with_ports(link.host(end));
        let worlds = [world(End::A)?, world(End::B)?];
        let mut stage = Self::of(worlds, &link.v4(End::A).to_string(), accelerated)?;
        stage.has_ports = true;
        for world in &stage.worlds {
            rights::open(world)?;
        }
        rights::open_folder(&stage.work())?;
        rights::copy(&programs().join("net"), &stage.worlds[0].folder().join("net"))?;
        Ok(stage)
    }

    /// As [`Stage::new`], with ports and with session servers as their unit starts them.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn as_unit(link: &Link, accelerated: Accelerated) -> Result<Self> {
        let world = |end| Sandbox::as_unit(link.host(end));
        Self::of([world(End::A)?, world(End::B)?], &link.v4(End::A).to_string(), accelerated)
    }

    /// Makes a stage by [`Stage::with_ports`] or [`Stage::new`].
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn either(link: &Link, accelerated: Accelerated, has_ports: bool) -> Result<Self> {
        if has_ports { Self::with_ports(link, accelerated) } else { Self::new(link, accelerated) }
    }

    fn of(mut worlds: [Sandbox; 2], address: &str, accelerated: Accelerated) -> Result<Self> {
        for world in &mut worlds {
            world.set("MOVE_AFTER_CALLS", "4");
        }
        std::fs::create_dir(worlds[0].folder().join("work"))?;
        let (address, port) = (address.to_owned(), next_port());
        Ok(Self { worlds, accelerated, address, port, has_ports: false })
    }

    /// Returns the path of one of the lab's programs that this stage's programs may run.
    #[must_use]
    pub fn built(&self, end: End, name: &str) -> String {
        let world = &self.worlds[end as usize];
        let path =
            if self.has_ports { world.folder().join(name) } else { world.built().path(name) };
        path.to_string_lossy().into_owned()
    }

    /// Returns a folder with the scripts that this stage's programs may read.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        if self.has_ports { self.worlds[0].folder().to_owned() } else { programs() }
    }

    /// Returns the working folder of both sides.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.worlds[0].folder().join("work")
    }

    /// Returns the path of the file whose existence ends the server.
    #[must_use]
    pub fn end_file(&self) -> PathBuf {
        self.worlds[0].folder().join("end")
    }

    /// Returns a command at an end, in the mode of that end.
    #[must_use]
    pub fn command(&self, end: End, program: &str) -> Command {
        let world = &self.worlds[end as usize];
        let mut command = match self.accelerated.mode(end) {
            Mode::Sojourn if self.has_ports => rights::none(world, program),
            mode => world.command(mode, program),
        };
        command.current_dir(self.work()).env("PROGRAMS", self.programs());
        command.env("END", self.end_file());
        command.env("ADDRESS", &self.address).env("PORT", self.port.to_string());
        command.env("HOME", self.work());
        command
    }

    /// Starts a script in the role of an end.
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

    /// Waits until a program listens on a TCP port of the server's host.
    ///
    /// # Errors
    /// If none does in time.
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

    /// Returns the ends whose programs are under Sojourn.
    #[must_use]
    pub fn ends_under(&self) -> Vec<End> {
        let is_under = |end: &End| self.accelerated.mode(*end) == Mode::Sojourn;
        [End::A, End::B].into_iter().filter(is_under).collect()
    }

    /// Connects to the session servers of the ends that are under Sojourn.
    ///
    /// # Errors
    /// If one does not answer.
    pub fn admins(&self) -> Result<Vec<Admin>> {
        let ends = self.ends_under().into_iter();
        ends.map(|end| Admin::new(&self.worlds[end as usize])).collect()
    }

    /// Waits for a program's end, and recalls all sessions again and again meanwhile.
    ///
    /// # Errors
    /// If the program does not end in time, or a server does not answer.
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

    /// Returns the number of datagrams that UDP sessions, which are away now, have received past
    /// the kernel. Waits first, because programs publish these counters with a delay.
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

    /// Returns the number of streams made so far.
    ///
    /// # Errors
    /// If a server does not answer.
    pub fn moves(&self) -> Result<u64> {
        self.admins()?.iter_mut().map(|admin| Ok(admin.moves()?.joins)).sum()
    }

    /// Ends the session servers. A warning in their output is an error: of a session that could not
    /// be put back, or an interface that could not be used.
    ///
    /// # Errors
    /// The warnings, or if a server does not end.
    pub fn end(mut self) -> Result<()> {
        for world in &mut self.worlds {
            let output = world.stop_server()?;
            let is_news = |line: &&str| !line.contains(": info: ");
            let warnings: Vec<&str> = output.err.lines().filter(is_news).collect();
            ensure!(warnings.is_empty(), "a session server said: {warnings:?}");
        }
        Ok(())
    }
}

/// The result of a script.
#[derive(Debug)]
pub struct ScriptResult {
    /// The caller's output.
    pub output: String,
    /// Number of streams that were made.
    pub moves: u64,
    /// Number of datagrams that UDP sessions which were away when the caller ended had received
    /// past the kernel.
    pub datagrams: u64,
}

/// Runs both roles of a script.
///
/// # Errors
/// The programs' output, if anything fails.
pub fn run(
    link: &Link,
    script: &str,
    accelerated: Accelerated,
    recalls: bool,
) -> Result<ScriptResult> {
    let started = Instant::now();
    let stage = Stage::new(link, accelerated)?;
    let what = format!("{script} {accelerated:?}{}", if recalls { " recalled" } else { "" });
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
    let output = format!("{}{}status {}", caller.out, caller.err, caller.status);
    let output = output.replace(&folder, "FOLDER");
    println!("{what}: {:.1} s, {moves} streams", started.elapsed().as_secs_f64());
    ensure!(caller.status == 0, "{what}: {output}\nserver: {served:?}\n{:?}", stage.end());
    let served = served.context("the server")?;
    stage.end().with_context(|| format!("{what}: {output}\nserver: {served:?}"))?;
    Ok(ScriptResult { output, moves, datagrams })
}
