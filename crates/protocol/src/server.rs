//! The server object: its sessions and its clients.
//!
//! # Theory of operation
//! Serving threads take requests, and answer most at once. A call that waits stays in its session's
//! queue, and the watcher's thread answers it later. Work that may take a while (going home,
//! closing) is left to the thread for slow work. So no thread waits for a client or for a peer. The
//! table has one lock, which no thread holds while it uses a socket; each queue has its session's
//! lock. Neither is taken while the other is held.
//!
//! Not here: the operations of the interface (`operations`), the process around it (`process`).
//! Read `docs/understand/protocol-server.md` first.

mod operations;

use crate::bells::Bells;
use crate::buffer::Envelope;
use crate::calls::{self, Kind, Socket};
use crate::queue::{ClientEvents, ReceiveMode, Source, ignore, number};
use crate::session::{Receive, ReceiveReply, Served, with_buffer};
use crate::slow::Slow;
use crate::table::{Found, Limits, OpenSession, Opened, Refused, Table};
use crate::token::Token;
use crate::watcher::Watcher;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use sojourn_ipc::rt::Caller;
use sojourn_ipc::{ClientId, ServerOptions};
use sojourn_session::protocol::server::protocol_server_options;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Clients at a time.
const CLIENTS_MAX: u32 = 1024;
/// Sessions in all, at most.
const SESSIONS_MAX: usize = 16_384;
/// Descriptors that a session may take: its socket, and its part of inboxes, rings and ports.
const OF_SESSION: usize = 4;
/// A client may have one in so many of the sessions that there can be.
const SHARE: usize = 4;

type Session = Arc<OpenSession<Served>>;

/// The protocol server.
#[derive(Debug)]
pub struct Protocol {
    table: Mutex<Table<Served>>,
    /// Sessions by the names that the watcher has for them.
    watched: Mutex<HashMap<u64, Weak<OpenSession<Served>>>>,
    bells: Bells,
    watcher: Watcher,
    slow: Slow,
    clients: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that the server has taken in.
struct TakenIn {
    /// Its number for the client.
    number: u32,
    token: Token,
}

impl Protocol {
    /// Makes a server without sessions, and starts its threads.
    ///
    /// # Errors
    /// There is no room for one of them.
    pub fn start() -> std::io::Result<Arc<Self>> {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
        let in_all = (files / OF_SESSION).min(SESSIONS_MAX);
        let limits = Limits { of_client: in_all / SHARE, in_all };
        let server = Arc::new(Self {
            table: Mutex::new(Table::new(limits)),
            watched: Mutex::default(),
            bells: Bells::default(),
            watcher: Watcher::new()?,
            slow: Slow::start()?,
            clients: AtomicUsize::new(0),
        });
        let watching = Arc::clone(&server);
        let watch = move || {
            watching.watcher.watch(|key| watching.found(key), |key| watching.rearm(key));
        };
        std::thread::Builder::new().name("watcher".into()).spawn(watch)?;
        Ok(server)
    }

    /// Returns the options of an endpoint that serves this.
    #[must_use]
    pub fn options() -> ServerOptions {
        // All clients are one user's.
        let clients_per_user_max = CLIENTS_MAX;
        ServerOptions {
            max_clients: CLIENTS_MAX,
            clients_per_user_max,
            ..protocol_server_options()
        }
    }

    /// Counts the clients.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::SeqCst)
    }

