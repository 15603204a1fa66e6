//! Reasons that keep all sessions of a program in the kernel, as far as other processes can see
//! them.
//!
//! The library publishes a notice when it stops moving sessions (`sojourn_session::notice`). The
//! other reasons: the program has no library, the server cannot look into its name spaces, or its
//! search finds no server. Not here: reasons of single sessions (`found`).

use super::processes::{Object, Process};
use super::server_lookup::{ProbedServers, ServerLookup, Socket};
use crate::client::Client;
use sojourn_session::trust::is_systems;
use sojourn_session::{ProcessId, ReasonT};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The properties of the session server that decide what it can see.
#[derive(Debug)]
struct Served {
    /// The process that has made the server's socket; `None` if its number says nothing here.
    pid: Option<ProcessId>,
    /// The server runs as root, or serves all users: it can enter other network name spaces.
    looks_elsewhere: bool,
    /// The server's name spaces; `None` if this user may not read them.
    network: Option<String>,
    processes: Option<ProcessSpace>,
}

/// A process name space.
#[derive(Debug)]
struct ProcessSpace {
    name: String,
    depth: usize,
}

/// The inputs that the reasons are derived from.
#[derive(Debug)]
pub(super) struct Observer {
    proc: PathBuf,
    server: Option<Served>,
    /// The processes that are connected with the server.
    known: HashSet<ProcessId>,
    probed_servers: ProbedServers,
    /// False in tests that have no servers.
    looks: bool,
}

impl Observer {
    /// Makes an observer that knows the server of `client`, if there is one, and the server's
    /// processes.
    pub(super) fn new(proc: &Path, client: Option<&Client>, known: HashSet<ProcessId>) -> Self {
        let server = client.map(|client| {
            let directory = proc.join(client.pid.to_string());
            let name = |of: &str| {
                let link = std::fs::read_link(directory.join("ns").join(of)).ok()?;
                Some(link.to_string_lossy().into_owned())
            };
            let depth = super::processes::Status::read(&directory).map(|status| status.depth);
            let looks_elsewhere = client.uid.is_root() || is_systems(&client.address);
            // Process 1 is the parent of other processes than the server's, too.
            let pid = Some(client.pid).filter(|pid| *pid > ProcessId(1));
            let processes =
                name("pid").zip(depth).map(|(name, depth)| ProcessSpace { name, depth });
            Served { pid, looks_elsewhere, network: name("net"), processes }
        });
        Self {
            proc: proc.into(),
            server,
            known,
            probed_servers: ProbedServers::default(),
            looks: true,
        }
    }

    /// Makes an observer for which every process has found a server.
    #[cfg(test)]
    pub(super) fn blind(proc: &Path) -> Self {
        Self { looks: false, ..Self::new(proc, None, HashSet::new()) }
    }

    /// Returns the reason that keeps all sessions of a process in the kernel, or at least this
    /// object's.
    pub(super) fn standing(&self, process: &Process, object: Object) -> Option<ReasonT> {
        process
            .loss
            .or(process.notice)
            .or_else(|| self.is_out_of_sight(process, object).then_some(ReasonT::Namespace))
            .or_else(|| self.unserved(process))
    }

    fn unserved(&self, process: &Process) -> Option<ReasonT> {
        let is_served = !self.looks || self.known.contains(&process.pid);
        if is_served || self.probed_servers.look_up(&self.proc, process) != ServerLookup::Nothing {
            return None;
        }
        let has_server = self.server.is_some();
        Some(if has_server { ReasonT::Unreachable } else { ReasonT::ServerGone })
    }

    /// Returns true for a process of the session server: the one that has made the server's
    /// socket, and those that it has started. They have duplicates of descriptors while they look
    /// at an offer, and of the sockets of sessions with other hosts.
    pub(super) fn is_servers(&self, process: &Process) -> bool {
        let server = self.server.as_ref().and_then(|server| server.pid);
        server.is_some_and(|server| [process.pid, process.parent].contains(&server))
    }

    /// Returns the server that a process finds, if that is known.
    fn served_by(&self, process: &Process) -> Option<Socket> {
        match self.probed_servers.look_up(&self.proc, process) {
            ServerLookup::Server(socket) => Some(socket),
            _ => None,
        }
    }

    /// Returns true if two programs are known to find different servers.
    pub(super) fn are_apart(&self, one: &Process, other: &Process) -> bool {
        self.looks
            && match (self.served_by(one), self.served_by(other)) {
                (Some(one), Some(other)) => one != other,
                _ => false,
            }
    }

    /// Returns true if the server cannot look into the name spaces of the process.
    fn is_out_of_sight(&self, process: &Process, object: Object) -> bool {
        let Some(server) = &self.server else { return false };
        let is_socket = matches!(object, Object::Socket(_));
        let has_network = |network: &String| *network == process.network;
        let is_elsewhere =
            is_socket && server.network.as_ref().is_some_and(|own| !has_network(own));
        // A server of root's enters the network name space of its client.
        if is_elsewhere && !server.looks_elsewhere && !process.network.is_empty() {
            return true;
        }
        server.processes.as_ref().is_some_and(|ProcessSpace { name: own, depth }| {
            // A server sees its own process name space and those nested in it. A process with only
            // one number is in this process's name space.
            let is_within = *own == process.processes || process.depth > *depth || *depth <= 1;
            !process.processes.is_empty() && !is_within
        })
    }
}
