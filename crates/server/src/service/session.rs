//! The interface `session`: arguments are checked here, and the registry decides.
//!
//! Not here: ends that are sent (`ends`), the process that says hello (`peers`).

use super::{Sojournd, State, fault};
use crate::inspected::Inspected;
use crate::log::{self, Level};
use crate::memory::Memory;
use crate::notifier;
use crate::protocols;
use crate::registry::{
    CarrierMessage, Delivery, EndId, InboxOut, JoinOut, ProcessInfo, StreamSide,
};
use rustix::process::Uid;
use sojourn_carrier::Command;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::{Caller, Descriptor, Fault};
use sojourn_session::{
    EventT, FAULT_ARGUMENT, FAULT_NO_HELLO, FAULT_NOT_ALLOWED, FAULT_RESOURCES, InboxT, Inode,
    JoinT, LocalNumber, OfferT, PROGRAM_MAX, ProcessId, ReasonT, RecallT, RefusalT,
    SessionAdoptDeferredReply, SessionIsAwayDeferredReply, SessionOfferDeferredReply,
    SessionServer, SessionShowPacketsDeferredReply, StreamNumber, WantedT, WhereT,
};
use sojourn_shm::fault::point;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

impl SessionServer for Sojournd {
    fn hello(
        &self,
        caller: &Caller,
        program: &CStr,
        doorbell: Option<OwnedFd>,
    ) -> Result<bool, Fault> {
        let uid = Uid::from_raw_unchecked(caller.credentials.uid);
        if !self.serves(uid) {
            return Err(fault(FAULT_NOT_ALLOWED));
        }
        let doorbell = doorbell.ok_or(fault(FAULT_ARGUMENT))?;
        if !notifier::is_event(&doorbell) {
            return Err(fault(FAULT_ARGUMENT));
        }
        // The kernel gives 0 for a process that this PID name space does not show.
        let pid = ProcessId(u32::try_from(caller.credentials.pid).unwrap_or(0));
        let process = match pid.seen() {
            Some(pid) => self.process(caller.client, pid)?.into(),
            None => Descriptor::NONE,
        };
        let mut program = program.to_string_lossy().into_owned();
        // The limit is in bytes, and only whole characters go.
        while program.len() > PROGRAM_MAX as usize {
            program.pop();
        }
        log::say(Level::Debug, format_args!("{pid} is {program}"));
        // A protocol server's sessions are those of the user whom it serves.
        let served = self.protocols.get().filter(|_| uid == self.own_user);
        let served = served.and_then(|protocols| protocols.user_of(pid));
        let uid = served.unwrap_or(uid);
        if served.is_some() {
            // It may not read its own name.
            program = protocols::PROGRAM.into();
        }
        let info = ProcessInfo { pid, uid, program, process, doorbell: doorbell.into() };
        let registry = &mut self.lock().registry;
        registry.hello(caller.client, info)?;
        if served.is_some() {
            registry.is_protocol_server(caller.client);
        }
        Ok(self.asks_for_packets)
    }

    fn offer(
        &self,
        caller: &Caller,
        end: Option<OwnedFd>,
        what: OfferT,
        reply: SessionOfferDeferredReply,
    ) {
        // The object of a client that has not said hello is not even looked at.
        let is_known = self.lock().registry.info(caller.client).is_some();
        let Some(end) = end.filter(|_| is_known) else {
            let code = if is_known { FAULT_ARGUMENT } else { FAULT_NO_HELLO };
            let _ = reply.fault(fault(code));
            return;
        };
        point("sojournd.offer");
        let caller = *caller;
        self.inspect(end, move |server, inspected| {
            // A look without an answer was held up by the program itself, which holds the lock of
            // its object (`proxy`).
            let Some(inspected) = inspected else {
                let _ = reply.fault(fault(FAULT_RESOURCES));
                return;
            };
            let offered = server.offered(&caller, inspected, &what);
            point("sojournd.offered");
            // If it fails, the client has gone.
            let _ = match offered {
                Ok(is_waiting) => reply.send(is_waiting),
                Err(error) => reply.fault(error.into()),
            };
        });
    }

