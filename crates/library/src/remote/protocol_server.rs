//! The connection with the protocol server: the calls that this process makes there.
//!
//! The connection is a thread's that shares the descriptor table of the protocol thread's second
//! thread (`control::protocol::outside`): so it has no numbers that the program could name, the
//! descriptors that come and go cross no further table, and the server's bell can be slept for
//! there. Any thread of the process makes calls through that thread, one at a time, and a call
//! allocates nothing. No call but [`ProtocolServer::open`], [`ProtocolServer::release`] and
//! [`ProtocolServer::close`] waits for anything but the server's answer. Not here: sessions
//! (`served`). Read `docs/understand/protocol-server.md` first.

mod datagrams;
#[cfg(test)]
mod tests;

use crate::fds::slot::Slot;
use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::{Library, PerProcess, library};
use crate::remote::carry_server::{open_connection, open_socket};
use crate::remote::channel::{ANSWER_LIMIT, Answered, Channel, Failure, accept};
use crate::remote::direct::{DIRECT_MAX, Direct, Directs, Ended, Taken};
use crate::session::service::{ServiceNumber, ServicePart};
use core::ops::ControlFlow;
use core::sync::atomic::AtomicBool;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{RecvFlags, recv};
use sojourn_ipc::rt::CallError;
use sojourn_ipc::{ApartSocket, Deadline, Ending, Parted};
use sojourn_session::protocol::SUFFIX;
use sojourn_session::protocol::client::{ReadyT, TokenT, protocol_connect_options};
use sojourn_session::protocol::receiving::Receiver;
use sojourn_shm::aside::{Aside, Sides, pair};
use sojourn_shm::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::Mutex;

/// How long it may take for a call that waits for the session server: the longest of those, and
/// some more.
const SLOW_LIMIT: Duration = Duration::from_secs(20);

/// The protocol server as the threads of this process see it.
#[derive(Debug)]
pub(crate) struct ProtocolServer {
    library: &'static Library,
    /// `None`: the thread has ended.
    aside: Mutex<Option<Aside<Connected>>>,
    directs: Directs,
    /// No more connections for calls can be made.
    has_enough: AtomicBool,
    /// Held for a watch, from the look at what is wanted until the server has been told.
    watching: Mutex<()>,
}

/// The state of the thread that has the connection.
pub(crate) struct Connected {
    library: &'static Library,
    channel: Option<Channel>,
    /// The number of `channel`, or of the one before it.
    number: u32,
    /// The token of its group.
    group: [u64; 2],
    /// The sockets of the group's other connections, which calls make themselves.
    directs: Vec<DirectSocket>,
    /// Counts those ever made.
    made: u32,
    /// Rings when [`ProtocolServer::collect`] has something, or the server has gone.
    bell: Option<OwnedFd>,
    /// Duplicates of sockets that are to be handed over, by their sessions' slots.
    sockets: HashMap<Slot, OwnedFd>,
}

/// The socket of a connection on which calls are made directly.
#[derive(Debug)]
struct DirectSocket {
    number: u32,
    socket: ApartSocket,
    ending: Ending,
}

/// The process's connection, made with the first session that is to be handed over.
static SERVERS: PerProcess<Option<ProtocolServer>> = PerProcess::new();

/// Ends the thread. [`Engine::add_waker`] takes it as a callback without arguments.
fn end_thread() {
    if let Some(server) = library().protocol_server() {
        drop(lock(&server.aside).take());
    }
}

impl Library {
    /// Returns the protocol server, if a session has been handed over.
    pub(crate) fn protocol_server(&self) -> Option<&ProtocolServer> {
        SERVERS.of(self)?.as_ref()
    }

    /// Starts the thread if need be. The caller is the thread whose table is to be shared.
    pub(crate) fn start_protocol_server(
        &'static self,
        engine: &'static Engine,
    ) -> Option<&'static ProtocolServer> {
        let make = || {
            let Sides { aside, worker } = pair();
            let work = move || worker.serve(|| Some(Connected::new(self)));
            if !engine.spawn(self.host(), "sojourn-served", work) {
                return None;
            }
            engine.add_waker(end_thread);
            Some(ProtocolServer {
                library: self,
                aside: Mutex::new(Some(aside)),
                directs: Directs::default(),
                has_enough: AtomicBool::new(false),
                watching: Mutex::default(),
            })
        };
        SERVERS.of_or(self, || Box::new(make()))?.as_ref()
    }
}

