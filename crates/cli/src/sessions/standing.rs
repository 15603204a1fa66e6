//! What keeps everything of a program in the kernel, hot or not, as far as that is seen from
//! outside.
//!
//! Its library gives notice when it stands down (`sojourn_session::notice`); the rest is where the
//! program is: without the library, in name spaces that the server cannot look into, where it finds
//! no server. Not here: what a single session is kept for (`found`).

use super::processes::{Object, Process};
use super::reach::{Reach, Socket, Tried};
use crate::client::Client;
use sojourn_session::ReasonT;
use sojourn_session::place::is_systems;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The session server, as it is seen from here.
#[derive(Debug)]
struct Served {
    /// It is root's, or everybody's: it looks into other network name spaces.
    looks_elsewhere: bool,
    /// Its name spaces and how deep its process name space is; none if we may not see them.
    network: Option<String>,
    processes: Option<(String, usize)>,
}

/// Who looks, and with what.
#[derive(Debug)]
pub(super) struct Observer {
    proc: PathBuf,
    server: Option<Served>,
    /// Processes that the server knows: they have found it.
    known: HashSet<u32>,
    tried: Tried,
    /// Whether servers are looked for.
    looks: bool,
}

impl Observer {
    /// With the server of `client`, if there is one, which knows these processes.
    pub(super) fn new(proc: &Path, client: Option<&Client>, known: HashSet<u32>) -> Self {
        let server = client.map(|client| {
            let directory = proc.join(client.pid.to_string());
            let name = |of: &str| {
                let link = std::fs::read_link(directory.join("ns").join(of)).ok()?;
                Some(link.to_string_lossy().into_owned())
            };
            let depth = super::processes::Status::read(&directory).map(|status| status.depth);
            let looks_elsewhere = client.uid == 0 || is_systems(&client.address);
            Served { looks_elsewhere, network: name("net"), processes: name("pid").zip(depth) }
        });
        Self { proc: proc.into(), server, known, tried: Tried::default(), looks: true }
    }

    /// One that looks for no server: all have found one.
    #[cfg(test)]
    pub(super) fn blind(proc: &Path) -> Self {
        Self { looks: false, ..Self::new(proc, None, HashSet::new()) }
    }

    /// What keeps all of it in the kernel, or this object of it at least.
    pub(super) fn standing(&self, process: &Process, object: Object) -> Option<ReasonT> {
        process
            .loss
            .or(process.notice)
            .or_else(|| self.is_out_of_sight(process, object).then_some(ReasonT::Namespace))
            .or_else(|| self.unserved(process))
    }

    fn unserved(&self, process: &Process) -> Option<ReasonT> {
        let is_served = !self.looks || self.known.contains(&process.pid);
        if is_served || self.tried.reach(&self.proc, process) != Reach::Nothing {
            return None;
        }
        let has_server = self.server.is_some();
        Some(if has_server { ReasonT::Unreachable } else { ReasonT::ServerGone })
    }

    /// The server that it finds, if that can be told.
    fn served_by(&self, process: &Process) -> Option<Socket> {
        match self.tried.reach(&self.proc, process) {
            Reach::Server(socket) => Some(socket),
            _ => None,
        }
    }

    /// Whether two programs look for different servers, as far as that can be told.
    pub(super) fn are_apart(&self, one: &Process, other: &Process) -> bool {
        self.looks
            && match (self.served_by(one), self.served_by(other)) {
                (Some(one), Some(other)) => one != other,
                _ => false,
            }
    }

    /// Whether the server cannot look into the name spaces of the process.
    fn is_out_of_sight(&self, process: &Process, object: Object) -> bool {
        let Some(server) = &self.server else { return false };
        let is_socket = matches!(object, Object::Socket(_));
        let has_network = |network: &String| *network == process.network;
        let is_elsewhere =
            is_socket && server.network.as_ref().is_some_and(|own| !has_network(own));
        // Root's enters it.
        if is_elsewhere && !server.looks_elsewhere && !process.network.is_empty() {
            return true;
        }
        server.processes.as_ref().is_some_and(|(own, depth)| {
            // It sees its own name space and those within. One that we see with one number alone is
            // ours.
            let is_within = *own == process.processes || process.depth > *depth || *depth <= 1;
            !process.processes.is_empty() && !is_within
        })
    }
}
