//! The carrier's place in the front process: the interface `carrier`, on a thread of its own.
//!
//! The carrier is believed what it says of sessions with other hosts, and nothing else: an end both
//! of whose ends are here is not taken from it (`service::carry`). Not here: the carrier's process
//! (`carry`), its place in a server of one process (`carried`).

use crate::beat::Beat;
use crate::carried;
use crate::inspected::Inspected;
use crate::registry::{CARRIER, CarrierMessage};
use crate::service::Sojournd;
use crate::service::carry::{AdoptedStream, NumberedProgram};
use crate::serving::{expel, server_options};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::Uid;
use sojourn_carrier::{
    Command, CommandChannel, CommandReceiver, CommandSender, Commands, Offered, command_channel,
};
use sojourn_ipc::rt::{self, Arrival, Caller, Descriptor, Fault, Served, Service};
use sojourn_ipc::{Deadline, Endpoint, Server, ServerOptions};
use sojourn_session::{
    BackOrderT, CarrierNextOut, CarrierServer, CarrierService, DelegateT, DelegationToken, EventT,
    FAULT_RESOURCES, HopT, InTransitOrderT, LocalNumber, OfferT, OrderT, ProcessId, ReasonT,
    RegisteredOrderT, RerouteT, RouteT, SessionServer, SocketOrderT, StreamNumber, WhereT,
};
use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time in which a carrier adopts what an earlier one has left, or says that it cannot carry.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The carrier's place.
pub(super) struct CarrierEndpoint {
    endpoint: Endpoint,
    commands: CommandSender,
    is_ready: Receiver<bool>,
}

/// What the carrier's calls need.
struct Work {
    server: Arc<Sojournd>,
    orders: Mutex<CommandReceiver>,
    bell: OwnedFd,
    ready: SyncSender<bool>,
}

impl CarrierEndpoint {
    /// Makes the place, and the thread that serves it.
    pub(super) fn open(server: &Arc<Sojournd>, beat: Beat) -> io::Result<Self> {
        let CommandChannel { sender: commands, receiver: orders } = command_channel()?;
        carried::introduce(server, &commands).ok_or(io::ErrorKind::AlreadyExists)?;
        let bell = rustix::io::fcntl_dupfd_cloexec(commands.bell(), 0)?;
        let options = ServerOptions { max_clients: 1, ..server_options(None) };
        let endpoint = Endpoint::unnamed(options).map_err(io::Error::other)?;
        let (ready, is_ready) = sync_channel(1);
        let orders = Mutex::new(orders);
        let work = Work { server: Arc::clone(server), orders, bell, ready };
        let line = endpoint.server();
        std::thread::Builder::new()
            .name("sojourn-desk".into())
            .spawn(move || serve(line, work, &beat))?;
        Ok(Self { endpoint, commands, is_ready })
    }

    /// Returns the socket over which the carrier, and nobody else, reaches its place.
    pub(super) fn way(&self) -> Result<OwnedFd, Errno> {
        self.endpoint.offer()
    }

    /// Waits until the carrier has adopted what an earlier one has left. From then on sessions with
    /// other hosts are the carrier's, if it can carry. The endpoint lives as long as it is kept.
    pub(super) fn settle(self, server: &Sojournd) -> io::Result<Endpoint> {
        match self.is_ready.recv_timeout(READY_LIMIT) {
            Ok(true) => server.set_commands(self.commands),
            Ok(false) => {}
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        Ok(self.endpoint)
    }
}

fn serve(mut line: Server, work: Work, beat: &Beat) {
    let ready = work.ready.clone();
    let mut router = rt::Router::<Server>::new();
    // There is one interface, so there are numbers for it.
    let _ = router.add(CarrierService::<Work>::new(Arc::new(work)));
    let mut reply = None;
    while let Ok(arrival) = rt::ServerTransport::next(&mut line, reply.take(), Deadline::NEVER) {
        let _busy = beat.busy();
        match arrival {
            Arrival::Call(request) => match rt::answer(&mut router, false, request) {
                Served::Reply(done) => reply = Some(done),
                Served::Done => {}
                Served::Violation(client, error) => expel(&mut line, client, error),
            },
            Arrival::Send(request) => {
                if let Served::Violation(client, error) = rt::answer(&mut router, true, request) {
                    expel(&mut line, client, error);
                }
            }
            Arrival::Connected(client, credentials) => router.connected(client, credentials),
            Arrival::Gone(client) => {
                router.gone(client);
                // It ended before it was ready: it cannot carry.
                let _ = ready.try_send(false);
            }
            _ => {}
        }
    }
}

impl Work {
    fn caller(caller: &Caller) -> Caller {
        Caller { client: CARRIER, ..*caller }
    }

    fn tell(&self, local: LocalNumber, what: CarrierMessage) {
        self.server.tell_carried(local, what);
    }
}

impl CarrierServer for Work {
    fn hello(&self, _: &Caller) -> Result<Option<OwnedFd>, Fault> {
        let bell = rustix::io::fcntl_dupfd_cloexec(&self.bell, 0);
        bell.map(Some).map_err(|_| Fault(FAULT_RESOURCES as u32))
    }

    fn ready(&self, _: &Caller) {
        let _ = self.ready.try_send(true);
    }

    fn offer(&self, _: &Caller, seen: &[u8], what: &OfferT) {
        if let Some(inspected) = Inspected::read(seen, None) {
            self.server.offer_carried(inspected, what);
        }
    }

