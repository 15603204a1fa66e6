//! The sessions that are away, and the selection that the user asked for.
//!
//! The packet filter's maps in the kernel list the sessions, in the program or in a server alike.
//! Reading the maps takes `CAP_SYS_ADMIN`. Without it the session server is asked, which does not
//! report interfaces. Numbers of streams and names of programs come from the server in both cases.
//! Not here: frames.

use crate::args::Capture as Options;
use crate::args::ServerArgs;
use crate::client::Client;
use crate::output::{note, printable};
use anyhow::{Context as _, Result};
use sojourn_filter::Key;
use sojourn_netif::Direction;
use sojourn_session::{HomeT, ProcessId, SessionInfoT, StreamNumber};
use sojourn_wire::{FlowKey, Protocol};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The pause before a server that has not answered is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// The number of snapshots after which the server is no longer asked for a session's name.
const NAMELESS_MAX: u32 = 50;

/// The selection among the sessions that are away; `None` in a field selects all.
#[derive(Debug)]
struct SessionSelection {
    session: Option<StreamNumber>,
    pid: Option<ProcessId>,
    port: Option<u16>,
    host: Option<IpAddr>,
}

impl SessionSelection {
    fn needs_server(&self) -> bool {
        self.session.is_some() || self.pid.is_some()
    }

    fn wants(&self, key: &Key, at_server: Option<&ServerSession>) -> bool {
        let ends = [Some(key.local()), key.remote()];
        let is_end = |is: &dyn Fn(SocketAddr) -> bool| ends.into_iter().flatten().any(is);
        self.port.is_none_or(|port| is_end(&|end| end.port() == port))
            && self.host.is_none_or(|host| is_end(&|end| end.ip() == host.to_canonical()))
            && self.session.is_none_or(|session| at_server.is_some_and(|it| it.stream == session))
            && self.pid.is_none_or(|pid| at_server.is_some_and(|it| it.pid == pid))
    }
}

/// The server's description of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ServerSession {
    stream: StreamNumber,
    pid: ProcessId,
    label: String,
}

/// A session that is away or has just come home.
#[derive(Debug)]
struct TrackedSession {
    /// The number of the last snapshot that has the session.
    seen: u64,
    /// The names of the session's interfaces, by index; empty if they are not known.
    interfaces: BTreeMap<u32, String>,
    /// The same session in the list of the server, if the server has it.
    at_server: Option<ServerSession>,
    /// The number of snapshots in which the server did not know the session.
    nameless: u32,
}

/// The place of a frame in a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Belonging<'s> {
    pub(super) direction: Direction,
    /// The session's label.
    pub(super) label: &'s str,
}

/// Sessions, as of the last snapshot.
pub(super) struct Sessions {
    wanted: SessionSelection,
    server_args: ServerArgs,
    client: Option<Client>,
    asked: Instant,
    /// The packet filter's maps are read; otherwise the server is asked.
    reads_kernel: bool,
    looks: u64,
    known: HashMap<Key, TrackedSession>,
    captured: HashSet<Key>,
}

impl Sessions {
    /// Chooses the source: the packet filter's maps, or the server.
    ///
    /// # Errors
    /// Neither source is available, or the source that is available does not have what the options
    /// select by.
    pub(super) fn new(options: &Options) -> Result<Self> {
        let client = Client::connect(&options.server_args);
        let kernel = sojourn_filter::away();
        let &Options { session, pid, port, host, .. } = options;
        let session = session.map(StreamNumber);
        let wanted = SessionSelection { session, pid, port, host };
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
            server_args: ServerArgs { server: options.server_args.server.clone() },
            client: client.ok(),
            asked: Instant::now(),
            reads_kernel: kernel.is_ok(),
            looks: 0,
            known: HashMap::new(),
            captured: HashSet::new(),
        })
    }

    /// Returns true if snapshots have the interfaces of sessions.
    pub(super) fn knows_interfaces(&self) -> bool {
        self.reads_kernel
    }

    /// Returns the interfaces of the selected sessions.
    pub(super) fn interfaces(&self) -> BTreeSet<String> {
        let wanted = |(key, known): &(&Key, &TrackedSession)| {
            self.wanted.wants(key, known.at_server.as_ref())
        };
        let known = self.known.iter().filter(wanted);
        known.flat_map(|(_, known)| known.interfaces.values().cloned()).collect()
    }

    /// Returns the number of sessions of which a frame was captured.
    pub(super) fn captured(&self) -> usize {
        self.captured.len()
    }

    /// Takes a snapshot of the sessions that are away. Sessions of the snapshot before are kept,
    /// for frames that were sent just before a return.
    ///
    /// # Errors
    /// The kernel refuses to have the maps read.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.looks += 1;
        if self.reads_kernel {
            let away = sojourn_filter::away().context("cannot look which sessions are away")?;
            for session in away {
                let known = self.find(session.key);
                known.interfaces.insert(session.index, session.interface);
            }
        }
        let is_nameless =
            |known: &TrackedSession| known.at_server.is_none() && known.nameless < NAMELESS_MAX;
        if !self.reads_kernel || self.known.values().any(is_nameless) {
            self.ask();
        }
        let looks = self.looks;
        self.known.retain(|_, known| known.seen + 1 >= looks);
        Ok(())
    }

    /// Returns the entry of a session that this snapshot has.
    fn find(&mut self, key: Key) -> &mut TrackedSession {
        let looks = self.looks;
        let new =
            TrackedSession { seen: 0, interfaces: BTreeMap::new(), at_server: None, nameless: 0 };
        let known = self.known.entry(key).or_insert(new);
        if known.seen != looks {
            known.seen = looks;
            known.interfaces.clear();
        }
        known
    }

    /// Asks the server for the sessions' descriptions.
    fn ask(&mut self) {
        if self.client.is_none() && self.asked.elapsed() >= RETRY {
            self.asked = Instant::now();
            self.client = Client::connect(&self.server_args).ok();
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
            // The server's list also has sessions between programs of this host, which have no
            // packets.
            let known = match self.reads_kernel {
                true => self.known.get_mut(&key),
                false => Some(self.find(key)),
            };
            if let Some(known) = known {
                known.nameless = 0;
                known.at_server = Some(server_session(&info));
            }
        }
    }

    /// Returns the place of a frame in its session, if a selected session has the flow.
    pub(super) fn session_of(&mut self, interface: u32, flow: &FlowKey) -> Option<Belonging<'_>> {
        let directions =
            [(Direction::Out, flow.source, flow.target), (Direction::In, flow.target, flow.source)];
        let (key, direction) = directions.into_iter().find_map(|(direction, local, remote)| {
            let unconnected = (flow.protocol == Protocol::Udp).then_some(None);
            [Some(Some(remote)), unconnected].into_iter().flatten().find_map(|remote| {
                let key = Key::new(flow.protocol, local, remote).ok()?;
                let known = self.known.get(&key)?;
                let is_there =
                    known.interfaces.is_empty() || known.interfaces.contains_key(&interface);
                let is_wanted = self.wanted.wants(&key, known.at_server.as_ref());
                (is_there && is_wanted).then_some((key, direction))
            })
        })?;
        self.captured.insert(key);
        let session = self.known.get(&key)?.at_server.as_ref();
        Some(Belonging { direction, label: session.map_or("", |session| session.label.as_str()) })
    }
}

