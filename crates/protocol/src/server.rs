//! The server object: the operations of the interface.
//!
//! # Theory of operation
//! Serving threads take requests, and answer most at once. A call that waits stays in its session's
//! queue, and the watcher's thread answers it later. Work that may take a while (going home,
//! closing) is left to the thread for slow work. So no thread waits for a client or for a peer. The
//! table has one lock, which no thread holds while it uses a socket; each queue has its session's
//! lock. Neither is taken while the other is held.
//!
//! Not here: the process around it (`process`). Read `docs/understand/protocol-server.md` first.

use crate::bells::Bells;
use crate::calls::{self, Socket};
use crate::queue::{ReceiveMode, ignore, number};
use crate::session::{Receive, Served, with_buffer};
use crate::slow::Slow;
use crate::table::{Entry, Limits, Table};
use crate::watcher::Watcher;
use core::sync::atomic::{AtomicUsize, Ordering};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use sojourn_ipc::rt::{Caller, Credentials, Fault};
use sojourn_ipc::{ClientId, ServerOptions};
use sojourn_session::protocol::server::{
    ProtocolAttachDeferredReply, ProtocolAttachOut, ProtocolBellOut, ProtocolCloseDeferredReply,
    ProtocolGetOptionDeferredReply, ProtocolGetOptionOut, ProtocolGroupOut, ProtocolOpenOut,
    ProtocolReceiveDeferredReply, ProtocolReleaseDeferredReply, ProtocolReleaseOut,
    ProtocolSendOut, ProtocolServer, ProtocolSetOptionDeferredReply, ProtocolShutdownDeferredReply,
    ProtocolWaitDeferredReply, ProtocolWaitOut, ReadyT, TokenT, protocol_server_options,
};
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

type Session = Arc<Entry<Served>>;

/// The protocol server.
#[derive(Debug)]
pub struct Protocol {
    table: Mutex<Table<Served>>,
    /// Sessions by the names that the watcher has for them.
    watched: Mutex<HashMap<u64, Weak<Entry<Served>>>>,
    bells: Bells,
    watcher: Watcher,
    slow: Slow,
    clients: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let watch = move || watching.watcher.watch(|key| watching.found(key));
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

    /// Closes everything that is left to be closed; there are no clients any more.
    pub fn finish(&self) {
        self.slow.end();
    }

    fn find(&self, caller: &Caller, session: u32) -> Result<(Session, bool), Errno> {
        let (found, is_shared) = lock(&self.table).find(caller.client, session)?;
        if found.session.is_released.load(Ordering::SeqCst) {
            self.put(found);
            return Err(Errno::STALE);
        }
        Ok((found, is_shared))
    }

    /// Lets go of a session. The last reference must not be dropped on a thread that others
    /// need.
    fn put(&self, session: Session) {
        if let Some(last) = Arc::into_inner(session) {
            self.slow.leave(move || drop(last));
        }
    }

    /// Answers the calls that wait at the session of that name.
    fn found(&self, key: u64) {
        let Some(session) = lock(&self.watched).get(&key).and_then(Weak::upgrade) else { return };
        let is_shared = lock(&self.table).is_shared(&session);
        let mut rung = Vec::new();
        session.session.found(&self.watcher, is_shared, &mut rung);
        self.ring(&session, rung);
        self.put(session);
    }

    fn ring(&self, session: &Session, rung: Vec<(ClientId, u32)>) {
        for (client, events) in rung {
            let number = lock(&self.table).number_of(client, session);
            number.into_iter().for_each(|number| self.bells.ring(client, number, events));
        }
    }

    fn take_in(
        &self,
        caller: &Caller,
        end: OwnedFd,
        is_sole: bool,
    ) -> Result<(u32, [u64; 2]), Errno> {
        lock(&self.table).has_room(caller.client)?;
        calls::check(end.as_fd())?;
        let token = fresh_token()?;
        let key = self.watcher.fresh();
        let served = Served::new(Socket::new(end, is_sole), key);
        self.watcher.add(served.socket.number(), key)?;
        let opened = lock(&self.table).open(caller.client, token, served);
        match opened {
            Ok((number, session)) => {
                lock(&self.watched).insert(key, Arc::downgrade(&session));
                self.put(session);
                Ok((number, token))
            }
            Err((error, served)) => {
                self.slow.leave(move || drop(served));
                Err(error)
            }
        }
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

    /// Ends a client's watch of a session.
    fn part(&self, client: ClientId, session: &Session) {
        session.session.lock().queue.watch(client, 0);
    }
}

/// Returns a token that nobody can guess.
fn fresh_token() -> Result<[u64; 2], Errno> {
    let mut bytes = [0; 16];
    // 16 bytes come at once or not at all (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    let half = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
    Ok([half(0), half(8)])
}

fn status(result: Result<(), Errno>) -> u32 {
    result.map_or_else(number, |()| 0)
}

impl ProtocolServer for Protocol {
    fn open(
        &self,
        caller: &Caller,
        end: Option<OwnedFd>,
        is_sole: bool,
    ) -> Result<ProtocolOpenOut, Fault> {
        let opened = end.ok_or(Errno::BADF).and_then(|end| self.take_in(caller, end, is_sole));
        Ok(match opened {
            Ok((session, half)) => ProtocolOpenOut { ret: 0, session, token: TokenT { half } },
            Err(error) => {
                ProtocolOpenOut { ret: number(error), session: 0, token: TokenT { half: [0; 2] } }
            }
        })
    }

