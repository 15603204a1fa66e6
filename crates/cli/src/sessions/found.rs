//! Sessions that only `/proc` shows, with the reasons why they are in the kernel.
//!
//! The configuration is that of the program's first environment in `/proc`. Reasons without a trace
//! in `/proc` (options, use through stdio) are not guessed: such a session counts as not hot,
//! unless the server has a reason of its own or of the program's.

use super::diag;
use super::processes::{self, Object, Process};
use super::row::{Row, home_word, kind_word};
use super::standing::Observer;
use super::tables::{Tables, Tcp, Udp, Unix};
use sojourn_session::{HomeT, Inode, KindT, ReasonT};
use std::collections::HashMap;
use std::path::Path;

/// The other end's place.
enum Peer {
    /// The processes that hold the other end, by index; empty if this user may see none of them.
    Holders(Vec<usize>),
    /// The other end is not in a network name space that is visible here.
    Elsewhere,
    /// The other end is in another network name space of this host.
    Apart,
    /// The peers of a UDP socket: any sender.
    Anybody,
}

/// The two ends of an object, as a row has them.
struct Ends {
    kind: KindT,
    from: String,
    to: String,
    /// `None` if it is not connected.
    peer: Option<Peer>,
}

/// The other end of a Unix socket.
struct UnixPeer {
    name: String,
    peer: Peer,
}

/// The data from `/proc` and `sock_diag`.
struct View<'a> {
    observer: &'a Observer,
    processes: Vec<Process>,
    holders: HashMap<Object, Vec<usize>>,
    /// The socket tables of each network name space.
    tables: HashMap<String, Tables>,
    unix_peers: HashMap<Inode, Inode>,
}

/// Returns the sessions of processes under Sojourn; if `all`, also sockets that are not connected.
pub(super) fn find(proc: &Path, all: bool, observer: &Observer) -> Vec<Row> {
    let processes = processes::all(proc);
    if !processes.iter().any(Process::is_under_sojourn) {
        return Vec::new();
    }
    let mut tables = HashMap::new();
    for process in processes.iter().filter(|process| process.is_under_sojourn()) {
        // Where a process has ended meanwhile, another one of its name space has the tables.
        if !tables.contains_key(&process.network)
            && let Some(read) = Tables::read(&proc.join(process.pid.to_string()))
        {
            tables.insert(process.network.clone(), read);
        }
    }
    let view = View {
        observer,
        holders: processes::holders(&processes),
        unix_peers: diag::peers().unwrap_or_default(),
        processes,
        tables,
    };
    let mut rows = Vec::new();
    for (index, process) in view.processes.iter().enumerate().filter(|(_, p)| p.is_under_sojourn())
    {
        let seen = process.objects.iter().filter_map(|object| view.row(index, *object, all));
        rows.extend(seen);
    }
    rows
}