/// Returns the key of a session in the server's list; `None` if the session has no packets.
fn key_of(info: &SessionInfoT) -> Option<Key> {
    if info.home == HomeT::Kernel || info.kind != sojourn_session::KindT::Tcp {
        return None;
    }
    let end = |text: &Option<std::ffi::CString>| text.as_ref()?.to_str().ok()?.parse().ok();
    Key::new(Protocol::Tcp, end(&info.from)?, Some(end(&info.to)?)).ok()
}

fn server_session(info: &SessionInfoT) -> ServerSession {
    let program = info.program.as_ref().map(|name| name.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let program = printable(program.rsplit('/').next().unwrap_or_default());
    let (stream, pid) = (StreamNumber(info.stream), ProcessId(info.pid));
    ServerSession { stream, pid, label: format!("{program}, process {pid}, session {stream}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let (local, remote) = ("10.0.0.1:80", "10.0.0.2:999");
        Key::new(Protocol::Tcp, local.parse().unwrap(), Some(remote.parse().unwrap())).unwrap()
    }

    const ALL: SessionSelection =
        SessionSelection { session: None, pid: None, port: None, host: None };

    fn sessions(wanted: SessionSelection) -> Sessions {
        Sessions {
            wanted,
            server_args: ServerArgs { server: None },
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
        sessions.find(key()).interfaces.insert(3, "eth0".into());
        let (source, target) = (key().local(), key().remote().unwrap());
        let flow = FlowKey { protocol: Protocol::Tcp, source, target };
        let found = |direction| Some(Belonging { direction, label: "" });
        assert_eq!(sessions.session_of(3, &flow), found(Direction::Out));
        assert_eq!(sessions.session_of(3, &flow.reversed()), found(Direction::In));
        assert_eq!(sessions.session_of(4, &flow), None);
        assert_eq!(sessions.session_of(3, &FlowKey { protocol: Protocol::Udp, ..flow }), None);
        let other = FlowKey { target: "10.0.0.2:998".parse().unwrap(), ..flow };
        assert_eq!(sessions.session_of(3, &other), None);
        assert_eq!(sessions.captured(), 1);
    }

    #[test]
    fn only_what_is_wanted_counts() {
        let session =
            ServerSession { stream: StreamNumber(7), pid: ProcessId(42), label: String::new() };
        let cases = [
            (SessionSelection { port: Some(80), ..ALL }, true),
            (SessionSelection { port: Some(999), ..ALL }, true),
            (SessionSelection { port: Some(81), ..ALL }, false),
            (SessionSelection { host: Some("10.0.0.2".parse().unwrap()), ..ALL }, true),
            (SessionSelection { host: Some("::ffff:10.0.0.2".parse().unwrap()), ..ALL }, true),
            (SessionSelection { host: Some("10.0.0.3".parse().unwrap()), ..ALL }, false),
            (SessionSelection { session: Some(StreamNumber(7)), ..ALL }, true),
            (SessionSelection { session: Some(StreamNumber(8)), ..ALL }, false),
            (SessionSelection { pid: Some(ProcessId(42)), port: Some(80), ..ALL }, true),
            (SessionSelection { pid: Some(ProcessId(42)), port: Some(81), ..ALL }, false),
        ];
        for (wanted, is_wanted) in cases {
            assert_eq!(wanted.wants(&key(), Some(&session)), is_wanted, "{wanted:?}");
        }
        assert!(!SessionSelection { pid: Some(ProcessId(42)), ..ALL }.wants(&key(), None));
    }

    #[test]
    fn a_session_that_has_come_home_counts_for_one_more_look() {
        let mut sessions = sessions(ALL);
        sessions.reads_kernel = false;
        sessions.find(key());
        sessions.refresh().unwrap();
        assert_eq!(sessions.known.len(), 1);
        sessions.refresh().unwrap();
        assert!(sessions.known.is_empty());
    }
}