impl ProtocolServer {
    fn call<R: Send>(
        &self,
        work: impl FnOnce(&mut Connected) -> Result<R, Failure> + Send,
    ) -> Result<R, Failure> {
        let answer = lock(&self.aside).as_mut().and_then(|aside| aside.call(work));
        answer.unwrap_or(Err(Failure::Gone))
    }

    /// Connects, if need be. The bell is added to `set`, an epoll set of the shared table, with
    /// `data`.
    pub(crate) fn connect(&self, set: i32, data: u64) -> Result<(), Failure> {
        self.call(|connected| connected.connect(set, data))?;
        self.has_enough.store(false, Ordering::SeqCst);
        // Without one, calls go by the thread.
        let number = self.call(|connected| Ok(connected.number))?;
        if self.directs.take(self.library, number).is_none() {
            self.add_direct(number);
        }
        Ok(())
    }

    /// Makes one more connection on which calls are made directly. Returns false if there are
    /// enough.
    fn add_direct(&self, connection: u32) -> bool {
        if self.has_enough.load(Ordering::Relaxed) {
            return false;
        }
        let made = self.call(|connected| connected.add_direct(connection));
        let is_kept = made.is_ok_and(|direct| self.directs.keep(direct));
        self.has_enough.store(!is_kept, Ordering::Relaxed);
        is_kept
    }

    /// Makes a call that waits for nothing but its answer: directly, or on the thread.
    fn ask_of<R: Send>(
        &self,
        number: ServiceNumber,
        ask: impl FnOnce(&mut Channel) -> Answered<R> + Send,
    ) -> Result<R, Failure> {
        match self.directs.take(self.library, number.connection) {
            Some(mut taken) => taken.ask(ask).unwrap_or_else(|_| {
                drop(taken);
                self.lose(number);
                Err(Failure::Unanswered)
            }),
            None => self.call(|connected| {
                connected.has(number)?;
                connected.ask(ask)
            }),
        }
    }

    /// Gives up a server that has not answered.
    fn lose(&self, number: ServiceNumber) {
        let lost = self.call(|connected| {
            connected.has(number)?;
            connected.lose();
            Ok(())
        });
        // Without the thread, or with another connection, it has been given up before.
        let _ = lost;
    }

    /// Keeps a socket for [`ProtocolServer::open`].
    pub(crate) fn keep(&self, slot: Slot, socket: OwnedFd) {
        let kept = self.call(move |connected| {
            connected.sockets.insert(slot, socket);
            Ok(())
        });
        // Without the thread the session stays in the kernel, where it is.
        let _ = kept;
    }

    /// Drops a socket that is not to be handed over any more.
    pub(crate) fn forget(&self, slot: Slot) {
        let forgotten = self.call(|connected| {
            connected.sockets.remove(&slot);
            Ok(())
        });
        // Without the thread there is nothing to forget.
        let _ = forgotten;
    }

    /// Hands over the socket that is kept for a session.
    pub(crate) fn open(&self, slot: Slot) -> Result<ServicePart, Failure> {
        self.call(|connected| {
            let socket = connected.sockets.remove(&slot).ok_or(Failure::Gone)?;
            let connection = connected.number;
            let opened = connected.ask(|channel| {
                let opened = channel.within(SLOW_LIMIT).open(Some(socket.as_fd()), true)?;
                Ok(accept(opened.ret).map(|()| opened))
            })?;
            let session = opened.session;
            let number = ServiceNumber { connection, session };
            Ok(ServicePart { number, token: opened.token })
        })
    }

