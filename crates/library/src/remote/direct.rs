//! Connections with the protocol server on which the program's threads make calls themselves.
//!
//! They are of one group with the connection that has the bell (`idl/protocol.idl`, `group`): its
//! sessions have the same numbers here. Not here: that connection, and sessions
//! (`protocol_server`, `served`). Read `docs/understand/protocol-server.md` first.
//!
//! # Theory of operation
//! A call takes a connection that no other call has, and keeps it until its answer has come, also
//! while it waits for bytes. Nobody waits for a connection: where none is left, calls go by the
//! thread that has the bell.
//!
//! The sockets are in that thread's table (`sojourn_ipc::Connection::part_from_socket`). A call
//! needs its socket only to wake a server that has not heard of the connection for long; that
//! thread does it then. It also tells of the end of the server.
//!
//! A receive that waits takes bytes out of the session only after its answer (`ANSWER_FIRST`), so
//! that one without an answer has taken none, and the program goes on in the kernel. A datagram
//! comes with the answer, and may be lost with a server that dies.

use crate::host::Host;
use crate::process::library::Library;
use crate::remote::channel::{
    ANSWER_LIMIT, Answered, Channel, Failure, accept, arrived, room, scatter,
};
use crate::session::datagram::{Datagram, MessageRoom};
use core::ops::ControlFlow;
use rustix::io::{Errno, IoSliceMut};
use sojourn_ipc::Deadline;
use sojourn_ipc::rt::CallError;
use sojourn_session::protocol::receiving::{Receiver, Receiving};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The most connections of one process.
pub(crate) const DIRECT_MAX: usize = 4;

/// What has ended a wait in the program, before the answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A signal handler has been put off.
    Interrupted,
    TimedOut,
}

/// A connection on which one thread at a time makes calls.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) channel: Channel,
    /// The number of the connection with the bell.
    pub(crate) connection: u32,
}

/// The connections of a process.
#[derive(Debug, Default)]
pub(crate) struct Directs([Mutex<Option<Direct>>; DIRECT_MAX]);

/// A connection that a call has taken.
pub(crate) struct Taken<'a> {
    library: &'a Library,
    place: MutexGuard<'a, Option<Direct>>,
}

impl Directs {
    /// Takes a connection of which `connection` has the bell. `None`: all are in use, or there is
    /// none.
    pub(crate) fn take<'a>(&'a self, library: &'a Library, connection: u32) -> Option<Taken<'a>> {
        self.places().find_map(|mut place| {
            // One of a server that is gone is of no use any more.
            if place.as_ref().is_some_and(|direct| direct.connection != connection) {
                *place = None;
            }
            place.is_some().then_some(Taken { library, place })
        })
    }

    /// Keeps a new connection. Returns false if there are as many as there may be.
    pub(crate) fn keep(&self, direct: Direct) -> bool {
        let of_another = |kept: &Direct| kept.connection != direct.connection;
        let place = self.places().find(|place| place.as_ref().is_none_or(of_another));
        place.map(|mut place| *place = Some(direct)).is_some()
    }

    fn places(&self) -> impl Iterator<Item = MutexGuard<'_, Option<Direct>>> {
        self.0.iter().filter_map(|place| match place.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}

impl Taken<'_> {
    /// Makes a call. A connection whose server has not answered is dropped.
    pub(crate) fn ask<R>(&mut self, ask: impl FnOnce(&mut Channel) -> Answered<R>) -> Answered<R> {
        let library = self.library;
        self.use_it(|direct| library.with_stack(|| ask(&mut direct.channel)))
    }

    fn use_it<R>(&mut self, work: impl FnOnce(&mut Direct) -> Answered<R>) -> Answered<R> {
        let Some(direct) = self.place.as_mut() else { return Ok(Err(Failure::Gone)) };
        let done = work(direct);
        if done.is_err() {
            *self.place = None;
        }
        done
    }

    /// Receives into the buffers beyond their first `skip` bytes. Waits in the server for the first
    /// byte; `Break` if that has ended without any.
    pub(crate) fn receive(
        &mut self,
        session: u32,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        until: Deadline,
    ) -> Answered<ControlFlow<Ended, usize>> {
        let size = room(bufs, skip) as u32;
        let begin = |receiver: &mut Receiver, limit| receiver.begin(session, size, limit);
        self.wait_in_server(until, begin, |channel, receiving, limit| {
            let Channel { receiver, data, .. } = channel;
            let status = receiver.finish(receiving, data, limit)?;
            Ok(accept(status).map(|()| scatter(data, bufs, skip)))
        })
    }

    /// Receives a datagram. Waits for it in the server; `Break` if that has ended without one.
    pub(crate) fn receive_from(
        &mut self,
        session: u32,
        into: &mut MessageRoom<'_, '_>,
        until: Deadline,
    ) -> Answered<ControlFlow<Ended, Datagram>> {
        let size = room(into.bufs, 0) as u32;
        let begin = |receiver: &mut Receiver, limit| receiver.begin_from(session, size, limit);
        self.wait_in_server(until, begin, |channel, receiving, limit| {
            let Channel { receiver, data, control } = channel;
            let out = receiver.finish_from(receiving, control, data, limit)?;
            Ok(arrived(&out, control, data, into))
        })
    }

    /// Makes a call that waits in the server: `begin` sends the request, and `finish` takes the
    /// answer. `Break` if the wait has ended before.
    fn wait_in_server<R>(
        &mut self,
        until: Deadline,
        begin: impl FnOnce(&mut Receiver, Deadline) -> Result<Receiving, CallError>,
        finish: impl FnOnce(&mut Channel, Receiving, Deadline) -> Answered<R>,
    ) -> Answered<ControlFlow<Ended, R>> {
        let (library, limit) = (self.library, || Deadline::after(ANSWER_LIMIT));
        self.use_it(|direct| {
            let receiver = &mut direct.channel.receiver;
            let receiving = library.with_stack(|| begin(receiver, limit()))?;
            let ended = direct.wait(library.host(), &receiving, until)?;
            library.with_stack(|| {
                if ended.is_some() {
                    // Its answer comes after that of the call, which may have data by now.
                    direct.channel.receiver.cancel(&receiving, limit())?;
                }
                let answer = finish(&mut direct.channel, receiving, limit())?;
                Ok(match (ended, answer) {
                    (Some(ended), Err(Failure::Refused(Errno::INTR))) => {
                        Ok(ControlFlow::Break(ended))
                    }
                    (_, answer) => answer.map(ControlFlow::Continue),
                })
            })
        })
    }
}

impl Direct {
    /// Waits for the answer. Returns what has ended the wait before. Handlers are put off
    /// meanwhile, because one that jumps out of the wait (siglongjmp(3)) would leave a call behind
    /// that takes the next bytes; a handler that is put off ends the wait.
    fn wait(
        &mut self,
        host: &dyn Host,
        receiving: &Receiving,
        until: Deadline,
    ) -> Result<Option<Ended>, CallError> {
        let receiver = &mut self.channel.receiver;
        host.sleeps_on(Some(receiver.bell()));
        let come = receiver.wait(receiving, until, &|| host.is_wanted_outside());
        host.sleeps_on(None);
        match come {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(Ended::Interrupted)),
            Err(CallError::Timeout) => Ok(Some(Ended::TimedOut)),
            Err(error) => Err(error),
        }
    }
}
