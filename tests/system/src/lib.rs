//! What the whole-system tests share: the server asked directly, and pairs of peers.
//!
//! The tests are under `tests/`; what they run is `sojourn-lab`'s. They need a release build:
//! `cargo xtask test` makes it.

pub mod catalog;
pub mod compile;
pub mod leftovers;
pub mod network;
pub mod rights;
pub mod row;
pub mod torture;
pub mod world;

use anyhow::{Context, Result};
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_session::pages;
use sojourn_session::{
    AdminClient, ConnectionInfoT, RefusedInfoT, SessionInfoT, admin_connect_options,
};
use std::time::Duration;

/// How long a transfer of a few megabytes may take on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);
/// How long a server may take for an answer on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

/// The server of a sandbox, asked over its own interface: quicker than a command each time.
pub struct Admin {
    client: AdminClient<Connection>,
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
    /// If it does not answer.
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

    /// The sessions that are away.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn away(&mut self) -> Result<Vec<SessionInfoT>> {
        let all = pages::sessions(self.client()).context("list")?;
        let is_away = |session: &SessionInfoT| session.home != sojourn_session::HomeT::Kernel;
        Ok(all.into_iter().filter(is_away).collect())
    }

    /// How the sessions with other hosts are that are away.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn connections(&mut self) -> Result<Vec<ConnectionInfoT>> {
        pages::connections(self.client()).context("connections")
    }

    /// What the server has refused, and what came home and why.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn refused(&mut self) -> Result<Vec<RefusedInfoT>> {
        pages::refused(self.client()).context("refused")
    }

    /// Streams made, and sessions that came home, since the server started.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn moves(&mut self) -> Result<(u64, u64)> {
        let stats = self.client().stats().context("stats")?;
        Ok((stats.counters.joins, stats.counters.returns))
    }

    /// Sessions that were offered to the server since it started.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn offers(&mut self) -> Result<u64> {
        Ok(self.client().stats().context("stats")?.counters.offers)
    }

    /// The streams that one of these processes has an end of.
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

    /// Sends the streams of these processes home, or begins to; which they are.
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

    /// Sends every stream home.
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

/// Two `lab-peer`s at the two ends of a session of that kind, both under Sojourn.
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

/// Two `lab-peer`s with a TCP session: one listens at an address, the other calls it by another, or
/// the same.
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
    // Four threads that wake each other all the time: kernels have been seen that let nobody else
    // run for a minute. Whoever watches them comes first.
    let mut command = sandbox.command(Mode::Sojourn, "chrt");
    command.args(["--idle", "0"]).arg(&peer).args(words).args(options);
    Running::start(command)
}

/// A port nobody listens on.
///
/// # Errors
/// If there is none.
pub fn free_port(address: &str) -> Result<u16> {
    let listener = std::net::TcpListener::bind(format!("{address}:0"))?;
    Ok(listener.local_addr()?.port())
}