    /// Sends as much as there is room for, without the first `skip` bytes.
    pub(crate) fn send(
        &self,
        number: ServiceNumber,
        bufs: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<usize, Failure> {
        self.ask_of(number, |channel| channel.send(number.session, bufs, skip))
    }

    /// Receives what is there, into the buffers beyond their first `skip` bytes.
    pub(crate) fn receive(
        &self,
        number: ServiceNumber,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        peek: bool,
    ) -> Result<usize, Failure> {
        self.ask_of(number, |channel| channel.receive(number.session, bufs, skip, peek))
    }

    /// Receives like [`ProtocolServer::receive`], and waits in the server for the first byte;
    /// `Break` if that has ended without any. `None`: no connection is left for that.
    pub(crate) fn receive_waiting(
        &self,
        number: ServiceNumber,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        until: Deadline,
    ) -> Option<Result<ControlFlow<Ended, usize>, Failure>> {
        self.wait_on(number, |taken| taken.receive(number.session, bufs, skip, until))
    }

    /// Makes a call that waits in the server, on a connection that it takes for that; `None`: none
    /// is left.
    fn wait_on<R>(
        &self,
        number: ServiceNumber,
        ask: impl FnOnce(&mut Taken<'_>) -> Answered<R>,
    ) -> Option<Result<R, Failure>> {
        let taken = self.directs.take(self.library, number.connection);
        let taken = taken.or_else(|| {
            let is_made = self.add_direct(number.connection);
            is_made.then(|| self.directs.take(self.library, number.connection)).flatten()
        });
        let mut taken = taken?;
        Some(ask(&mut taken).unwrap_or_else(|error| {
            drop(taken);
            self.lose(number);
            // A call without an answer has taken no bytes (`ANSWER_FIRST`). Of a server that has
            // not answered in time, but goes on, nobody knows if it will.
            Err(match error {
                CallError::Disconnected(_) => Failure::Gone,
                _ => Failure::Unanswered,
            })
        }))
    }

    /// Counts the bytes that could be received, up to those of one call.
    pub(crate) fn queued(&self, number: ServiceNumber) -> Result<usize, Failure> {
        self.ask_of(number, |channel| channel.queued(number.session))
    }

    /// Returns all events that hold.
    pub(crate) fn ready(&self, number: ServiceNumber) -> Result<u32, Failure> {
        self.ask_of(number, |channel| channel.ready(number.session))
    }

    /// Has the bell rung when one of the events `armed` holds. They are read when it is this call's
    /// turn, so that of two threads' calls the later one watches for what both want.
    pub(crate) fn watch(&self, number: ServiceNumber, armed: &AtomicU32) -> Result<(), Failure> {
        let _turn = lock(&self.watching);
        let events = armed.load(Ordering::SeqCst);
        self.ask_of(number, |channel| channel.watch(number.session, events))
    }

    /// Returns the sessions of which a watched event has happened; see [`Connected::collect`].
    pub(crate) fn collect(&self) -> Result<Vec<ServiceNumber>, Failure> {
        self.call(Connected::collect)
    }

    /// Has the session put into the kernel for good, and gives up this process's part in it: with
    /// the last part the server closes its duplicate before it answers, so that the descriptor has
    /// no other holder when it is offered again.
    pub(crate) fn release(&self, number: ServiceNumber) -> Result<(), Failure> {
        self.call(|connected| {
            connected.has(number)?;
            // The program has a descriptor of its own; the one of the answer is closed here.
            connected.ask(|channel| {
                let released = channel.within(SLOW_LIMIT).release(number.session)?.ret;
                let closed = channel.within(SLOW_LIMIT).close(number.session)?;
                Ok(accept(closed).and_then(|()| accept(released)))
            })
        })
    }

    /// Gives up this process's part in the session.
    pub(crate) fn close(&self, number: ServiceNumber) -> Result<(), Failure> {
        self.call(|connected| {
            connected.has(number)?;
            connected.ask(|channel| Ok(accept(channel.within(SLOW_LIMIT).close(number.session)?)))
        })
    }

    /// Takes part in a session that another process has opened.
    pub(crate) fn attach(&self, token: TokenT) -> Result<ServiceNumber, Failure> {
        self.call(|connected| {
            let session = connected.ask(|channel| {
                let attached = channel.within(SLOW_LIMIT).attach(&token)?;
                Ok(accept(attached.ret).map(|()| attached.session))
            })?;
            Ok(ServiceNumber { connection: connected.number, session })
        })
    }
}

impl core::fmt::Debug for Connected {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Connected").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Connected {
    fn new(library: &'static Library) -> Self {
        Self {
            library,
            channel: None,
            number: 0,
            group: [0; 2],
            directs: Vec::new(),
            made: 0,
            bell: None,
            sockets: HashMap::new(),
        }
    }

    fn connect(&mut self, set: i32, data: u64) -> Result<(), Failure> {
        if self.channel.is_some() {
            return Ok(());
        }
        self.lose();
        let mut channel = Channel::new(open(self.library)?);
        let bell = channel.within(ANSWER_LIMIT).bell().map_err(|_| Failure::Gone)?;
        accept(bell.ret)?;
        let bell = bell.bell.ok_or(Failure::Gone)?;
        let group = channel.within(ANSWER_LIMIT).group().map_err(|_| Failure::Gone)?;
        accept(group.ret)?;
        let set = crate::host::kernel::at(set).map_err(Failure::Refused)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(set, &bell, EventData::new_u64(data), flags).map_err(Failure::Refused)?;
        self.number = self.number.wrapping_add(1);
        self.group = group.group.half;
        (self.channel, self.bell) = (Some(channel), Some(bell));
        Ok(())
    }

    /// Makes a connection of the group of `connection`, of which the socket stays here.
    fn add_direct(&mut self, connection: u32) -> Result<Direct, Failure> {
        if self.channel.is_none() || self.number != connection || self.directs.len() >= DIRECT_MAX {
            return Err(Failure::Gone);
        }
        let mut receiver = open(self.library)?;
        let group = TokenT { half: self.group };
        let deadline = Deadline::after(ANSWER_LIMIT);
        accept(receiver.client.with_deadline(deadline).join(&group).map_err(|_| Failure::Gone)?)?;
        let transport = receiver.client.transport();
        transport.set_wait(self.library.policy.wait());
        self.made = self.made.wrapping_add(1);
        let (library, number) = (self.library, self.made);
        let parted = transport.part_from_socket(Box::new(move || wake_server(library, number)));
        let Parted { socket, ending } = parted.ok_or(Failure::Gone)?;
        self.directs.push(DirectSocket { number, socket, ending });
        Ok(Direct { channel: Channel::new(receiver), connection })
    }

    /// Gives the server up, and wakes the calls that wait for it.
    fn lose(&mut self) {
        (self.channel, self.bell) = (None, None);
        for direct in self.directs.drain(..) {
            direct.ending.end();
        }
    }

    /// Returns an error if the number is of a connection that is lost.
    fn has(&self, number: ServiceNumber) -> Result<(), Failure> {
        let is_it = self.channel.is_some() && number.connection == self.number;
        if is_it { Ok(()) } else { Err(Failure::Gone) }
    }

    /// Takes what one answer has room for, with one look at the bell: how often there is more is
    /// the server's decision, so it rings again for the rest, and other work has its turn before.
    fn collect(&mut self) -> Result<Vec<ServiceNumber>, Failure> {
        if let Some(bell) = &self.bell {
            // Between two collects the bell rings once. If the server is gone, the call says so.
            let _ = recv(bell, &mut [0; 64], RecvFlags::DONTWAIT);
        }
        let connection = self.number;
        let some = self.ask(|channel| Ok(Ok(channel.within(ANSWER_LIMIT).collect()?)))?;
        let number = |one: ReadyT| ServiceNumber { connection, session: one.session };
        Ok(some.into_iter().map(number).collect())
    }

    /// Makes a call. A server that does not answer in time is given up, and counts as gone.
    fn ask<R>(&mut self, ask: impl FnOnce(&mut Channel) -> Answered<R>) -> Result<R, Failure> {
        let channel = self.channel.as_mut().ok_or(Failure::Gone)?;
        ask(channel).unwrap_or_else(|_| {
            self.lose();
            Err(Failure::Unanswered)
        })
    }
}

/// Connects to the protocol server.
fn open(library: &Library) -> Result<Receiver, Failure> {
    let socket = open_socket(library, SUFFIX).ok_or(Failure::Gone)?;
    let connection = open_connection(socket, protocol_connect_options()).ok_or(Failure::Gone)?;
    Receiver::bind(connection, Deadline::after(ANSWER_LIMIT)).map_err(|_| Failure::Gone)
}

/// Wakes the server for a connection whose socket the thread has.
fn wake_server(library: &Library, number: u32) {
    let Some(server) = library.protocol_server() else { return };
    let woken = server.call(|connected| {
        let direct = connected.directs.iter().find(|direct| direct.number == number);
        direct.map(|direct| direct.socket.wake_server()).ok_or(Failure::Gone)
    });
    // A connection that is gone is told of its end.
    let _ = woken;
}
