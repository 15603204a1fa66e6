//! The connection with the protocol server: the calls that this process makes there.
//!
//! The connection is a thread's that shares the descriptor table of the protocol thread's second
//! thread (`control::protocol::outside`): so it has no numbers that the program could name, the
//! descriptors that come and go cross no further table, and the server's bell can be slept for
//! there. Any thread of the process makes calls through that thread, one at a time, and a call
//! allocates nothing. No call but [`ProtocolServer::open`], [`ProtocolServer::release`] and
//! [`ProtocolServer::close`] waits for anything but the server's answer. Not here: sessions
//! (`served`). Read `docs/understand/protocol-server.md` first.

use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::{Library, PerProcess, library};
use crate::remote::carry_server::{open_connection, open_socket};
use crate::session::service::ServiceNumber;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{RecvFlags, recv};
use sojourn_ipc::rt::CallError;
use sojourn_ipc::{Connection, Deadline};
use sojourn_session::protocol::SUFFIX;
use sojourn_session::protocol::client::{
    DATA_MAX, DONT_WAIT, PEEK, ProtocolClient, READY_MAX, ReadyT, TokenT, protocol_connect_options,
};
use sojourn_shm::aside::{Aside, pair};
use sojourn_shm::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::Mutex;

/// How long the server may take for a call that waits for nothing.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long it may take for a call that waits for the session server: the longest of those, and
/// some more.
const SLOW_LIMIT: Duration = Duration::from_secs(20);

/// The reason why a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An error number of the session's, or the server's.
    Refused(Errno),
    /// There is no server, or it had gone before the call.
    Gone,
    /// The server has gone, or has not answered in time: nobody knows if the call was done.
    Unanswered,
}

/// The protocol server as the threads of this process see it.
#[derive(Debug)]
pub(crate) struct ProtocolServer {
    /// `None`: the thread has ended.
    aside: Mutex<Option<Aside<Connected>>>,
}

/// The state of the thread that has the connection.
pub(crate) struct Connected {
    client: Option<ProtocolClient<Connection>>,
    /// The number of `client`, or of the one before it.
    number: u32,
    /// Rings when [`ProtocolServer::collect`] has something, or the server has gone.
    bell: Option<OwnedFd>,
    /// Duplicates of sockets that are to be handed over, by their sessions' slots.
    sockets: HashMap<u32, OwnedFd>,
    /// The bytes received last, or those of a send from several buffers.
    data: Vec<u8>,
}

/// The process's connection, made with the first session that is to be handed over.
static SERVERS: PerProcess<Option<ProtocolServer>> = PerProcess::new();