    fn next(&self, caller: &Caller) -> Result<EventT, Fault> {
        Ok(match self.lock().registry.next(caller.client)? {
            None => EventT::None,
            Some(Delivery::Join(join)) => {
                point("sojournd.join");
                EventT::Join(join_of(*join))
            }
            Some(Delivery::Recall { local, reason }) => {
                point("sojournd.recall");
                EventT::Recall(RecallT { local: local.0, reason })
            }
            Some(Delivery::Refused { local, reason }) => {
                EventT::Refused(RefusalT { local: local.0, reason })
            }
            Some(Delivery::Wanted { inode, home }) => {
                EventT::Wanted(WantedT { inode: inode.0, home })
            }
            Some(Delivery::CarrierMessage(what)) => match *what {
                CarrierMessage::Delegate(terms) => EventT::Delegate(terms),
                CarrierMessage::Reroute(rerouted) => EventT::Rerouted(rerouted),
                CarrierMessage::Route(route) => EventT::Route(route),
            },
        })
    }

    fn left(&self, caller: &Caller, local: u64, reason: ReasonT, sent: u64, _received: u64) {
        point("sojournd.left");
        let id = EndId { process: caller.client, local: LocalNumber(local) };
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        registry.left(id, reason, sent, self.now_ms(), &Memory);
        Self::ring(registry, notifier);
    }

    fn ask_route(&self, caller: &Caller, place: &WhereT) {
        let id = EndId { process: caller.client, local: LocalNumber(place.local) };
        let local = self.lock().registry.of_carrier(id);
        if let Some(local) = local {
            let to = std::net::Ipv6Addr::from(place.to).to_canonical();
            // Who asks so often gets no answer.
            let _ = self.command_of(caller, Command::AskRoute { local, to });
        }
    }

    fn adopt(
        &self,
        caller: &Caller,
        end: Option<OwnedFd>,
        what: OfferT,
        stream: u64,
        side: u8,
        reply: SessionAdoptDeferredReply,
    ) {
        let Some(end) = end else {
            let _ = reply.fault(fault(FAULT_ARGUMENT));
            return;
        };
        let caller = *caller;
        let part = StreamSide { stream: StreamNumber(stream), side };
        self.inspect(end, move |server, inspected| {
            let inspected = inspected.unwrap_or_else(|| Inspected::refused(ReasonT::Resources));
            let _ = match server.adopted(&caller, inspected, &what, part) {
                Ok(is_adopted) => reply.send(is_adopted),
                Err(error) => reply.fault(error.into()),
            };
        });
    }

    fn declined(&self, caller: &Caller, inode: u64, reason: ReasonT, in_kernel: u64, away: u64) {
        let rates = [in_kernel, away];
        self.lock().registry.declined(caller.client, Inode(inode), reason, rates, self.now_ms());
    }

    fn show_packets(
        &self,
        caller: &Caller,
        packets: Option<OwnedFd>,
        reply: SessionShowPacketsDeferredReply,
    ) {
        let Some(packets) = packets else {
            let _ = reply.fault(fault(FAULT_ARGUMENT));
            return;
        };
        let client = caller.client;
        self.inspect(packets, move |server, inspected| {
            let is_shown = inspected.is_some_and(|inspected| inspected.is_packets);
            if is_shown {
                server.lock().registry.show_packets(client);
            }
            let _ = reply.send(is_shown);
        });
    }

    fn is_away(&self, _: &Caller, end: Option<OwnedFd>, reply: SessionIsAwayDeferredReply) {
        let Some(end) = end else {
            let _ = reply.fault(fault(FAULT_ARGUMENT));
            return;
        };
        self.inspect(end, move |server, inspected| {
            let seen = inspected.and_then(|inspected| inspected.seen.ok());
            let is_away = seen.is_some_and(|seen| server.lock().registry.is_away(&seen.key));
            let _ = reply.send(is_away);
        });
    }

    fn client_gone(&self, client: ClientId) {
        self.lock_peers().remove(&client);
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        registry.gone(client, self.now_ms(), &Memory);
        Self::ring(registry, notifier);
    }
}

fn join_of(join: JoinOut) -> JoinT {
    let inbox = |inbox: InboxOut| {
        let [memory, ready, attention] = inbox.descriptors;
        InboxT { id: inbox.id.0, slot: inbox.slot, memory, ready, attention }
    };
    JoinT {
        local: join.local.0,
        stream: join.stream.0,
        side: join.side,
        kind: join.kind,
        is_carried: join.is_carried,
        ring_bytes: join.ring_bytes,
        region: join.region,
        own: inbox(join.own),
        peer: inbox(join.peer),
        peer_pid: join.peer_pid.0,
        peer_process: join.peer_process,
    }
}