    fn attach(&self, caller: &Caller, token: TokenT, reply: ProtocolAttachDeferredReply) {
        let refused = |error| ProtocolAttachOut { ret: number(error), session: 0 };
        match lock(&self.table).attach(caller.client, &token) {
            Ok(session) => ignore(reply.send(ProtocolAttachOut { ret: 0, session })),
            // A session that was closed may be on its way into the kernel, where the caller goes on
            // after this answer.
            Err(error) => self.slow.leave(move || ignore(reply.send(refused(error)))),
        }
    }

    fn send(&self, caller: &Caller, session: u32, data: &[u8]) -> Result<ProtocolSendOut, Fault> {
        let sent = self.find(caller, session).and_then(|(session, _)| {
            session.session.settle();
            let sent = session.session.socket.send(data);
            self.put(session);
            sent
        });
        Ok(match sent {
            Ok(sent) => ProtocolSendOut { ret: 0, sent: sent as u32 },
            Err(error) => ProtocolSendOut { ret: number(error), sent: 0 },
        })
    }

    fn receive(
        &self,
        caller: &Caller,
        session: u32,
        flags: u32,
        size: u32,
        reply: ProtocolReceiveDeferredReply,
    ) {
        let (session, is_shared) = match self.find(caller, session) {
            Ok(found) => found,
            Err(error) => return ignore(reply.lend(number(error), &[])),
        };
        let served = &session.session;
        match served.enter() {
            Err(error) => ignore(reply.lend(number(error), &[])),
            Ok(mut waiting) => {
                let how = ReceiveMode::of(flags);
                let (client, is_answered_first) = (caller.client, how.is_answered_first);
                let receiver = Receive { size: size as usize, client, is_answered_first, reply };
                let data = (&served.socket, is_shared);
                with_buffer(|buffer| waiting.queue.receive(receiver, how, data, buffer));
                served.arm(&mut waiting, &self.watcher);
            }
        }
        self.put(session);
    }

    fn wait(&self, caller: &Caller, session: u32, events: u32, reply: ProtocolWaitDeferredReply) {
        let refused = |error| ProtocolWaitOut { ret: number(error), ready: 0 };
        let (session, _) = match self.find(caller, session) {
            Ok(found) => found,
            Err(error) => return ignore(reply.send(refused(error))),
        };
        let served = &session.session;
        match served.enter() {
            Err(error) => ignore(reply.send(refused(error))),
            Ok(mut waiting) => {
                waiting.queue.wait(reply, events, &served.socket);
                served.arm(&mut waiting, &self.watcher);
            }
        }
        self.put(session);
    }

    fn bell(&self, caller: &Caller) -> Result<ProtocolBellOut, Fault> {
        Ok(match self.bells.make(caller.client) {
            Ok(bell) => ProtocolBellOut { ret: 0, bell: Some(bell) },
            Err(error) => ProtocolBellOut { ret: number(error), bell: None },
        })
    }

    fn watch(&self, caller: &Caller, session: u32, events: u32) -> Result<u32, Fault> {
        let client = lock(&self.table).first_of(caller.client);
        if !self.bells.has(client) {
            return Ok(number(Errno::NXIO));
        }
        let (found, is_shared) = match self.find(caller, session) {
            Ok(found) => found,
            Err(error) => return Ok(number(error)),
        };
        let served = &found.session;
        let mut rung = Vec::new();
        let done = served.enter().map(|mut waiting| {
            waiting.queue.watch(client, events);
            served.serve(&mut waiting, &self.watcher, is_shared, &mut rung);
        });
        self.ring(&found, rung);
        self.put(found);
        Ok(status(done))
    }

    fn collect(&self, caller: &Caller) -> Result<Vec<ReadyT>, Fault> {
        Ok(self.bells.collect(caller.client))
    }