/// Ends the thread.
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
        let made = SERVERS.of_or(self, || {
            let (aside, worker) = pair();
            let work = move || worker.serve(|| Some(Connected::new()));
            if !engine.spawn(self.host(), "sojourn-served", work) {
                return None;
            }
            engine.add_waker(end_thread);
            Some(ProtocolServer { aside: Mutex::new(Some(aside)) })
        });
        made?.as_ref()
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
        self.call(|connected| connected.connect(set, data))
    }

    /// Keeps a socket for [`ProtocolServer::open`].
    pub(crate) fn keep(&self, slot: u32, socket: OwnedFd) {
        let kept = self.call(move |connected| {
            connected.sockets.insert(slot, socket);
            Ok(())
        });
        // Without the thread the session stays in the kernel, where it is.
        let _ = kept;
    }

    /// Drops a socket that is not to be handed over any more.
    pub(crate) fn forget(&self, slot: u32) {
        let forgotten = self.call(|connected| {
            connected.sockets.remove(&slot);
            Ok(())
        });
        // Without the thread there is nothing to forget.
        let _ = forgotten;
    }

    /// Hands over the socket that is kept for a session.
    pub(crate) fn open(&self, slot: u32) -> Result<(ServiceNumber, [u64; 2]), Failure> {
        self.call(|connected| {
            let socket = connected.sockets.remove(&slot).ok_or(Failure::Gone)?;
            let connection = connected.number;
            let opened =
                connected.ask(SLOW_LIMIT, |client| client.open(Some(socket.as_fd()), true));
            let opened = opened?;
            accept(opened.ret)?;
            let session = opened.session;
            Ok((ServiceNumber { connection, session }, opened.token.half))
        })
    }

    /// Sends as much as there is room for, without the first `skip` bytes.
    pub(crate) fn send(
        &self,
        number: ServiceNumber,
        bufs: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<usize, Failure> {
        self.call(|connected| {
            let mut data = core::mem::take(&mut connected.data);
            let part = match bufs {
                [one] => &one[skip.min(one.len())..],
                _ => gather(bufs, skip, &mut data),
            };
            let part = &part[..part.len().min(DATA_MAX as usize)];
            let sent = connected.ask_of(number, |client| client.send(number.session, part));
            connected.data = data;
            let sent = sent?;
            accept(sent.ret)?;
            Ok(sent.sent as usize)
        })
    }

    /// Receives what is there, into the buffers beyond their first `skip` bytes.
    pub(crate) fn receive(
        &self,
        number: ServiceNumber,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        peek: bool,
    ) -> Result<usize, Failure> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        let size = (size - skip.min(size)).min(DATA_MAX as usize);
        self.call(|connected| {
            let flags = DONT_WAIT | if peek { PEEK } else { 0 };
            let mut data = core::mem::take(&mut connected.data);
            let status = connected.ask_of(number, |client| {
                client.receive(number.session, flags, size as u32, &mut data)
            });
            let got = status.and_then(accept).map(|()| scatter(&data, bufs, skip));
            connected.data = data;
            got
        })
    }

    /// Counts the bytes that could be received, up to those of one call.
    pub(crate) fn queued(&self, number: ServiceNumber) -> Result<usize, Failure> {
        self.call(|connected| {
            let mut data = core::mem::take(&mut connected.data);
            let status = connected.ask_of(number, |client| {
                client.receive(number.session, DONT_WAIT | PEEK, DATA_MAX, &mut data)
            });
            let queued = data.len();
            connected.data = data;
            status.and_then(accept).map(|()| queued)
        })
    }

    /// Returns all events that hold.
    pub(crate) fn ready(&self, number: ServiceNumber) -> Result<u32, Failure> {
        self.call(|connected| {
            let ready = connected.ask_of(number, |client| client.wait(number.session, 0))?;
            accept(ready.ret)?;
            Ok(ready.ready)
        })
    }

    /// Has the bell rung when one of the events `armed` holds. They are read when it is this call's
    /// turn, so that of two threads' calls the later one watches for what both want.
    pub(crate) fn watch(&self, number: ServiceNumber, armed: &AtomicU32) -> Result<(), Failure> {
        self.call(|connected| {
            let events = armed.load(Ordering::SeqCst);
            accept(connected.ask_of(number, |client| client.watch(number.session, events))?)
        })
    }

    /// Returns the watched events that have happened, and the connection that they are of.
    pub(crate) fn collect(&self) -> Result<(u32, Vec<ReadyT>), Failure> {
        self.call(|connected| {
            if let Some(bell) = &connected.bell {
                let flags = RecvFlags::DONTWAIT;
                let mut rings = [0; 64];
                while recv(bell, &mut rings, flags).is_ok_and(|(len, _)| len > 0) {}
            }
            let mut all = Vec::new();
            loop {
                let some = connected.ask(ANSWER_LIMIT, ProtocolClient::collect)?;
                let is_last = some.len() < READY_MAX as usize;
                all.extend(some);
                if is_last {
                    return Ok((connected.number, all));
                }
            }
        })
    }

    /// Has the session put into the kernel for good, and gives up this process's part in it: with
    /// the last part the server closes its duplicate before it answers, so that the descriptor has
    /// no other holder when it is offered again.
    pub(crate) fn release(&self, number: ServiceNumber) -> Result<(), Failure> {
        self.call(|connected| {
            connected.has(number)?;
            // The program has a descriptor of its own; the one of the answer is closed here.
            let released = connected.ask(SLOW_LIMIT, |client| client.release(number.session))?.ret;
            accept(connected.ask(SLOW_LIMIT, |client| client.close(number.session))?)?;
            accept(released)
        })
    }

    /// Gives up this process's part in the session.
    pub(crate) fn close(&self, number: ServiceNumber) -> Result<(), Failure> {
        self.call(|connected| {
            connected.has(number)?;
            accept(connected.ask(SLOW_LIMIT, |client| client.close(number.session))?)
        })
    }

    /// Takes part in a session that another process has opened.
    pub(crate) fn attach(&self, token: [u64; 2]) -> Result<ServiceNumber, Failure> {
        self.call(|connected| {
            let token = TokenT { half: token };
            let attached = connected.ask(SLOW_LIMIT, |client| client.attach(&token))?;
            accept(attached.ret)?;
            Ok(ServiceNumber { connection: connected.number, session: attached.session })
        })
    }
}

impl core::fmt::Debug for Connected {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Connected").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Connected {
    fn new() -> Self {
        let data = Vec::with_capacity(DATA_MAX as usize);
        Self { client: None, number: 0, bell: None, sockets: HashMap::new(), data }
    }

