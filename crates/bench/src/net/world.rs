//! One run's world: for every way two hosts of its own with a link between them, session servers
//! where Sojourn takes part, and programs.
//!
//! Every way has its own hosts, so that a packet filter of one is not in the way of another's
//! packets.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
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

/// How long a program may take that only has to do one turn.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
/// Bytes of an IP packet.
const MTU: u32 = 1500;
/// Of `lab-bench`'s sockets at both ends, and so of the sessions that Sojourn takes from them.
pub(crate) const CONGESTION: &str = "cubic";
/// The part of the measured time after which it is looked where sessions are.
const LOOKS: [f64; 4] = [0.15, 0.4, 0.65, 0.9];

/// What is between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Between {
    /// A veth pair with its offloads.
    Wire,
    /// Something that loses and delays.
    Relay,
}

/// See the head of the file.
pub(crate) struct World {
    places: RefCell<HashMap<(Stacks, Between), Rc<Hosts>>>,
    built: Built,
    /// Figures mean nothing.
    pub(crate) quick: bool,
}

impl World {
    /// Looks whether everything is there.
    pub(crate) fn new(quick: bool) -> Result<Self> {
        if !is_possible() {
            bail!("two hosts cannot be made here: this needs root and iproute2");
        }
        let built = Built::find()?;
        if !built.has("lab-bench") {
            bail!("{}: not built; `cargo xtask build`", built.path("lab-bench").display());
        }
        Ok(Self { places: RefCell::default(), built, quick })
    }

    /// The hosts of a way, made when they are first wanted.
    pub(crate) fn place(&self, way: Stacks, between: Between) -> Result<Rc<Hosts>> {
        if let Some(place) = self.places.borrow().get(&(way, between)) {
            return Ok(Rc::clone(place));
        }
        let place = Rc::new(Hosts::new(way, between, &self.built)?);
        super::cleanup::note(place.folders());
        self.places.borrow_mut().insert((way, between), Rc::clone(&place));
        Ok(place)
    }

    /// Why another implementation cannot be measured, if so.
    pub(crate) fn lacks(&self, way: Stacks) -> Option<String> {
        let is_there = match way {
            Stacks::Smoltcp => cfg!(feature = "rivals"),
            Stacks::Gvisor => self.gvisor().is_some(),
            _ => true,
        };
        (!is_there).then(|| format!("{} was not built", way.title()))
    }

    /// Ends that came home to that side of a way so far, by reason.
    pub(crate) fn returns(&self, way: Stacks, between: Between, side: Side) -> Returns {
        let place = self.places.borrow().get(&(way, between)).map(Rc::clone);
        let admin = place.and_then(|place| place.admin(side).ok().flatten());
        admin.and_then(|mut admin| admin.returns().ok()).unwrap_or_default()
    }

    /// The rival in Go, if it was built.
    pub(crate) fn gvisor(&self) -> Option<PathBuf> {
        let path = self.built.path("sojourn-bench-netstack");
        path.exists().then_some(path)
    }
}

