//! Calls to the session server, through the generated client of the interface `admin`.
//!
//! Not here: starting a server (`server`).

use crate::args::ServerArgs;
use crate::server::Silent;
use crate::sessions::{Row, of_server};
use anyhow::{Context as _, Result, anyhow};
use rustix::process::Uid;
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline, Wait};
use sojourn_session::pages;
use sojourn_session::place::Surroundings;
use sojourn_session::{
    AdminClient, AdminStatsOut, ConcernedInfoT, ConnectionInfoT, HomeT, Inode, ProcessId,
    RefusedInfoT, SessionClient, SessionInfoT, StreamNumber, TimesInfoT, admin_connect_options,
    config, session_connect_options,
};
use std::os::fd::AsFd as _;
use std::time::Duration;

/// The longest time that a call takes.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A server that answers.
pub(crate) struct Client {
    admin: AdminClient,
    /// The server's address.
    pub(crate) address: String,
    /// The server's process number; none if that process is outside of this process name space.
    pub(crate) pid: ProcessId,
    /// The server's user.
    pub(crate) uid: Uid,
}

/// The error that no server can be asked.
#[derive(Debug, thiserror::Error)]
#[error("{silent}; {}", self.advice())]
pub(crate) struct NoServer {
    /// The error at the first address.
    pub(crate) silent: Silent,
    /// The first address comes from a flag or the configuration.
    pub(crate) is_named: bool,
}

impl NoServer {
    /// Returns advice for the user.
    pub(crate) fn advice(&self) -> &'static str {
        self.silent.advice(self.is_named)
    }
}

/// Where a server is searched.
struct ServerAddresses {
    /// The preferred address first.
    addresses: Vec<String>,
    /// True if a flag or the configuration names the address.
    is_named: bool,
}

/// Returns the addresses at which a server is searched.
fn addresses(args: &ServerArgs) -> Result<ServerAddresses> {
    if let Some(address) = &args.server {
        return Ok(ServerAddresses { addresses: vec![address.clone()], is_named: true });
    }
    let config = config::load([], |name| std::env::var_os(name))?;
    let around = Surroundings::of_this_process(&config.server);
    let mut addresses = vec![around.for_client()?];
    let own = around.own().to_string_lossy().into_owned();
    if around.server.is_none() && !addresses.contains(&own) {
        // `run` uses this user's own server if the system's server has left its socket behind.
        addresses.push(own);
    }
    Ok(ServerAddresses { addresses, is_named: around.server.is_some() })
}

/// Connects to the server at `text`, if this user can trust it.
fn connect(text: &str, options: ConnectOptions) -> Result<Connection> {
    let user = rustix::process::geteuid();
    let socket = crate::server::connect(text, user, Some(ANSWER_WITHIN))?;
    let options = ConnectOptions { wait: Wait::Park, timeout: ANSWER_WITHIN, ..options };
    Connection::connect(Address::Descriptor(socket), &options).map_err(|error| {
        // The error begins with the descriptor's number.
        let error = error.to_string();
        anyhow!("{text}: {}", error.split_once(": ").map_or(&*error, |(_, cause)| cause))
    })
}

/// Checks that the server at `text`, which answers, has the interface version of the installed
/// preload library.
pub(crate) fn speaks_with_programs(text: &str) -> Result<()> {
    let connection = connect(text, session_connect_options())?;
    SessionClient::bind_by(connection, Deadline::after(ANSWER_WITHIN)).map(drop).with_context(
        || format!("{text}: the session server does not take programs of this version, which would stay in the kernel; replace it: sojourn server stop"),
    )
}

