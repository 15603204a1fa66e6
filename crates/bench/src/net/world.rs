//! The environment of one run: for every way two hosts of its own with a link between them, session
//! servers where Sojourn takes part, and programs.
//!
//! Every way has its own hosts, so that the packet filter of one way does not affect the packets of
//! another.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sojourn_lab::net::{Conditions, End, Host, Link, is_possible};
use sojourn_lab::{Built, Mode, Running, Sandbox};

use super::way::{Side, Stacks, Wait};
use crate::local::process;
use crate::local::server::{Admin, Returns};
use crate::stats::median;

/// Longest time of a program that does one turn.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
/// Bytes of an IP packet: the MTU of the link.
const MTU: u32 = 1500;
/// Congestion control of the sockets of `lab-bench` at both ends, and so of the sessions that
/// Sojourn takes over from them.
pub(crate) const CONGESTION: &str = "cubic";
/// Times of the checks that sessions are away, as parts of the measured time.
const LOOKS: [f64; 4] = [0.15, 0.4, 0.65, 0.9];

/// The link between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Between {
    /// A veth pair with its offloads.
    Wire,
    /// A relay that loses and delays frames.
    Relay,
}

/// The way and link of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct HostsKey {
    way: Stacks,
    between: Between,
}

/// The hosts of a run, by way and link.
pub(crate) struct World {
    hosts: RefCell<HashMap<HostsKey, Rc<Hosts>>>,
    built: Built,
    /// True for a run that only checks that everything works; its figures mean nothing.
    pub(crate) quick: bool,
}

impl World {
    /// Checks that hosts can be made and that the programs are built.
    pub(crate) fn new(quick: bool) -> Result<Self> {
        if !is_possible() {
            bail!("two hosts cannot be made here: this needs root and iproute2");
        }
        let built = Built::find()?;
        if !built.has("lab-bench") {
            bail!("{}: not built; `cargo xtask build`", built.path("lab-bench").display());
        }
        Ok(Self { hosts: RefCell::default(), built, quick })
    }

    /// Returns the hosts of a way; makes them at the first call.
    pub(crate) fn place(&self, way: Stacks, between: Between) -> Result<Rc<Hosts>> {
        if let Some(place) = self.hosts.borrow().get(&HostsKey { way, between }) {
            return Ok(Rc::clone(place));
        }
        let place = Rc::new(Hosts::new(way, between, &self.built)?);
        super::cleanup::note(place.folders());
        self.hosts.borrow_mut().insert(HostsKey { way, between }, Rc::clone(&place));
        Ok(place)
    }

    /// Returns the reason why a rival cannot be measured, if there is one.
    pub(crate) fn unavailable(&self, way: Stacks) -> Option<String> {
        let is_there = match way {
            Stacks::Smoltcp => cfg!(feature = "rivals"),
            Stacks::Gvisor => self.gvisor().is_some(),
            _ => true,
        };
        (!is_there).then(|| format!("{} was not built", way.title()))
    }

    /// Returns the ends that came home on one side of a way so far, by reason.
    pub(crate) fn returns(&self, way: Stacks, between: Between, side: Side) -> Returns {
        let place = self.hosts.borrow().get(&HostsKey { way, between }).map(Rc::clone);
        let admin = place.and_then(|place| place.admin(side).ok().flatten());
        admin.and_then(|mut admin| admin.returns().ok()).unwrap_or_default()
    }

    /// Returns the rival in Go, if it was built.
    pub(crate) fn gvisor(&self) -> Option<PathBuf> {
        let path = self.built.path("sojourn-bench-netstack");
        path.exists().then_some(path)
    }
}

/// The two hosts of a way, with their link and session servers.
pub(crate) struct Hosts {
    way: Stacks,
    // Declared before the hosts: fields drop in order, and the servers have to end first.
    server: Option<Sandbox>,
    client: Option<Sandbox>,
    link: Link,
    lab: PathBuf,
    port: Cell<u16>,
}

