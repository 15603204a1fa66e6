//! The common parts of the whole-system tests: a client of the server's administration interface,
//! and pairs of peers.
//!
//! The tests are under `tests/`; sandboxes and programs are those of `sojourn-lab`. The tests need
//! a release build, which `cargo xtask test` makes.

pub mod catalog;
pub mod compile;
pub mod harness;
pub mod leftovers;
pub mod network;
pub mod programs;
mod random;
pub mod rights;
pub mod row;
pub mod sequences;
pub mod talk;
pub mod torture;
pub mod transfer;
pub mod world;

use anyhow::{Context, Result};
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_session::pages;
use sojourn_session::{
    AdminClient, ConnectionInfoT, RefusedInfoT, SessionInfoT, admin_connect_options,
};
use std::time::Duration;

/// Longest time of a transfer of a few megabytes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Longest time of a server's answer on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

/// A client of a server's administration interface, which is faster than a command for each
/// question.
pub struct Admin {
    client: AdminClient<Connection>,
}

/// How many moves there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveCounts {
    /// Streams made.
    pub joins: u64,
    /// Ends of streams that went home: two for each stream.
    pub returns: u64,
}

impl MoveCounts {
    /// Returns true if a stream has an end that is not home.
    #[must_use]
    pub fn is_any_away(self) -> bool {
        self.returns < 2 * self.joins
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Admin {
    /// Connects to the sandbox's server.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn new(sandbox: &Sandbox) -> Result<Self> {
        let address = Address::parse(&sandbox.address().to_string_lossy())?;
        let connection = Connection::connect(address, &admin_connect_options())?;
        let client = AdminClient::bind_by(connection, Deadline::after(ANSWER))
            .context("the server does not serve the interface")?;
        Ok(Self { client })
    }

    fn client(&mut self) -> &mut AdminClient<Connection> {
        self.client.with_deadline(Deadline::after(ANSWER))
    }

    /// Returns the sessions that are away.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn away(&mut self) -> Result<Vec<SessionInfoT>> {
        let all = pages::sessions(self.client()).context("list")?;
        let is_away = |session: &SessionInfoT| session.home != sojourn_session::HomeT::Kernel;
        Ok(all.into_iter().filter(is_away).collect())
    }

    /// Returns the connections of the remote sessions that are away.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn connections(&mut self) -> Result<Vec<ConnectionInfoT>> {
        pages::connections(self.client()).context("connections")
    }

    /// Returns the sessions that the server has refused, and those that came home, with the
    /// reasons.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn refused(&mut self) -> Result<Vec<RefusedInfoT>> {
        pages::refused(self.client()).context("refused")
    }

    /// Counts the moves since the server started.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn moves(&mut self) -> Result<MoveCounts> {
        let counters = self.client().stats().context("stats")?.counters;
        Ok(MoveCounts { joins: counters.joins, returns: counters.returns })
    }

    /// Returns the number of sessions that were offered to the server since it started.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn offers(&mut self) -> Result<u64> {
        Ok(self.client().stats().context("stats")?.counters.offers)
    }

    /// Returns the streams of which one of these processes has an end.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn streams_of(&mut self, pids: &[u32]) -> Result<Vec<u64>> {
        let away = self.away()?.into_iter();
        Ok(away
            .filter(|session| pids.contains(&session.pid))
            .map(|session| session.stream)
            .collect())
    }

    /// Begins to recall the streams of these processes; returns the streams.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn recall_of(&mut self, pids: &[u32]) -> Result<Vec<u64>> {
        let mut streams = self.streams_of(pids)?;
        streams.sort_unstable();
        streams.dedup();
        for stream in &streams {
            self.client().recall_stream(*stream).context("recall")?;
        }
        Ok(streams)
    }

    /// Begins to recall every stream; returns their number.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn recall_all(&mut self) -> Result<usize> {
        let mut streams: Vec<u64> = self.away()?.iter().map(|session| session.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in &streams {
            self.client().recall_stream(*stream).context("recall")?;
        }
        Ok(streams.len())
    }
}

/// Starts two `lab-peer`s at the ends of a session of this kind, both under Sojourn.
///
/// # Errors
/// If they cannot be started.
pub fn peers(sandbox: &Sandbox, kind: &str, options: &[&str]) -> Result<Vec<Running>> {
    let start = |words: &[&str]| start_peer(sandbox, words, options);
    match kind {
        "pipe" => Ok(vec![start(&["pair", "pipe"])?]),
        "socketpair" => Ok(vec![start(&["pair", "unix"])?]),
        "unix" => {
            let path = sandbox.folder().join("peer");
            let _ = std::fs::remove_file(&path);
            let path = path.to_string_lossy().into_owned();
            Ok(vec![start(&["serve", "unix", &path])?, start(&["call", "unix", &path])?])
        }
        address => tcp_peers(sandbox, address, address, free_port(address)?, options),
    }
}

/// Starts two `lab-peer`s with a TCP session: one listens at the address `at`, the other connects
/// to `by`.
///
/// # Errors
/// If they cannot be started.
pub fn tcp_peers(
    sandbox: &Sandbox,
    at: &str,
    by: &str,
    port: u16,
    options: &[&str],
) -> Result<Vec<Running>> {
    let serve = ["serve", "tcp", &format!("{at}:{port}")];
    let call = ["call", "tcp", &format!("{by}:{port}")];
    Ok(vec![start_peer(sandbox, &serve, options)?, start_peer(sandbox, &call, options)?])
}

fn start_peer(sandbox: &Sandbox, words: &[&str], options: &[&str]) -> Result<Running> {
    let peer = sandbox.built().path("lab-peer");
    // The peers have four threads that wake each other all the time; some kernels then let nothing
    // else run for a minute. With the idle policy (sched(7)) the test that watches them comes
    // first.
    let mut command = sandbox.command(Mode::Sojourn, "chrt");
    command.args(["--idle", "0"]).arg(&peer).args(words).args(options);
    Running::start(command)
}

/// Returns a port on which nothing listens.
///
/// # Errors
/// If there is none.
pub fn free_port(address: &str) -> Result<u16> {
    let listener = std::net::TcpListener::bind(format!("{address}:0"))?;
    Ok(listener.local_addr()?.port())
}
