//! Asking the session server, through the generated client of the interface `admin`.
//!
//! Not here: starting one (`server`).

use crate::args::Where;
use crate::server::Silent;
use crate::sessions::{Row, of_server};
use anyhow::{Context as _, Result, anyhow};
use sojourn_ipc::{Address, Connection, Deadline, Wait};
use sojourn_session::pages;
use sojourn_session::place::Surroundings;
use sojourn_session::{
    AdminClient, AdminStatsOut, ConcernedInfoT, ConnectionInfoT, RefusedInfoT, SessionClient,
    SessionInfoT, TimesInfoT, admin_connect_options, config, session_connect_options,
};
use std::os::fd::AsFd as _;
use std::time::Duration;

/// No question takes longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A server that answers.
pub(crate) struct Client {
    admin: AdminClient,
    /// Where it is.
    pub(crate) address: String,
    /// Its process; 0 if it cannot be seen from here.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) uid: u32,
}

/// No server can be asked: why, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{silent}; {}", self.advice())]
pub(crate) struct Unserved {
    /// Of the best place.
    pub(crate) silent: Silent,
    /// That place comes from a flag or the configuration.
    pub(crate) is_named: bool,
}

impl Unserved {
    /// What to do.
    pub(crate) fn advice(&self) -> &'static str {
        self.silent.advice(self.is_named)
    }
}

/// Where the server is to be looked for, best first, and whether a flag or the configuration says
/// that.
fn places(place: &Where) -> Result<(Vec<String>, bool)> {
    if let Some(address) = &place.server {
        return Ok((vec![address.clone()], true));
    }
    let config = config::load([], |name| std::env::var_os(name))?;
    let around = Surroundings::of_this_process(&config.server);
    let mut places = vec![around.for_client()?];
    let own = around.own().to_string_lossy().into_owned();
    if around.server.is_none() && !places.contains(&own) {
        // Where `run` turns to if the system's server has left its socket behind.
        places.push(own);
    }
    Ok((places, around.server.is_some()))
}

/// Whether the server at `text`, which answers, speaks with programs as our library does.
pub(crate) fn speaks_with_programs(text: &str) -> Result<()> {
    let mut options = session_connect_options();
    options.wait = Wait::Park;
    options.timeout = ANSWER_WITHIN;
    let connection = Connection::connect(Address::parse(text)?, &options)?;
    SessionClient::bind_by(connection, Deadline::after(ANSWER_WITHIN)).map(drop).with_context(
        || format!("{text}: the session server does not take programs of this version, which would stay in the kernel; replace it: sojourn server stop"),
    )
}

impl Client {
    /// The first server that answers.
    pub(crate) fn connect(place: &Where) -> Result<Self> {
        let mut first = None;
        let (places, is_named) = places(place)?;
        for address in places {
            match Self::connect_to(&address) {
                Ok(client) => return Ok(client),
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        let error = first.unwrap_or_else(|| anyhow!("there is no place for a session server"));
        Err(match error.downcast::<Silent>() {
            Ok(silent) => Unserved { silent, is_named }.into(),
            Err(error) => error,
        })
    }

    fn connect_to(text: &str) -> Result<Self> {
        crate::server::answers(text)?;
        let mut options = admin_connect_options();
        options.wait = Wait::Park;
        options.timeout = ANSWER_WITHIN;
        let connection = Connection::connect(Address::parse(text)?, &options)?;
        let who = sojourn_ipc::peer(connection.socket().as_fd())?;
        let admin = AdminClient::bind_by(connection, Deadline::after(ANSWER_WITHIN))
            .with_context(|| format!("{text}: is no session server"))?;
        Ok(Self { admin, address: text.into(), pid: who.pid.unsigned_abs(), uid: who.uid })
    }

    /// Which process it is, in words.
    pub(crate) fn process(&self) -> String {
        match self.pid {
            0 => "of another process namespace".to_owned(),
            pid => format!("process {pid}"),
        }
    }

    fn ask(&mut self) -> &mut AdminClient {
        self.admin.with_deadline(Deadline::after(ANSWER_WITHIN))
    }

    /// Sessions it knows.
    pub(crate) fn list(&mut self) -> Result<Vec<SessionInfoT>> {
        pages::sessions(self.ask()).with_context(|| format!("{}: list", self.address))
    }

    /// The same, as they are shown.
    pub(crate) fn rows(&mut self) -> Result<Vec<Row>> {
        Ok(self.list()?.into_iter().map(of_server).collect())
    }

    /// Offers that it has refused. A server of an older version does not tell.
    pub(crate) fn refused(&mut self) -> Vec<RefusedInfoT> {
        pages::refused(self.ask()).unwrap_or_default()
    }

    /// Processes that have found it. As above.
    pub(crate) fn processes(&mut self) -> Vec<u32> {
        pages::processes(self.ask()).unwrap_or_default()
    }

    /// Sessions that stay in the kernel for rules of the host, with the rules' names. As above.
    pub(crate) fn concerned(&mut self) -> Vec<ConcernedInfoT> {
        let told = self.ask().concerned().ok();
        told.and_then(|told| told.sessions).unwrap_or_default()
    }

    /// How sessions with other hosts are. As above.
    pub(crate) fn connections(&mut self) -> Vec<ConnectionInfoT> {
        pages::connections(self.ask()).unwrap_or_default()
    }

    /// Its counters.
    pub(crate) fn stats(&mut self) -> Result<AdminStatsOut> {
        self.ask().stats().with_context(|| format!("{}: stats", self.address))
    }

    /// Asks a process to offer what it has of that socket or pipe; false if the server knows no
    /// such process of ours.
    pub(crate) fn move_in(&mut self, pid: u32, inode: u64) -> Result<bool> {
        self.ask().move_in(pid, inode).with_context(|| format!("{}: move", self.address))
    }

    /// Sends a stream home; false if there is none that we may touch.
    pub(crate) fn recall(&mut self, stream: u64) -> Result<bool> {
        self.ask().recall_stream(stream).with_context(|| format!("{}: recall", self.address))
    }

    /// Has a session that is away timed for so many seconds, and answers the times of its layers so
    /// far; `None` if there is no such session that we may touch.
    pub(crate) fn times(&mut self, stream: u64, seconds: u32) -> Result<Option<TimesInfoT>> {
        let told = self.ask().stream_times(stream, seconds);
        let told = told.with_context(|| format!("{}: times", self.address))?;
        Ok(told.ret.then_some(told.times))
    }

    /// Asks it to end, and waits for at most `within` until it has.
    pub(crate) fn stop(mut self, force: bool, within: Duration) -> Result<bool> {
        self.ask().stop(force).with_context(|| format!("{}: stop", self.address))?;
        let connection = self.admin.into_inner();
        let socket = connection.socket();
        let mut set = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::RDHUP)];
        let timeout = rustix::time::Timespec::try_from(within).ok();
        Ok(rustix::io::retry_on_intr(|| rustix::event::poll(&mut set, timeout.as_ref()))? > 0)
    }
}