impl Client {
    /// Connects to the first server that answers.
    pub(crate) fn connect(args: &ServerArgs) -> Result<Self> {
        let mut first = None;
        let ServerAddresses { addresses, is_named } = addresses(args)?;
        for address in addresses {
            match Self::connect_to(&address) {
                Ok(client) => return Ok(client),
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        let error = first.unwrap_or_else(|| anyhow!("there is no place for a session server"));
        Err(match error.downcast::<Silent>() {
            Ok(silent) => NoServer { silent, is_named }.into(),
            Err(error) => error,
        })
    }

    fn connect_to(text: &str) -> Result<Self> {
        let connection = connect(text, admin_connect_options())?;
        let who = sojourn_ipc::peer(connection.socket().as_fd())?;
        let admin = AdminClient::bind_by(connection, Deadline::after(ANSWER_WITHIN))
            .with_context(|| format!("{text}: is no session server"))?;
        Ok(Self {
            admin,
            address: text.into(),
            pid: ProcessId(who.pid.unsigned_abs()),
            uid: who.user(),
        })
    }

    /// Returns the server's process as text.
    pub(crate) fn process(&self) -> String {
        match self.pid {
            ProcessId::NONE => "of another process namespace".to_owned(),
            pid => format!("process {pid}"),
        }
    }

    fn ask(&mut self) -> &mut AdminClient {
        self.admin.with_deadline(Deadline::after(ANSWER_WITHIN))
    }

    /// Lists the sessions that the server knows.
    pub(crate) fn list(&mut self) -> Result<Vec<SessionInfoT>> {
        pages::sessions(self.ask()).with_context(|| format!("{}: list", self.address))
    }

    /// Lists the sessions as rows for display.
    pub(crate) fn rows(&mut self) -> Result<Vec<Row>> {
        Ok(self.list()?.into_iter().map(of_server).collect())
    }

    /// Lists offers that the server has refused. The list of an older server, without this call, is
    /// empty.
    pub(crate) fn refused(&mut self) -> Vec<RefusedInfoT> {
        pages::refused(self.ask()).unwrap_or_default()
    }

    /// Lists the processes that are connected with the server; empty with an older server.
    pub(crate) fn processes(&mut self) -> Vec<ProcessId> {
        pages::processes(self.ask()).unwrap_or_default().into_iter().map(ProcessId).collect()
    }

    /// Lists the sessions that stay in the kernel for rules of the host, with the rules' names;
    /// empty with an older server.
    pub(crate) fn concerned(&mut self) -> Vec<ConcernedInfoT> {
        let concerned = self.ask().concerned().ok();
        concerned.and_then(|concerned| concerned.sessions).unwrap_or_default()
    }

    /// Lists the TCP state of sessions with other hosts; empty with an older server.
    pub(crate) fn connections(&mut self) -> Vec<ConnectionInfoT> {
        pages::connections(self.ask()).unwrap_or_default()
    }

    /// Returns the server's counters.
    pub(crate) fn stats(&mut self) -> Result<AdminStatsOut> {
        self.ask().stats().with_context(|| format!("{}: stats", self.address))
    }

    /// Asks a process to offer its descriptors of a socket or pipe. Returns false if the server
    /// knows no such process, or the process belongs to another user.
    pub(crate) fn move_in(&mut self, pid: ProcessId, inode: Inode, home: HomeT) -> Result<bool> {
        self.ask().move_in(pid.0, inode.0, home).with_context(|| format!("{}: move", self.address))
    }

    /// Recalls a stream. Returns false if there is no such stream, or it belongs to another user.
    pub(crate) fn recall(&mut self, stream: StreamNumber) -> Result<bool> {
        self.ask().recall_stream(stream.0).with_context(|| format!("{}: recall", self.address))
    }

    /// Has a session that is away timed for `seconds`, and returns the times of its layers so far.
    /// `None`: there is no such session, or it belongs to another user.
    pub(crate) fn times(
        &mut self,
        stream: StreamNumber,
        seconds: u32,
    ) -> Result<Option<TimesInfoT>> {
        let reply = self.ask().stream_times(stream.0, seconds);
        let reply = reply.with_context(|| format!("{}: times", self.address))?;
        Ok(reply.ret.then_some(reply.times))
    }

    /// Asks the server to end, and waits for its end for at most `within`. Returns true if the
    /// server has ended.
    pub(crate) fn stop(mut self, force: bool, within: Duration) -> Result<bool> {
        self.ask().stop(force).with_context(|| format!("{}: stop", self.address))?;
        let connection = self.admin.into_inner();
        let socket = connection.socket();
        let mut set = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::RDHUP)];
        let timeout = rustix::time::Timespec::try_from(within).ok();
        Ok(rustix::io::retry_on_intr(|| rustix::event::poll(&mut set, timeout.as_ref()))? > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, accept, bind, listen, socket_with};
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn socket() -> OwnedFd {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// Who listens at the next connection may be another one than who was looked at.
    #[test]
    fn a_server_is_asked_over_the_connection_by_which_it_was_judged() {
        let place = format!("@sojourn-cli-once-{}", std::process::id());
        let name = Address::parse(&place).unwrap().socket_address().unwrap();
        let listener = socket();
        bind(&listener, &name).unwrap();
        listen(&listener, 8).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let connections = scope.spawn(|| {
                let mut count = 0;
                loop {
                    drop(accept(&listener).unwrap());
                    if is_over.load(Ordering::SeqCst) {
                        return count;
                    }
                    count += 1;
                }
            });
            let error = Client::connect_to(&place).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{place}: ")) && !error.contains("fd:"), "{error}");
            is_over.store(true, Ordering::SeqCst);
            rustix::net::connect(socket(), &name).unwrap();
            assert_eq!(connections.join().unwrap(), 1);
        });
    }
}