    fn shutdown(
        &self,
        caller: &Caller,
        session: u32,
        how: u32,
        reply: ProtocolShutdownDeferredReply,
    ) {
        match self.find(caller, session) {
            Err(error) => ignore(reply.send(number(error))),
            Ok((session, _)) => self.slow.leave(move || {
                ignore(reply.send(status(session.session.socket.shutdown(how))));
            }),
        }
    }

    fn set_option(
        &self,
        caller: &Caller,
        session: u32,
        level: i32,
        name: i32,
        value: Vec<u8>,
        reply: ProtocolSetOptionDeferredReply,
    ) {
        match self.find(caller, session) {
            Err(error) => ignore(reply.send(number(error))),
            Ok((session, _)) => self.slow.leave(move || {
                let set = session.session.socket.set_option((level, name), &value);
                ignore(reply.send(status(set)));
            }),
        }
    }

    fn get_option(
        &self,
        caller: &Caller,
        session: u32,
        level: i32,
        name: i32,
        size: u32,
        reply: ProtocolGetOptionDeferredReply,
    ) {
        let refused = |error| ProtocolGetOptionOut { ret: number(error), value: Vec::new() };
        match self.find(caller, session) {
            Err(error) => ignore(reply.send(refused(error))),
            Ok((session, _)) => self.slow.leave(move || {
                let value = session.session.socket.get_option((level, name), size as usize);
                let answer = |value| ProtocolGetOptionOut { ret: 0, value };
                ignore(reply.send(value.map_or_else(refused, answer)));
            }),
        }
    }

    fn release(&self, caller: &Caller, session: u32, reply: ProtocolReleaseDeferredReply) {
        let refused = |error| ProtocolReleaseOut { ret: number(error), end: None };
        let (session, _) = match lock(&self.table).find(caller.client, session) {
            Ok(found) => found,
            Err(error) => return ignore(reply.send(refused(error))),
        };
        let served = &session.session;
        // SYNC: before the queue's lock; pairs with `Served::enter`, which takes the lock and then
        // looks here.
        if !served.is_released.swap(true, Ordering::SeqCst) {
            let mut rung = Vec::new();
            served.lock().queue.end(Errno::STALE, &mut rung);
            self.ring(&session, rung);
        }
        self.slow.leave(move || {
            let served = &session.session;
            let end = served.go_home().and_then(|()| served.socket.duplicate());
            let out = |end| ProtocolReleaseOut { ret: 0, end: Some(end) };
            if end.is_err() {
                // The session is served as before.
                served.is_released.store(false, Ordering::SeqCst);
            }
            ignore(reply.send(end.map_or_else(refused, out)));
        });
    }

    fn close(&self, caller: &Caller, session: u32, reply: ProtocolCloseDeferredReply) {
        let client = lock(&self.table).first_of(caller.client);
        self.bells.forget(client, session);
        let (session, is_last) = match lock(&self.table).close(caller.client, session) {
            Ok(closed) => closed,
            Err(error) => return ignore(reply.send(number(error))),
        };
        match is_last {
            true => self.end(&session),
            false => self.part(client, &session),
        }
        self.slow.leave(move || {
            drop(session);
            ignore(reply.send(0));
        });
    }

    fn cancel(&self, caller: &Caller, session: u32) -> Result<u32, Fault> {
        let found = lock(&self.table).find(caller.client, session);
        Ok(status(found.map(|(session, _)| {
            session.session.lock().queue.cancel(caller.client);
            self.put(session);
        })))
    }

    fn group(&self, caller: &Caller) -> Result<ProtocolGroupOut, Fault> {
        let made = fresh_token().and_then(|fresh| lock(&self.table).group(caller.client, fresh));
        Ok(match made {
            Ok(half) => ProtocolGroupOut { ret: 0, group: TokenT { half } },
            Err(error) => ProtocolGroupOut { ret: number(error), group: TokenT { half: [0; 2] } },
        })
    }

    fn join(&self, caller: &Caller, group: &TokenT) -> Result<u32, Fault> {
        Ok(status(lock(&self.table).join(caller.client, group)))
    }

    fn client_connected(&self, _: ClientId, _: Credentials) {
        self.clients.fetch_add(1, Ordering::SeqCst);
    }

    fn client_gone(&self, client: ClientId) {
        self.bells.gone(client);
        let gone = lock(&self.table).gone(client);
        for (session, is_last) in gone {
            match is_last {
                true => self.end(&session),
                false => self.part(client, &session),
            }
            self.put(session);
        }
        self.clients.fetch_sub(1, Ordering::SeqCst);
    }
}
