//! A client of the session server's administration interface.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_session::{AdminClient, SessionInfoT, admin_connect_options, pages, reason};

/// Ends that came home, by reason.
pub(crate) type Returns = BTreeMap<&'static str, u64>;

/// A connection to the session server.
pub(crate) struct Admin {
    client: AdminClient<Connection>,
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(5))
}

/// How many moves there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoveCounts {
    /// Streams made.
    pub(crate) joins: u64,
    /// Ends that came home. An end that is recalled before its program has learned that it may move
    /// has never left the kernel; the server counts it as a refusal, and it is one of these.
    pub(crate) returns: u64,
}

impl Admin {
    /// Connects to the server at `address`.
    pub(crate) fn new(address: &Path) -> Result<Self> {
        let address = Address::parse(&address.to_string_lossy())?;
        let connection = Connection::connect(address, &admin_connect_options())?;
        let client = AdminClient::bind_by(connection, soon()).context("not the interface")?;
        Ok(Self { client })
    }

    /// Counts the moves since the server started.
    pub(crate) fn moves(&mut self) -> Result<MoveCounts> {
        let counters = self.client.with_deadline(soon()).stats().context("stats")?.counters;
        Ok(MoveCounts { joins: counters.joins, returns: counters.returns + counters.refusals })
    }

    /// Returns the numbers of ends that came home since the server started, by reason.
    pub(crate) fn returns(&mut self) -> Result<Returns> {
        let stats = self.client.with_deadline(soon()).stats().context("stats")?;
        let counts = stats.returns_by_reason.unwrap_or_default();
        let counted = reason::ALL.iter().zip(counts).filter(|(_, count)| *count > 0);
        Ok(counted.map(|(words, count)| (words.word, count)).collect())
    }

    /// Returns the sessions that are away from the kernel.
    fn away(&mut self) -> Result<Vec<SessionInfoT>> {
        let mut all = pages::sessions(self.client.with_deadline(soon())).context("list")?;
        all.retain(|session| session.home != sojourn_session::HomeT::Kernel);
        Ok(all)
    }

    /// Counts the sessions of a process that are away from the kernel.
    pub(crate) fn away_of(&mut self, pid: u32) -> Result<usize> {
        Ok(self.away()?.iter().filter(|session| session.pid == pid).count())
    }

    /// Counts the sessions that are in protocol servers.
    pub(crate) fn away_in_servers(&mut self) -> Result<usize> {
        let all = pages::sessions(self.client.with_deadline(soon())).context("list")?;
        let is_there = |one: &&SessionInfoT| one.home == sojourn_session::HomeT::Server;
        Ok(all.iter().filter(is_there).count())
    }

    /// Recalls every stream; returns how many.
    pub(crate) fn recall_all(&mut self) -> Result<usize> {
        let mut streams: Vec<u64> = self.away()?.iter().map(|session| session.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        for &stream in &streams {
            self.client.with_deadline(soon()).recall_stream(stream).context("recall")?;
        }
        Ok(streams.len())
    }
}