/// Two hosts.
pub(crate) struct Hosts {
    way: Stacks,
    // Before the hosts: their servers end first.
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
            // For programs that do not choose. A namespace may choose what the system allows to
            // all, which is Reno at least: like CUBIC it does not pace what it sends, as the
            // system's own may.
            let name = "ipv4/tcp_congestion_control";
            host.set(name, CONGESTION).or_else(|_| host.set(name, "reno"))?;
        }
        let link = match between {
            Between::Wire => Link::direct(&a, &b, MTU)?,
            Between::Relay => Link::through(&a, &b, MTU, 1, Conditions::default())?,
        };
        let on = match way {
            Stacks::Port => Sandbox::with_ports,
            Stacks::Message => Sandbox::with_messages,
            _ => Sandbox::on,
        };
        let sandbox = |side, host| way.is_under(side).then(|| on(host)).transpose();
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

    /// The link.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The host of that side.
    pub(crate) fn host(&self, side: Side) -> &Host {
        self.link.host(end(side))
    }

    /// The server's address, and a port that nobody has used.
    pub(crate) fn free_address(&self) -> (String, u16) {
        self.port.set(self.port.get() + 1);
        (self.link.v4(End::A).to_string(), self.port.get())
    }

    /// The same as one word.
    pub(crate) fn free_name(&self) -> String {
        let (address, port) = self.free_address();
        format!("{address}:{port}")
    }

    /// A command that runs `program` on that side, as the way says; it dies with this process.
    pub(crate) fn command(&self, side: Side, wait: Wait, program: impl AsRef<OsStr>) -> Command {
        let mut command = match self.sandbox(side) {
            Some(sandbox) => sandbox.command(Mode::Sojourn, program),
            None => {
                let mut command = Command::new(program);
                command.current_dir(std::env::temp_dir());
                self.host(side).place(&mut command);
                command
            }
        };
        // A program that could not be accelerated must not pass for one that was. The user's
        // settings are not what is measured.
        command.env("SOJOURN_STRICT", "on").env("SOJOURN_SPIN", wait.setting());
        command
            .env_remove("XDG_CONFIG_HOME")
            .env("HOME", "/nonexistent")
            .env("RUST_BACKTRACE", "0");
        process::prepare_child(&mut command, None);
        command
    }

    /// The program of ordinary calls that measures itself. Where the kernel is to be asked again
    /// and again it is this program that asks.
    pub(crate) fn lab(&self, side: Side, wait: Wait, words: &[&str]) -> Command {
        let mut command = self.command(side, wait, &self.lab);
        command.args(words).args(["--congestion", CONGESTION]);
        if wait == Wait::Spinning && !self.way.is_under(side) {
            command.args(["--spin", "1"]);
        }
        if side == Side::Client {
            if let Some(mark) = self.mark() {
                command.arg("--mark").arg(mark);
            }
            let servers = self.server.iter().chain(&self.client).filter_map(Sandbox::server_pid);
            for pid in servers {
                command.args(["--watch", &pid.to_string()]);
            }
        }
        command
    }

    /// Starts it as a server.
    pub(crate) fn lab_server(&self, wait: Wait, words: &[&str]) -> Result<Running> {
        Running::start(self.lab(Side::Server, wait, words))
    }

    /// The session server of that side, asked directly.
    pub(crate) fn admin(&self, side: Side) -> Result<Option<Admin>> {
        self.sandbox(side).map(|sandbox| Admin::new(&sandbox.address())).transpose()
    }

    /// All that take part.
    pub(crate) fn admins(&self) -> Result<Vec<(Side, Admin)>> {
        let mut all = Vec::new();
        for side in [Side::Server, Side::Client] {
            all.extend(self.admin(side)?.map(|admin| (side, admin)));
        }
        Ok(all)
    }

    /// What `lab-bench` makes when it begins to measure, where that is of interest.
    fn mark(&self) -> Option<PathBuf> {
        let sandbox = self.client.as_ref().or(self.server.as_ref())?;
        Some(sandbox.folder().join("measuring"))
    }

    /// Runs the client to its end, and looks several times during `length` how many of the
    /// `sessions` are away from the kernel on each side: after `warm`, or from when `lab-bench`
    /// says that it begins. Its output, and the part that was away; none if it ended before the
    /// first look.
    pub(crate) fn watch(
        &self,
        client: Command,
        server: &Running,
        sessions: usize,
        (warm, length): (Option<Duration>, Duration),
    ) -> Result<(String, Option<f64>)> {
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
            for (side, admin) in &mut admins {
                let pid = if *side == Side::Server { server.pid() } else { client.pid() };
                part = part.min(admin.away_of(pid)? as f64 / sessions as f64);
            }
            parts.push(part);
        }
        let finished = client.finish(LIMIT);
        // Only `lab-bench` makes it, and not if it fails before.
        let _ = mark.map(std::fs::remove_file);
        let text = finished?.success(&name)?;
        Ok((text, (!parts.is_empty()).then(|| median(&parts))))
    }
}

/// So long it is at most not looked whether a program has ended.
const SLICE: Duration = Duration::from_millis(20);

fn end(side: Side) -> End {
    match side {
        Side::Server => End::A,
        Side::Client => End::B,
    }
}

/// Waits until somebody listens there, ten seconds at most.
pub(crate) fn await_listener(place: &Hosts, server: &mut Running, at: (&str, u16)) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let connect = || std::net::TcpStream::connect(at).is_ok();
    while !place.host(Side::Client).enter(connect)? {
        if !server.is_running() || Instant::now() > deadline {
            bail!("{}:{}: nobody listens", at.0, at.1);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What a measuring program said.
pub(crate) fn parse(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).with_context(|| format!("no figures: {text}"))
}

/// This program, for the rivals that are part of it.
pub(crate) fn myself() -> Result<PathBuf> {
    Path::new("/proc/self/exe").read_link().context("where this program is")
}