impl View<'_> {
    fn row(&self, index: usize, object: Object, all: bool) -> Option<Row> {
        let process = &self.processes[index];
        let Ends { kind, from, to, peer } = self.ends(process, object)?;
        let reason = match &peer {
            Some(_) if !self.is_allowed(index, object, kind) => ReasonT::Policy,
            Some(peer) => self.reason(index, object, peer),
            None if all => ReasonT::State,
            None => return None,
        };
        let peer = match peer {
            Some(Peer::Holders(holders)) => holders.first().map(|peer| &self.processes[*peer]),
            _ => None,
        };
        Some(Row {
            stream: None,
            kind: kind_word(kind),
            home: home_word(HomeT::Kernel),
            reason: reason.word(),
            pid: process.pid,
            uid: process.uid,
            program: process.program.clone(),
            from,
            to,
            peer_pid: peer.map(|peer| peer.pid),
            peer_program: peer.map(|peer| peer.program.clone()),
            sent: None,
            received: None,
            age_ms: None,
            connection: None,
            datagrams: None,
            rates: None,
            rule: None,
            inode: Some(object.inode()),
        })
    }

    /// Returns the ends of a process's object.
    fn ends(&self, process: &Process, object: Object) -> Option<Ends> {
        let tables = self.tables.get(&process.network)?;
        Some(match object {
            Object::Socket(inode) => {
                if let Some(tcp) = tables.tcp.get(&inode) {
                    let peer = tcp.is_established.then(|| self.tcp_peer(tables, tcp));
                    let (from, to) = (tcp.local.to_string(), tcp.remote.to_string());
                    Ends { kind: KindT::Tcp, from, to, peer }
                } else if let Some(udp) = tables.udp.get(&inode) {
                    let to = udp.remote.map_or_else(|| "*".into(), |remote| remote.to_string());
                    let peer = Some(udp_peer(udp));
                    Ends { kind: KindT::Udp, from: udp.local.to_string(), to, peer }
                } else {
                    let unix = tables.unix.get(&inode)?;
                    let UnixPeer { name: to, peer } = self.unix_peer(tables, inode);
                    let peer = unix.is_connected.then_some(peer);
                    Ends { kind: KindT::Unix, from: unix_name(unix, inode), to, peer }
                }
            }
            Object::Pipe { inode, writes } => {
                let other = Object::Pipe { inode, writes: !writes };
                self.pipe(format!("pipe:[{inode}]"), other)
            }
            Object::Fifo { inode, writes } => {
                let other = Object::Fifo { inode, writes: !writes };
                self.pipe(format!("fifo:[{inode}]"), other)
            }
        })
    }

    /// A pipe of that name with that other end.
    fn pipe(&self, name: String, other: Object) -> Ends {
        let peer = Some(Peer::Holders(self.held(other)));
        Ends { kind: KindT::Pipe, from: name.clone(), to: name, peer }
    }

    fn held(&self, object: Object) -> Vec<usize> {
        self.holders.get(&object).cloned().unwrap_or_default()
    }

    fn tcp_peer(&self, tables: &Tables, tcp: &Tcp) -> Peer {
        match tables.mirror(tcp) {
            Some(inode) => Peer::Holders(self.held(Object::Socket(inode))),
            None if self.tables.values().any(|other| other.mirror(tcp).is_some()) => Peer::Apart,
            None => Peer::Elsewhere,
        }
    }

    /// Returns the other end, which is unknown without `sock_diag`.
    fn unix_peer(&self, tables: &Tables, inode: Inode) -> UnixPeer {
        let Some(peer) = self.unix_peers.get(&inode) else {
            return UnixPeer { name: "-".into(), peer: Peer::Holders(Vec::new()) };
        };
        let name = match tables.unix.get(peer) {
            Some(unix) => unix_name(unix, *peer),
            None => format!("socket:[{peer}]"),
        };
        UnixPeer { name, peer: Peer::Holders(self.held(Object::Socket(*peer))) }
    }

    /// Returns true if the program's configuration lets the session move.
    fn is_allowed(&self, index: usize, object: Object, kind: KindT) -> bool {
        let process = &self.processes[index];
        let Some(config) = &process.config else { return true };
        let names: Vec<&str> = process.names.iter().map(String::as_str).collect();
        if !config.allows(kind) || !(names.is_empty() || config.programs.allow(&names)) {
            return false;
        }
        let (Object::Socket(inode), Some(tables)) = (object, self.tables.get(&process.network))
        else {
            return true;
        };
        let tcp = tables.tcp.get(&inode).map(|tcp| (tcp.local, Some(tcp.remote)));
        let ends = tcp.or_else(|| tables.udp.get(&inode).map(|udp| (udp.local, udp.remote)));
        ends.is_none_or(|(local, remote)| config.allows_between(local, remote))
    }

    /// Returns the reason why a session is in the kernel, as far as `/proc` shows it.
    fn reason(&self, index: usize, object: Object, peer: &Peer) -> ReasonT {
        let process = &self.processes[index];
        let peers: &[usize] = if let Peer::Holders(peers) = peer { peers } else { &[] };
        if peers.contains(&index) {
            return ReasonT::SameProcess;
        }
        if self.has_several_holders(object) {
            return ReasonT::SeveralHolders;
        }
        if let Some(reason) = self.observer.standing(process, object) {
            return reason;
        }
        match peer {
            Peer::Elsewhere => return ReasonT::NoPeer,
            Peer::Apart => return ReasonT::OtherNetwork,
            Peer::Holders(_) | Peer::Anybody => {}
        }
        if let Some(reason) = self.reason_of_peers(process, object, peers) {
            return reason;
        }
        if process.errors == Some(object) {
            return ReasonT::Stdio;
        }
        ReasonT::NotHot
    }

    /// Returns true if several processes hold an object, not counting the session server's.
    fn has_several_holders(&self, object: Object) -> bool {
        let holders = self.holders.get(&object).into_iter().flatten();
        let mut others = holders.filter(|one| !self.observer.is_servers(&self.processes[**one]));
        others.nth(1).is_some()
    }

    /// Returns the reason at the other end, whose holders are `peers`; `None` if there is none.
    fn reason_of_peers(&self, own: &Process, object: Object, peers: &[usize]) -> Option<ReasonT> {
        let peers: Vec<&Process> = peers.iter().map(|peer| &self.processes[*peer]).collect();
        if peers.is_empty() {
            // This user may see no holder, so nothing is known of the other end.
            return None;
        }
        if !peers.iter().any(|peer| peer.is_under_sojourn()) {
            return Some(ReasonT::NoPeer);
        }
        let takes_part =
            |peer: &&&Process| peer.has_library && self.observer.standing(peer, object).is_none();
        match peers.iter().find(takes_part) {
            None => Some(ReasonT::PeerStays),
            Some(peer) if self.observer.are_apart(own, peer) => Some(ReasonT::OtherServer),
            Some(_) => None,
        }
    }
}

/// Returns the peers of a UDP socket. A socket of the loopback interface has no remote peer.
fn udp_peer(udp: &Udp) -> Peer {
    let is_for_this_host =
        udp.local.ip().is_loopback() || udp.remote.is_some_and(|peer| peer.ip().is_loopback());
    if is_for_this_host { Peer::Elsewhere } else { Peer::Anybody }
}

fn unix_name(unix: &Unix, inode: Inode) -> String {
    match unix.name.is_empty() {
        true => format!("socket:[{inode}]"),
        false => unix.name.clone(),
    }
}
