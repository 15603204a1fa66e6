//! Which sessions are away, and which of them are wanted.
//!
//! The packet filter's maps in the kernel say it, whoever runs the protocol engine. They take
//! `CAP_SYS_ADMIN` to read; without it the session server is asked, which does not tell the
//! interfaces. The server also knows streams' numbers and programs' names. Not here: frames.

use crate::args::Capture as Options;
use crate::args::Where;
use crate::client::Client;
use crate::output::{note, printable};
use anyhow::{Context as _, Result};
use sojourn_filter::Key;
use sojourn_netif::Direction;
use sojourn_session::{HomeT, SessionInfoT};
use sojourn_wire::{FlowKey, Protocol};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A server that does not answer is asked again after this.
const RETRY: Duration = Duration::from_secs(1);
/// Looks after which the server is no longer asked for a session's name.
const NAMELESS_MAX: u32 = 50;

/// What is wanted of all that is away.
#[derive(Debug)]
struct Wanted {
    session: Option<u64>,
    pid: Option<u32>,
    port: Option<u16>,
    host: Option<IpAddr>,
}

impl Wanted {
    fn needs_server(&self) -> bool {
        self.session.is_some() || self.pid.is_some()
    }

    fn wants(&self, key: &Key, told: Option<&Told>) -> bool {
        let ends = [Some(key.local()), key.remote()];
        let is_end = |is: &dyn Fn(SocketAddr) -> bool| ends.into_iter().flatten().any(is);
        self.port.is_none_or(|port| is_end(&|end| end.port() == port))
            && self.host.is_none_or(|host| is_end(&|end| end.ip() == host.to_canonical()))
            && self.session.is_none_or(|session| told.is_some_and(|told| told.stream == session))
            && self.pid.is_none_or(|pid| told.is_some_and(|told| told.pid == pid))
    }
}

/// What the server tells of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    stream: u64,
    pid: u32,
    label: String,
}

/// A session that is away or has just come home.
#[derive(Debug)]
struct Known {
    /// The number of the last look that found it.
    seen: u64,
    /// The interfaces that it is away on; empty if that is not known.
    interfaces: Vec<(u32, String)>,
    told: Option<Told>,
    /// Looks at which the server did not know it.
    nameless: u32,
}

/// Sessions, as of the last look.
pub(super) struct Sessions {
    wanted: Wanted,
    place: Where,
    client: Option<Client>,
    asked: Instant,
    /// The kernel tells.
    reads_kernel: bool,
    looks: u64,
    known: HashMap<Key, Known>,
    captured: HashSet<Key>,
}

impl Sessions {
    /// Finds out who can be asked.
    ///
    /// # Errors
    /// Nobody can, or not for what is wanted.
    pub(super) fn new(options: &Options) -> Result<Self> {
        let client = Client::connect(&options.place);
        let kernel = sojourn_filter::away();
        let &Options { session, pid, port, host, .. } = options;
        let wanted = Wanted { session, pid, port, host };
        if kernel.is_err() || wanted.needs_server() {
            let why = match &kernel {
                Err(error) => format!(
                    "which sessions are away tells the kernel to root (here: {error}), or else a session server"
                ),
                Ok(_) => "which session is meant by --session or --pid only a session server knows"
                    .into(),
            };
            client.as_ref().map_err(|error| anyhow::anyhow!("{error:#}")).context(why)?;
        }
        Ok(Self {
            wanted,
            place: Where { server: options.place.server.clone() },
            client: client.ok(),
            asked: Instant::now(),
            reads_kernel: kernel.is_ok(),
            looks: 0,
            known: HashMap::new(),
            captured: HashSet::new(),
        })
    }

    /// Whether a look tells by which interfaces sessions go.
    pub(super) fn knows_interfaces(&self) -> bool {
        self.reads_kernel
    }

    /// The interfaces of the sessions that are wanted.
    pub(super) fn interfaces(&self) -> BTreeSet<String> {
        let wanted = |(key, known): &(&Key, &Known)| self.wanted.wants(key, known.told.as_ref());
        let known = self.known.iter().filter(wanted);
        known.flat_map(|(_, known)| known.interfaces.iter().map(|(_, name)| name.clone())).collect()
    }

    /// Sessions of which something was captured.
    pub(super) fn captured(&self) -> usize {
        self.captured.len()
    }