    fn connect(&mut self, set: i32, data: u64) -> Result<(), Failure> {
        if self.client.is_some() {
            return Ok(());
        }
        let socket = open_socket(library(), SUFFIX).ok_or(Failure::Gone)?;
        let connection =
            open_connection(socket, protocol_connect_options()).ok_or(Failure::Gone)?;
        let mut client = ProtocolClient::bind_by(connection, Deadline::after(ANSWER_LIMIT))
            .map_err(|_| Failure::Gone)?;
        let made = client.with_deadline(Deadline::after(ANSWER_LIMIT)).bell();
        let made = made.map_err(|_| Failure::Gone)?;
        accept(made.ret)?;
        let bell = made.bell.ok_or(Failure::Gone)?;
        let set = crate::host::kernel::at(set).map_err(Failure::Refused)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(set, &bell, EventData::new_u64(data), flags).map_err(Failure::Refused)?;
        self.number = self.number.wrapping_add(1);
        (self.client, self.bell) = (Some(client), Some(bell));
        Ok(())
    }

    /// Returns an error if the number is of a connection that is lost.
    fn has(&self, number: ServiceNumber) -> Result<(), Failure> {
        let is_it = self.client.is_some() && number.connection == self.number;
        if is_it { Ok(()) } else { Err(Failure::Gone) }
    }

    fn ask_of<R>(
        &mut self,
        number: ServiceNumber,
        ask: impl FnOnce(&mut ProtocolClient<Connection>) -> Result<R, CallError>,
    ) -> Result<R, Failure> {
        self.has(number)?;
        self.ask(ANSWER_LIMIT, ask)
    }

    /// Makes a call. A server that does not answer in time is given up, and counts as gone.
    fn ask<R>(
        &mut self,
        limit: Duration,
        ask: impl FnOnce(&mut ProtocolClient<Connection>) -> Result<R, CallError>,
    ) -> Result<R, Failure> {
        let client = self.client.as_mut().ok_or(Failure::Gone)?;
        ask(client.with_deadline(Deadline::after(limit))).map_err(|_| {
            (self.client, self.bell) = (None, None);
            Failure::Unanswered
        })
    }
}

fn accept(status: u32) -> Result<(), Failure> {
    match status {
        0 => Ok(()),
        number => Err(Failure::Refused(Errno::from_raw_os_error(number.cast_signed()))),
    }
}

/// Copies the buffers' bytes beyond the first `skip`, as many as one call takes, into `data`.
fn gather<'a>(bufs: &[IoSlice<'_>], mut skip: usize, data: &'a mut Vec<u8>) -> &'a [u8] {
    data.clear();
    for buf in bufs {
        let part = &buf[skip.min(buf.len())..];
        skip -= buf.len() - part.len();
        let room = DATA_MAX as usize - data.len();
        data.extend_from_slice(&part[..part.len().min(room)]);
    }
    data
}

/// Copies `data` into the buffers, beyond their first `skip` bytes. Returns its length.
fn scatter(data: &[u8], bufs: &mut [IoSliceMut<'_>], mut skip: usize) -> usize {
    let mut done = 0;
    for buf in bufs {
        let from = skip.min(buf.len());
        skip -= from;
        let len = (buf.len() - from).min(data.len() - done);
        buf[from..from + len].copy_from_slice(&data[done..done + len]);
        done += len;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_several_buffers_go_out_and_come_back_in_their_order() {
        let all: Vec<u8> = (0..100).collect();
        let parts = [&all[..30], &all[30..30], &all[30..31], &all[31..]];
        for skip in [0, 1, 29, 30, 31, 40, 99, 100] {
            let mut data = vec![7; 3];
            let got = gather(&parts.map(IoSlice::new), skip, &mut data);
            assert_eq!(got, &all[skip..], "{skip}");
            let (mut one, mut two, mut three) = ([0; 40], [0; 0], [0; 60]);
            let bufs = &mut [&mut one[..], &mut two[..], &mut three[..]].map(IoSliceMut::new);
            assert_eq!(scatter(&all[skip..], bufs, skip), 100 - skip);
            let filled = [&one[..], &three[..]].concat();
            assert_eq!(filled[skip..], all[skip..], "{skip}");
            assert!(filled[..skip].iter().all(|byte| *byte == 0));
        }
        let large = vec![1; DATA_MAX as usize];
        let bufs = [IoSlice::new(&large), IoSlice::new(&large)];
        assert_eq!(gather(&bufs, 5, &mut Vec::new()).len(), DATA_MAX as usize, "one call's worth");
    }
}
