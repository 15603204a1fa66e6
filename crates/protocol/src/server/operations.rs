//! The operations of the interface: each finds its session, and answers now or later.
//!
//! Not here: who has which sessions, and who waits at them (`crate::table`, `crate::queue`). Read
//! the head of `server` first.

use super::{Protocol, TakenIn, fresh_token, lock, status};
use crate::calls::Kind;
use crate::queue::{ignore, number};
use crate::session::ReceiveReply;
use crate::table::{Found, TakenPart};
use core::sync::atomic::Ordering;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::{Caller, Credentials, Fault};
use sojourn_options::OptionName;
use sojourn_session::protocol::server::{
    AddressT, ProtocolAttachDeferredReply, ProtocolAttachOut, ProtocolBellOut,
    ProtocolCloseDeferredReply, ProtocolGetOptionDeferredReply, ProtocolGetOptionOut,
    ProtocolGroupOut, ProtocolOpenOut, ProtocolReceiveDeferredReply,
    ProtocolReceiveFromDeferredReply, ProtocolReleaseDeferredReply, ProtocolReleaseOut,
    ProtocolSendOut, ProtocolServer, ProtocolSetOptionDeferredReply, ProtocolShutdownDeferredReply,
    ProtocolWaitDeferredReply, ProtocolWaitOut, ReadyT, TokenT,
};

impl ProtocolServer for Protocol {
    fn open(
        &self,
        caller: &Caller,
        end: Option<OwnedFd>,
        is_sole: bool,
    ) -> Result<ProtocolOpenOut, Fault> {
        let opened = end.ok_or(Errno::BADF).and_then(|end| self.take_in(caller, end, is_sole));
        Ok(match opened {
            Ok(TakenIn { number, token }) => {
                ProtocolOpenOut { ret: 0, session: number, token: TokenT { half: token.0 } }
            }
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
        let sent = self.with_socket(caller, session, Kind::Tcp, |served| {
            served.settle();
            served.socket.send(data)
        });
        Ok(match sent {
            Ok(sent) => ProtocolSendOut { ret: 0, sent: sent as u32 },
            Err(error) => ProtocolSendOut { ret: number(error), sent: 0 },
        })
    }

    fn send_to(
        &self,
        caller: &Caller,
        session: u32,
        to: &AddressT,
        segment: u32,
        data: &[u8],
    ) -> Result<u32, Fault> {
        let segment = u16::try_from(segment).map_err(|_| Errno::INVAL);
        let target = to.socket_addr().map_err(|_| Errno::INVAL);
        let sent = segment.and_then(|segment| {
            let (target, segment) = (target?, (segment > 0).then_some(segment));
            self.with_socket(caller, session, Kind::Udp, |served| {
                served.socket.send_to(data, target, segment)
            })
        });
        Ok(status(sent))
    }

    fn receive_from(
        &self,
        caller: &Caller,
        session: u32,
        flags: u32,
        size: u32,
        reply: ProtocolReceiveFromDeferredReply,
    ) {
        self.receive_by(caller, session, flags, size, ReceiveReply::Datagram(reply));
    }

    fn receive(
        &self,
        caller: &Caller,
        session: u32,
        flags: u32,
        size: u32,
        reply: ProtocolReceiveDeferredReply,
    ) {
        self.receive_by(caller, session, flags, size, ReceiveReply::Bytes(reply));
    }

    fn wait(&self, caller: &Caller, session: u32, events: u32, reply: ProtocolWaitDeferredReply) {
        let refused = |error| ProtocolWaitOut { ret: number(error), ready: 0 };
        let session = match self.find(caller, session) {
            Ok(found) => found.entry,
            Err(error) => return ignore(reply.send(refused(error))),
        };
        let served = &session.session;
        match served.enter() {
            Err(error) => ignore(reply.send(refused(error))),
            Ok(mut waiting) => {
                waiting.queue.wait(caller.client, reply, events, &served.socket);
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
        let Found { entry: found, is_shared } = match self.find(caller, session) {
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
            Ok(Found { entry: session, .. }) => self.slow.leave(move || {
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
            Ok(Found { entry: session, .. }) => self.slow.leave(move || {
                let set = session.session.socket.set_option(OptionName::new(level, name), &value);
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
            Ok(Found { entry: session, .. }) => self.slow.leave(move || {
                let value =
                    session.session.socket.get_option(OptionName::new(level, name), size as usize);
                let answer = |value| ProtocolGetOptionOut { ret: 0, value };
                ignore(reply.send(value.map_or_else(refused, answer)));
            }),
        }
    }

    fn release(&self, caller: &Caller, session: u32, reply: ProtocolReleaseDeferredReply) {
        let refused = |error| ProtocolReleaseOut { ret: number(error), end: None };
        let session = match lock(&self.table).find(caller.client, session) {
            Ok(found) => found.entry,
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
        let members = lock(&self.table).members_of(client);
        self.bells.forget(client, session);
        let TakenPart { entry: session, is_last } =
            match lock(&self.table).close(caller.client, session) {
                Ok(closed) => closed,
                Err(error) => return ignore(reply.send(number(error))),
            };
        match is_last {
            true => self.end(&session),
            false => self.part(&members, &session),
        }
        self.slow.leave(move || {
            drop(session);
            ignore(reply.send(0));
        });
    }

    fn cancel(&self, caller: &Caller, session: u32) -> Result<u32, Fault> {
        let found = lock(&self.table).find(caller.client, session);
        Ok(status(found.map(|Found { entry: session, .. }| {
            session.session.lock().queue.cancel(caller.client);
            self.put(session);
        })))
    }

    fn group(&self, caller: &Caller) -> Result<ProtocolGroupOut, Fault> {
        let made = fresh_token().and_then(|fresh| lock(&self.table).group(caller.client, fresh));
        Ok(match made {
            Ok(token) => ProtocolGroupOut { ret: 0, group: TokenT { half: token.0 } },
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
        let members = lock(&self.table).members_of(client);
        // Of a group it was a part: the others go on with their sessions.
        let others = lock(&self.table).sessions_of_first(client);
        let gone = lock(&self.table).gone(client);
        for session in others {
            self.part(&[client], &session);
            self.put(session);
        }
        for TakenPart { entry: session, is_last } in gone {
            match is_last {
                true => self.end(&session),
                false => self.part(&members, &session),
            }
            self.put(session);
        }
        self.clients.fetch_sub(1, Ordering::SeqCst);
    }
}