    /// Looks which sessions are away now. Those of the look before are remembered.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn look(&mut self) -> Result<()> {
        self.looks += 1;
        if self.reads_kernel {
            let away = sojourn_filter::away().context("cannot look which sessions are away")?;
            for session in away {
                let known = self.find(session.key);
                known.interfaces.push((session.index, session.interface));
            }
        }
        let is_nameless = |known: &Known| known.told.is_none() && known.nameless < NAMELESS_MAX;
        if !self.reads_kernel || self.known.values().any(is_nameless) {
            self.ask();
        }
        let looks = self.looks;
        self.known.retain(|_, known| known.seen + 1 >= looks);
        Ok(())
    }

    /// The session, found by this look.
    fn find(&mut self, key: Key) -> &mut Known {
        let looks = self.looks;
        let new = Known { seen: 0, interfaces: Vec::new(), told: None, nameless: 0 };
        let known = self.known.entry(key).or_insert(new);
        if known.seen != looks {
            known.seen = looks;
            known.interfaces.clear();
        }
        known
    }

    /// Asks the server what it knows.
    fn ask(&mut self) {
        if self.client.is_none() && self.asked.elapsed() >= RETRY {
            self.asked = Instant::now();
            self.client = Client::connect(&self.place).ok();
        }
        let Some(client) = &mut self.client else { return };
        let list = match client.list() {
            Ok(list) => list,
            Err(error) => {
                note(&format!("{error:#}; asking again"));
                self.client = None;
                return;
            }
        };
        self.known.values_mut().for_each(|known| known.nameless += 1);
        for info in list {
            let Some(key) = key_of(&info) else { continue };
            // What the server lists besides are sessions between programs of this host.
            let known = match self.reads_kernel {
                true => self.known.get_mut(&key),
                false => Some(self.find(key)),
            };
            if let Some(known) = known {
                known.nameless = 0;
                known.told = Some(told_of(&info));
            }
        }
    }

    /// Which way a frame went and whose it is, if it is one of a session that is wanted.
    pub(super) fn whose(&mut self, interface: u32, flow: &FlowKey) -> Option<(Direction, &str)> {
        let ways =
            [(Direction::Out, flow.source, flow.target), (Direction::In, flow.target, flow.source)];
        let (key, direction) = ways.into_iter().find_map(|(direction, local, remote)| {
            let unconnected = (flow.protocol == Protocol::Udp).then_some(None);
            [Some(Some(remote)), unconnected].into_iter().flatten().find_map(|remote| {
                let key = Key::new(flow.protocol, local, remote).ok()?;
                let known = self.known.get(&key)?;
                let is_there = known.interfaces.is_empty()
                    || known.interfaces.iter().any(|(index, _)| *index == interface);
                let is_wanted = self.wanted.wants(&key, known.told.as_ref());
                (is_there && is_wanted).then_some((key, direction))
            })
        })?;
        self.captured.insert(key);
        let told = self.known.get(&key)?.told.as_ref();
        Some((direction, told.map_or("", |told| told.label.as_str())))
    }
}

/// The session that the server means, if it is one that packets can be of.
fn key_of(info: &SessionInfoT) -> Option<Key> {
    if info.home == HomeT::Kernel || info.kind != sojourn_session::KindT::Tcp {
        return None;
    }
    let end = |text: &Option<std::ffi::CString>| text.as_ref()?.to_str().ok()?.parse().ok();
    Key::new(Protocol::Tcp, end(&info.from)?, Some(end(&info.to)?)).ok()
}

fn told_of(info: &SessionInfoT) -> Told {
    let program = info.program.as_ref().map(|name| name.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let program = printable(program.rsplit('/').next().unwrap_or_default());
    let (stream, pid) = (info.stream, info.pid);
    Told { stream, pid, label: format!("{program}, process {pid}, session {stream}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let (local, remote) = ("10.0.0.1:80", "10.0.0.2:999");
        Key::new(Protocol::Tcp, local.parse().unwrap(), Some(remote.parse().unwrap())).unwrap()
    }

    const ALL: Wanted = Wanted { session: None, pid: None, port: None, host: None };

    fn sessions(wanted: Wanted) -> Sessions {
        Sessions {
            wanted,
            place: Where { server: None },
            client: None,
            asked: Instant::now(),
            reads_kernel: true,
            looks: 1,
            known: HashMap::new(),
            captured: HashSet::new(),
        }
    }

    #[test]
    fn frames_are_told_by_session_interface_and_direction() {
        let mut sessions = sessions(ALL);
        sessions.find(key()).interfaces.push((3, "eth0".into()));
        let (source, target) = (key().local(), key().remote().unwrap());
        let flow = FlowKey { protocol: Protocol::Tcp, source, target };
        assert_eq!(sessions.whose(3, &flow), Some((Direction::Out, "")));
        assert_eq!(sessions.whose(3, &flow.reversed()), Some((Direction::In, "")));
        assert_eq!(sessions.whose(4, &flow), None);
        assert_eq!(sessions.whose(3, &FlowKey { protocol: Protocol::Udp, ..flow }), None);
        let other = FlowKey { target: "10.0.0.2:998".parse().unwrap(), ..flow };
        assert_eq!(sessions.whose(3, &other), None);
        assert_eq!(sessions.captured(), 1);
    }

    #[test]
    fn only_what_is_wanted_counts() {
        let told = Told { stream: 7, pid: 42, label: String::new() };
        let cases = [
            (Wanted { port: Some(80), ..ALL }, true),
            (Wanted { port: Some(999), ..ALL }, true),
            (Wanted { port: Some(81), ..ALL }, false),
            (Wanted { host: Some("10.0.0.2".parse().unwrap()), ..ALL }, true),
            (Wanted { host: Some("::ffff:10.0.0.2".parse().unwrap()), ..ALL }, true),
            (Wanted { host: Some("10.0.0.3".parse().unwrap()), ..ALL }, false),
            (Wanted { session: Some(7), ..ALL }, true),
            (Wanted { session: Some(8), ..ALL }, false),
            (Wanted { pid: Some(42), port: Some(80), ..ALL }, true),
            (Wanted { pid: Some(42), port: Some(81), ..ALL }, false),
        ];
        for (wanted, is_wanted) in cases {
            assert_eq!(wanted.wants(&key(), Some(&told)), is_wanted, "{wanted:?}");
        }
        assert!(!Wanted { pid: Some(42), ..ALL }.wants(&key(), None));
    }

    #[test]
    fn a_session_that_has_come_home_counts_for_one_more_look() {
        let mut sessions = sessions(ALL);
        sessions.reads_kernel = false;
        sessions.find(key());
        sessions.look().unwrap();
        assert_eq!(sessions.known.len(), 1);
        sessions.look().unwrap();
        assert!(sessions.known.is_empty());
    }
}
