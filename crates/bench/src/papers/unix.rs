//! Round trips of an unmodified program whose UDP calls a Unix server answers, on each of two
//! hosts, by the way from server to device: the Unix servers of 1992.
//!
//! The program's calls become calls to the server by the preloaded library of the emulation server
//! (`examples/emulation.rs`); the server (`server`) has UDP, and reaches the device by a packet
//! interface. Two hosts are network namespaces with a veth pair; all processes of a host are on one
//! processor, and everybody sleeps, as everybody did in 1992. Not here: the table (`udp1992`), and
//! the UDP server (`crate::udp`).

mod server;
mod sockets;

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sojourn_driver::DriverInterface;
use sojourn_ipc::Wait;
use sojourn_lab::net::{End, Host, Link, is_possible};
use sojourn_lab::{Built, Running};
use sojourn_netif::{Interface, Message, PacketOptions, Ring, RingLayout, packet};
use sojourn_wire::MacAddress;

pub(crate) use self::server::Mistake;
use self::server::SideAddresses;
use super::emulation::{LIBRARY, parse};
use crate::local::process;
use crate::os;
use crate::udp::world::Placement;

const GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/datagrams"));
/// The port of both ends.
const PORT: &str = "5000";
/// The last number of the servers' addresses: beside those of the hosts, so that their kernels take
/// no part.
const BESIDE: u8 = 77;
/// The time limit of one measurement.
const LIMIT: Duration = Duration::from_secs(20);

/// The way of a program's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnixWay {
    /// The kernel's sockets.
    Kernel,
    /// A Unix server, whose frames are in memory that is mapped for each.
    IpcVm,
    /// A Unix server, whose frames are in messages.
    Ipc,
    /// A Unix server with a packet socket.
    SystemCall,
    /// The same with one of the older servers' mistakes.
    Mistaken(Mistake),
    /// A Unix server with a mapped ring.
    Mapped,
}

impl UnixWay {
    pub(crate) const ALL: [Self; 7] = [
        Self::Kernel,
        Self::IpcVm,
        Self::Ipc,
        Self::SystemCall,
        Self::Mapped,
        Self::Mistaken(Mistake::PriorityLevels),
        Self::Mistaken(Mistake::WiredThreads),
    ];

    /// The words for the server's process.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Kernel | Self::SystemCall => ["call", "none"],
            Self::IpcVm => ["ipc-vm", "none"],
            Self::Ipc => ["ipc", "none"],
            Self::Mapped => ["mapped", "none"],
            Self::Mistaken(Mistake::PriorityLevels) => ["call", "levels"],
            Self::Mistaken(Mistake::WiredThreads) => ["call", "wired"],
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) way: UnixWay,
    pub(crate) bytes: usize,
    pub(crate) ms: u32,
}

/// A process that is killed with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts a process and waits for its first line.
    fn start(mut command: Command) -> Result<Self> {
        process::prepare_child(&mut command, None);
        let mut started = Self(command.stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        let said = started.0.stdout.take().context("no output")?;
        // The process ends at its time limit, and its output with it.
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line.starts_with("ready"), "{command:?} is not ready: {line}");
        Ok(started)
    }
}

/// Two hosts, and the program.
pub(crate) struct Hosts {
    link: Link,
    built: Built,
    guest: PathBuf,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.guest);
    }
}

impl Hosts {
    /// Makes the hosts.
    pub(crate) fn new() -> Result<Self> {
        if !is_possible() {
            bail!("two hosts cannot be made here: this needs root and iproute2");
        }
        let guest = format!("sojourn-bench-datagrams-{}", std::process::id());
        let guest = std::env::temp_dir().join(guest);
        std::fs::write(&guest, GUEST)?;
        std::fs::set_permissions(&guest, Permissions::from_mode(0o755))?;
        let link = Link::direct(&Host::new()?, &Host::new()?, 1500)?;
        Ok(Self { link, built: Built::without_check()?, guest })
    }

    fn address(&self, end: End, way: UnixWay) -> Ipv4Addr {
        let [a, b, c, d] = self.link.v4(end).octets();
        match way {
            UnixWay::Kernel => [a, b, c, d].into(),
            _ => [a, b, c, BESIDE + d].into(),
        }
    }

    /// A link address beside the host's own.
    fn mac(&self, end: End) -> String {
        let first = if end == End::A { "06" } else { "0a" };
        format!("{first}{}", &self.link.mac(end)[2..])
    }

    /// Returns the program's command on one end.
    fn guest(&self, end: End, visit: &Visit, server: Option<&str>) -> Result<Command> {
        let mut command = Command::new(&self.guest);
        let (own, peer) = (self.address(end, visit.way), self.address(other(end), visit.way));
        command.arg(if end == End::A { "ask" } else { "answer" });
        command.arg(processor(end).to_string());
        command.args([visit.bytes.to_string(), visit.ms.to_string()]);
        command.args([&own.to_string(), PORT, &peer.to_string(), PORT]);
        if let Some(server) = server {
            if !self.built.has(LIBRARY) {
                bail!("{LIBRARY} is not built; `cargo xtask build` builds it");
            }
            command.env("LD_PRELOAD", self.built.path(LIBRARY)).env("EMULATION_SERVER", server);
            command.env("EMULATION_BY", "ipc").env("EMULATION_WAIT", "park");
        }
        self.link.host(end).place(&mut command);
        Ok(command)
    }