impl Hosts {
    fn new(way: Stacks, between: Between, built: &Built) -> Result<Self> {
        let (a, b) = (Host::new()?, Host::new()?);
        for host in [&a, &b] {
            // For programs that do not choose a congestion control. A namespace may choose only
            // from `tcp_allowed_congestion_control`, which has at least Reno. Reno, like CUBIC,
            // does not pace; the system's own default may.
            let name = "ipv4/tcp_congestion_control";
            host.set(name, CONGESTION).or_else(|_| host.set(name, "reno"))?;
        }
        let link = match between {
            Between::Wire => Link::direct(&a, &b, MTU)?,
            Between::Relay => Link::through(&a, &b, MTU, 1, Conditions::default())?,
        };
        let on = |host: &Host| match way {
            Stacks::Port => Sandbox::with_ports(host),
            Stacks::Xdp | Stacks::XdpBoth | Stacks::XdpPort => {
                Sandbox::with_xdp(host, way == Stacks::XdpPort)
            }
            Stacks::Message => Sandbox::with_messages(host),
            Stacks::Driver | Stacks::DriverMemory => {
                Sandbox::with_driver(host, way == Stacks::DriverMemory)
            }
            _ => Sandbox::on(host),
        };
        let sandbox = |side, host| -> Result<Option<Sandbox>> {
            let mut made = way.is_under(side).then(|| on(host)).transpose()?;
            if let (true, Some(sandbox)) = (way.is_served(), &mut made) {
                // Everybody's server has no protocol servers.
                sandbox.restart_for_own_user()?;
            }
            Ok(made)
        };
        let (server, client) = (sandbox(Side::Server, &a)?, sandbox(Side::Client, &b)?);
        let lab = built.path("lab-bench");
        Ok(Self { way, server, client, link, lab, port: Cell::new(5000) })
    }

    fn folders(&self) -> Vec<PathBuf> {
        let sandboxes = self.server.iter().chain(&self.client);
        sandboxes.map(|sandbox| sandbox.folder().to_owned()).collect()
    }

    fn sandbox(&self, side: Side) -> Option<&Sandbox> {
        match side {
            Side::Server => self.server.as_ref(),
            Side::Client => self.client.as_ref(),
        }
    }

    /// Returns the link.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the way whose hosts they are.
    pub(crate) fn way(&self) -> Stacks {
        self.way
    }

    /// Returns the host of `side`.
    pub(crate) fn host(&self, side: Side) -> &Host {
        self.link.host(end(side))
    }

    /// Returns the server's address with a port that has not been used.
    pub(crate) fn free_address(&self) -> SocketAddr {
        self.port.set(self.port.get() + 1);
        (self.link.v4(End::A), self.port.get()).into()
    }

    /// Returns the same as `address:port`.
    pub(crate) fn free_name(&self) -> String {
        self.free_address().to_string()
    }

    /// Returns a command that runs `program` on `side`, as the way says, and dies with this
    /// process.
    pub(crate) fn command(&self, side: Side, wait: Wait, program: impl AsRef<OsStr>) -> Command {
        // A client of the protocol server has no library.
        let mode = match self.way {
            Stacks::ProtocolServer => Mode::Plain,
            _ => Mode::Sojourn,
        };
        let mut command = match self.sandbox(side) {
            Some(sandbox) => sandbox.command(mode, program),
            None => {
                let mut command = Command::new(program);
                command.current_dir(std::env::temp_dir());
                self.host(side).place(&mut command);
                command
            }
        };
        // A program that cannot be accelerated has to fail, because its figure would pass for
        // Sojourn's. The user's settings must not change the results.
        command.env("SOJOURN_STRICT", "on").env("SOJOURN_SPIN", wait.setting());
        command.env("SOJOURN_MEASURE_BULK", wait.measures());
        if self.way == Stacks::HomeServer {
            command.env("SOJOURN_HOME", "server");
        }
        command
            .env_remove("XDG_CONFIG_HOME")
            .env("HOME", "/nonexistent")
            .env("RUST_BACKTRACE", "0");
        process::prepare_child(&mut command, None);
        command
    }

    /// Returns a command that runs `lab-bench` on `side`. Where the kernel is used and the row
    /// spins, `lab-bench` itself polls, as the kernel's blocking calls sleep.
    pub(crate) fn lab(&self, side: Side, wait: Wait, words: &[&str]) -> Command {
        let mut command = self.command(side, wait, &self.lab);
        command.args(words);
        if wait == Wait::Spinning && !self.way.is_under(side) {
            command.args(["--spin", "1"]);
        }
        self.measures(command, side)
    }

    /// The client of the protocol server that measures itself.
    pub(crate) fn served(&self, wait: Wait, words: &[&str]) -> Result<Command> {
        let sandbox = self.client.as_ref().context("no session server")?;
        let mut command = self.command(Side::Client, wait, myself()?);
        let server = sandbox.address().to_string_lossy().into_owned() + sojourn_protocol::SUFFIX;
        command.args(["net-served", &server]).args(words);
        if wait == Wait::Spinning {
            command.args(["--spin", "1"]);
        }
        Ok(self.measures(command, Side::Client))
    }