    fn concerned(&self, _: &Caller, from: &CStr, to: &CStr, hook: &CStr) {
        self.server.concerned_carried([from, to, hook].map(CStr::to_owned));
    }

    fn decline(&self, _: &Caller, seen: &[u8], reason: ReasonT) {
        if let Some(inspected) = Inspected::read(seen, None) {
            self.server.decline_carried(inspected, reason);
        }
    }

    fn adopt(
        &self,
        _: &Caller,
        seen: &[u8],
        local: u64,
        stream: u64,
        side: u8,
        region: Option<OwnedFd>,
    ) {
        if let Some(inspected) = Inspected::read(seen, None) {
            let stream =
                AdoptedStream { number: StreamNumber(stream), side, region: region.into() };
            self.server.adopt_carried(LocalNumber(local), inspected, stream);
        }
    }

    fn next(&self, caller: &Caller) -> Result<CarrierNextOut, Fault> {
        let event = SessionServer::next(&*self.server, &Self::caller(caller))?;
        let NumberedProgram { number, has_packets } = match &event {
            EventT::Join(join) => self.server.program(&join.peer_process),
            _ => NumberedProgram::default(),
        };
        Ok(CarrierNextOut { event, program: number, has_packets })
    }

    fn next_order(&self, _: &Caller) -> Result<OrderT, Fault> {
        let command = self.orders.lock().unwrap_or_else(PoisonError::into_inner).next();
        Ok(command.map_or(OrderT::None, order))
    }

    fn count(&self, _: &Caller, sessions: u32) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.tell_count(sessions as usize);
    }

    fn delegate(&self, _: &Caller, local: u64, terms: &DelegateT) {
        self.tell(LocalNumber(local), CarrierMessage::Delegate(terms.clone()));
    }

    fn reroute(&self, _: &Caller, local: u64, hop: &HopT) {
        self.tell(LocalNumber(local), CarrierMessage::Reroute(RerouteT { local, hop: *hop }));
    }

    fn tell_route(&self, _: &Caller, local: u64, route: &RouteT) {
        self.tell(LocalNumber(local), CarrierMessage::Route(*route));
    }

    fn left(&self, caller: &Caller, local: u64, reason: ReasonT, sent: u64, received: u64) {
        SessionServer::left(&*self.server, &Self::caller(caller), local, reason, sent, received);
    }
}

/// Puts a command into the form in which it goes to another process.
fn order(command: Command) -> OrderT {
    match command {
        Command::Socket(Offered { socket, user }) => {
            OrderT::Socket(SocketOrderT { socket: socket.into(), uid: user.as_raw() })
        }
        Command::Registered { stream, pid } => {
            OrderT::Registered(RegisteredOrderT { stream: stream.0, pid: pid.0 })
        }
        Command::AllHome => OrderT::AllHome,
        Command::Back { token, has_ended, record } => {
            OrderT::Back(BackOrderT { token: token.0, has_ended, record: record.into() })
        }
        Command::InTransit { token, packets } => {
            OrderT::InTransit(InTransitOrderT { token: token.0, packets: packets.into() })
        }
        Command::AskRoute { local, to } => {
            let to = match to {
                IpAddr::V4(to) => to.to_ipv6_mapped(),
                IpAddr::V6(to) => to,
            };
            OrderT::AskRoute(WhereT { local: local.0, to: to.octets() })
        }
    }
}

/// Puts an order back into the form of a command; `None` if it is none, or lacks its descriptor.
pub(super) fn command(order: OrderT) -> Option<Command> {
    let owned = |descriptor: Descriptor| descriptor.into_owned().ok().flatten();
    Some(match order {
        OrderT::None => return None,
        OrderT::Socket(SocketOrderT { socket, uid }) => {
            Command::Socket(Offered { socket: owned(socket)?, user: Uid::from_raw(uid) })
        }
        OrderT::Registered(RegisteredOrderT { stream, pid }) => {
            Command::Registered { stream: StreamNumber(stream), pid: ProcessId(pid) }
        }
        OrderT::AllHome => Command::AllHome,
        OrderT::Back(BackOrderT { token, has_ended, record }) => {
            Command::Back { token: DelegationToken(token), has_ended, record: owned(record)? }
        }
        OrderT::InTransit(InTransitOrderT { token, packets }) => {
            Command::InTransit { token: DelegationToken(token), packets: owned(packets)? }
        }
        OrderT::AskRoute(WhereT { local, to }) => Command::AskRoute {
            local: LocalNumber(local),
            to: std::net::Ipv6Addr::from(to).to_canonical(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_same_on_both_sides() {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let all = [
            Command::Registered { stream: StreamNumber(7), pid: ProcessId(9) },
            Command::AllHome,
            Command::AskRoute { local: LocalNumber(3), to: [192, 0, 2, 1].into() },
            Command::AskRoute { local: LocalNumber(3), to: std::net::Ipv6Addr::LOCALHOST.into() },
            Command::Socket(Offered { socket: file(), user: Uid::from_raw(7) }),
            Command::Back { token: DelegationToken(5), has_ended: true, record: file() },
            Command::InTransit { token: DelegationToken(5), packets: file() },
        ];
        for one in all {
            let before = format!("{one:?}");
            assert_eq!(format!("{:?}", command(order(one)).unwrap()), before);
        }
        assert!(command(OrderT::None).is_none());
        let nothing = SocketOrderT { socket: Descriptor::NONE, uid: 0 };
        assert!(command(OrderT::Socket(nothing)).is_none());
    }
}