    /// Starts the server of one end.
    fn serve(&self, end: End, visit: &Visit) -> Result<NamedServer> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojourn-bench-unix-{}-{number}", std::process::id());
        let mut command = Command::new(crate::net::world::myself()?);
        let [device, mistake] = visit.way.words();
        command.args(["unix-server", &name, self.link.interface(), device, mistake]);
        command.arg(processor(end).to_string());
        for end in [end, other(end)] {
            command.args([self.address(end, visit.way).to_string(), self.mac(end)]);
        }
        self.link.host(end).place(&mut command);
        Ok(NamedServer { _process: Process::start(command)?, name })
    }

    /// Returns the nanoseconds of a round trip: the median of a visit's samples.
    pub(crate) fn measure(&self, visit: &Visit) -> Result<f64> {
        ensure!(!GUEST.is_empty(), "no C compiler was there when this was built");
        let ends = [End::A, End::B];
        let servers = match visit.way {
            UnixWay::Kernel => Vec::new(),
            _ => ends.iter().map(|end| self.serve(*end, visit)).collect::<Result<Vec<_>>>()?,
        };
        let name = |at: usize| servers.get(at).map(|server| server.name.as_str());
        let _answers = Process::start(self.guest(End::B, visit, name(1))?)?;
        let mut asks = self.guest(End::A, visit, name(0))?;
        process::prepare_child(&mut asks, None);
        parse(&Running::start(asks)?.finish(LIMIT)?.success("the round trips")?)
    }
}

/// A server of one end.
struct NamedServer {
    _process: Process,
    /// The name under which it serves.
    name: String,
}

fn other(end: End) -> End {
    if end == End::A { End::B } else { End::A }
}

/// Everything of a host is on one processor.
fn processor(end: End) -> usize {
    let [near, far, ..] = Placement::Apart.processors();
    if end == End::A { near } else { far }
}

/// Runs a server's process; [`Hosts`] starts it, with these words.
pub(crate) fn serve(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [name, interface, device, mistake, cpu, ip, mac, peer_ip, peer_mac] = words[..] else {
        bail!("words: NAME INTERFACE DEVICE MISTAKE CPU ADDRESS MAC ADDRESS MAC");
    };
    os::die_after(LIMIT.as_secs() as u32);
    os::pin(cpu.parse()?)?;
    let side = |ip: &str, mac: &str| -> Result<SideAddresses> {
        Ok(SideAddresses { ip: ip.parse()?, mac: mac_of(mac).context("a link address")? })
    };
    let mistake = match mistake {
        "levels" => Some(Mistake::PriorityLevels),
        "wired" => Some(Mistake::WiredThreads),
        _ => None,
    };
    let Device { interface: device, _driver } = open(interface, device)?;
    let sides = [side(ip, mac)?, side(peer_ip, peer_mac)?];
    server::serve(name, device, sides, mistake, || {
        println!("ready");
        Ok(std::io::stdout().flush()?)
    })
}

fn mac_of(text: &str) -> Option<MacAddress> {
    let mut bytes = [0; 6];
    for (at, part) in text.split(':').enumerate() {
        *bytes.get_mut(at)? = u8::from_str_radix(part, 16).ok()?;
    }
    Some(MacAddress(bytes))
}

/// A device that is open.
struct Device {
    interface: Box<dyn Interface + Send>,
    /// The driver's process, if it has one.
    _driver: Option<Process>,
}

fn open(name: &str, device: &str) -> Result<Device> {
    let options = PacketOptions::default();
    let own: Option<Box<dyn Interface + Send>> = match device {
        "call" => Some(Box::new(Message::open(name, &options)?)),
        "mapped" => Some(Box::new(Ring::open(name, &options, RingLayout::default())?)),
        _ => None,
    };
    if let Some(interface) = own {
        return Ok(Device { interface, _driver: None });
    }
    let [control, theirs] = sojourn_driver::control()?;
    let mut command = Command::new(Built::without_check()?.path(sojourn_driver::PROGRAM));
    command.arg("--handed").args((device == "ipc-vm").then_some("--by-memory"));
    command.arg("--sleep").stdin(Stdio::from(theirs));
    process::prepare_child(&mut command, None);
    let driver = Process(command.spawn().context("sojourn-driver")?);
    let packets = packet::open(&options)?;
    packet::bind(packets.as_fd(), packet::index_of(packets.as_fd(), name)?)?;
    let client = sojourn_driver::hand(&control, &packets)?;
    let address = sojourn_driver::Address::Descriptor(client);
    let interface = Box::new(DriverInterface::connect(address, Wait::Park)?);
    Ok(Device { interface, _driver: Some(driver) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_makes_its_round_trips() {
        let Ok(hosts) = Hosts::new() else { return };
        // The other ways run this program as a server: they are in the smoke test of `papers`.
        let visit = Visit { way: UnixWay::Kernel, bytes: 1024, ms: 10 };
        assert!(hosts.measure(&visit).unwrap() > 0.0);
    }

    #[test]
    fn link_addresses_are_read() {
        assert_eq!(mac_of("06:6c:61:00:01:fe"), Some(MacAddress([6, 0x6c, 0x61, 0, 1, 0xfe])));
        assert_eq!((mac_of("6:1:2:3:4:5:6"), mac_of("x")), (None, None));
    }
}