    /// Returns true if nothing of any client is left.
    #[cfg(any(debug_assertions, fuzzing))]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.table).is_empty() && lock(&self.watched).is_empty()
    }

    /// Closes everything that is left to be closed; there are no clients any more.
    pub fn finish(&self) {
        self.slow.end();
    }

    fn find(&self, caller: &Caller, session: u32) -> Result<Found<Served>, Errno> {
        let found = lock(&self.table).find(caller.client, session)?;
        if found.entry.session.is_released.load(Ordering::SeqCst) {
            self.put(found.entry);
            return Err(Errno::STALE);
        }
        Ok(found)
    }

    /// Lets go of a session. The last reference must not be dropped on a thread that others
    /// need.
    fn put(&self, session: Session) {
        if let Some(last) = Arc::into_inner(session) {
            self.slow.leave(move || drop(last));
        }
    }

    /// Answers the calls that wait at the session of that name. Returns a pause if the watcher is
    /// to be armed after it.
    fn found(&self, key: u64) -> Option<Duration> {
        let session = self.watched(key)?;
        let is_shared = lock(&self.table).is_shared(&session);
        let mut rung = Vec::new();
        let pause = session.session.found(&self.watcher, is_shared, &mut rung);
        self.ring(&session, rung);
        self.put(session);
        pause
    }

    /// Has the watcher look at the session of that name again.
    fn rearm(&self, key: u64) {
        if let Some(session) = self.watched(key) {
            session.session.rearm(&self.watcher);
            self.put(session);
        }
    }

    fn watched(&self, key: u64) -> Option<Session> {
        lock(&self.watched).get(&key).and_then(Weak::upgrade)
    }

    fn ring(&self, session: &Session, rung: Vec<ClientEvents>) {
        for ClientEvents { client, events } in rung {
            let number = lock(&self.table).number_of(client, session);
            number.into_iter().for_each(|number| self.bells.ring(client, number, events));
        }
    }

    fn take_in(&self, caller: &Caller, end: OwnedFd, is_sole: bool) -> Result<TakenIn, Errno> {
        lock(&self.table).has_room(caller.client)?;
        let kind = calls::kind_of(end.as_fd())?;
        let token = fresh_token()?;
        let key = self.watcher.fresh();
        let served = Served::new(Socket::new(end, kind, is_sole), key);
        self.watcher.add(served.socket.number(), key)?;
        let opened = lock(&self.table).open(caller.client, token, served);
        match opened {
            Ok(Opened { number, entry: session }) => {
                lock(&self.watched).insert(key, Arc::downgrade(&session));
                self.put(session);
                Ok(TakenIn { number, token })
            }
            Err(Refused { error, session: served }) => {
                self.slow.leave(move || drop(served));
                Err(error)
            }
        }
    }

    /// Uses the socket of a session of that kind.
    fn with_socket<R>(
        &self,
        caller: &Caller,
        session: u32,
        kind: Kind,
        work: impl FnOnce(&Served) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let session = self.find(caller, session)?.entry;
        let done = match session.session.socket.kind() == kind {
            true => work(&session.session),
            false => Err(Errno::OPNOTSUPP),
        };
        self.put(session);
        done
    }

    /// Serves a receive, of bytes or of a datagram, or has it wait.
    fn receive_by(
        &self,
        caller: &Caller,
        session: u32,
        flags: u32,
        size: u32,
        reply: ReceiveReply,
    ) {
        let refused = |reply: ReceiveReply, error| {
            ignore(reply.lend(number(error), &[], &Envelope::NONE));
        };
        let Found { entry: session, is_shared } = match self.find(caller, session) {
            Ok(found) => found,
            Err(error) => return refused(reply, error),
        };
        let served = &session.session;
        match served.enter() {
            Err(error) => refused(reply, error),
            Ok(_) if served.socket.kind() != reply.kind() => refused(reply, Errno::OPNOTSUPP),
            Ok(mut waiting) => {
                let how = ReceiveMode::of(flags);
                let (client, is_answered_first) = (caller.client, how.is_answered_first);
                let receiver = Receive { size: size as usize, client, is_answered_first, reply };
                let source = Source { data: &served.socket, is_shared };
                with_buffer(|buffer| waiting.queue.receive(receiver, how, source, buffer));
                served.arm(&mut waiting, &self.watcher);
            }
        }
        self.put(session);
    }

    /// Ends a session in which no client has a part any more.
    fn end(&self, session: &Session) {
        lock(&self.watched).remove(&session.session.key);
        self.watcher.remove(session.session.socket.number());
        let served = &session.session;
        let queue = &mut served.lock().queue;
        queue.end(Errno::BADF, &mut Vec::new());
        // Bytes that are left unread would reset the connection.
        with_buffer(|buffer| queue.settle(&served.socket, buffer));
    }

    /// Ends what clients wait for at a session in which they have no part any more.
    fn part(&self, clients: &[ClientId], session: &Session) {
        session.session.lock().queue.leave(clients);
    }
}

/// Returns a token that nobody can guess.
fn fresh_token() -> Result<Token, Errno> {
    let mut bytes = [0; 16];
    // 16 bytes come at once or not at all (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    let half = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
    Ok(Token([half(0), half(8)]))
}

fn status(result: Result<(), Errno>) -> u32 {
    result.map_or_else(number, |()| 0)
}