    /// Adds the options of every measuring program.
    fn measures(&self, mut command: Command, side: Side) -> Command {
        command.args(["--congestion", CONGESTION]);
        if side == Side::Client {
            if let Some(mark) = self.mark() {
                command.arg("--mark").arg(mark);
            }
            let servers = self.server.iter().chain(&self.client).flat_map(Sandbox::server_pids);
            for pid in servers {
                command.args(["--watch", &pid.to_string()]);
            }
        }
        command
    }

    /// Starts `lab-bench` as a server.
    pub(crate) fn lab_server(&self, wait: Wait, words: &[&str]) -> Result<Running> {
        Running::start(self.lab(Side::Server, wait, words))
    }

    /// Returns the output of `sojourn` with these words on `side`, which is under Sojourn.
    pub(crate) fn sojourn(&self, side: Side, words: &[&str]) -> Result<String> {
        self.sandbox(side).context("no session server on that side")?.sojourn(words)
    }

    /// Connects to the administration interface of the session server of `side`, if there is one.
    pub(crate) fn admin(&self, side: Side) -> Result<Option<Admin>> {
        self.sandbox(side).map(|sandbox| Admin::new(&sandbox.address())).transpose()
    }

    /// Connects to the administration interfaces of all session servers.
    fn admins(&self) -> Result<Vec<SideAdmin>> {
        let mut all = Vec::new();
        for side in [Side::Server, Side::Client] {
            all.extend(self.admin(side)?.map(|admin| SideAdmin { side, admin }));
        }
        Ok(all)
    }

    /// Returns the path of the file that `lab-bench` makes when it begins to measure, if Sojourn
    /// takes part.
    fn mark(&self) -> Option<PathBuf> {
        let sandbox = self.client.as_ref().or(self.server.as_ref())?;
        Some(sandbox.folder().join("measuring"))
    }

    /// Runs the client to its end, and checks several times during `length` how many of the
    /// `sessions` are away from the kernel on each side. The checks begin after `warm`, or, without
    /// it, when `lab-bench` begins to measure.
    pub(crate) fn watch(
        &self,
        client: Command,
        server: &Running,
        sessions: usize,
        warm: Option<Duration>,
        length: Duration,
    ) -> Result<Watched> {
        let name = format!("{client:?}");
        let mut admins = self.admins()?;
        let mut start = Instant::now() + warm.unwrap_or_default();
        let mut client = Running::start(client)?;
        let mark = self.mark();
        if let (Some(mark), None) = (&mark, warm) {
            while !mark.exists() && client.is_running() && start.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(2));
            }
            start = Instant::now();
        }
        let mut parts = Vec::new();
        for look in LOOKS.iter().filter(|_| self.way.is_ours()) {
            let due = start + length.mul_f64(*look);
            while client.is_running() && Instant::now() < due {
                std::thread::sleep(due.saturating_duration_since(Instant::now()).min(SLICE));
            }
            if !client.is_running() {
                break;
            }
            let mut part = 1.0_f64;
            for SideAdmin { side, admin } in &mut admins {
                let pid = if *side == Side::Server { server.pid() } else { client.pid() };
                let away = match self.way {
                    way if way.is_served() => admin.away_in_servers()?,
                    _ => admin.away_of(pid)?,
                };
                part = part.min(away as f64 / sessions as f64);
            }
            parts.push(part);
        }
        let finished = client.finish(LIMIT);
        // Only `lab-bench` makes the mark, and only if it does not fail before, so it may be
        // missing.
        let _ = mark.map(std::fs::remove_file);
        let text = finished?.success(&name)?;
        Ok(Watched { text, away: (!parts.is_empty()).then(|| median(&parts)) })
    }
}

/// The administration interface of one side's session server.
struct SideAdmin {
    side: Side,
    admin: Admin,
}

/// A client's run.
pub(crate) struct Watched {
    /// The client's output.
    pub(crate) text: String,
    /// The median of the parts that were away; `None` if the client ended before the first check.
    pub(crate) away: Option<f64>,
}

/// Longest time between two checks that a program still runs.
const SLICE: Duration = Duration::from_millis(20);

fn end(side: Side) -> End {
    match side {
        Side::Server => End::A,
        Side::Client => End::B,
    }
}

/// Waits at most ten seconds until a server listens on the address.
pub(crate) fn await_listener(place: &Hosts, server: &mut Running, at: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let connect = || std::net::TcpStream::connect(at).is_ok();
    while !place.host(Side::Client).enter(connect)? {
        if !server.is_running() || Instant::now() > deadline {
            bail!("{at}: nobody listens");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Parses the output of a measuring program.
pub(crate) fn parse(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).with_context(|| format!("no figures: {text}"))
}

/// Returns the path of this program, for the rivals that are part of it.
pub(crate) fn myself() -> Result<PathBuf> {
    Path::new("/proc/self/exe").read_link().context("where this program is")
}
