//! The carrier's place in a server of one process: a client without a connection.
//!
//! Not here: carrying (`sojourn_carrier`), pairing (`registry`), the place of a carrier that is a
//! process of its own (`apart`).

use crate::beat::Beat;
use crate::concerned;
use crate::drivers::Drivers;
use crate::identity;
use crate::inspected::Inspected;
use crate::log::{self, Level};
use crate::network::Network;
use crate::options::Options;
use crate::registry::{CARRIER, CarrierMessage, ProcessInfo};
use crate::service::Sojournd;
use crate::service::carry::AdoptedStream;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sojourn_carrier::{
    Adopted, Carrier, CommandChannel, CommandSender, HandOver, KeeperLocation, MakeLook, Sessions,
    command_channel, start_keeper,
};
use sojourn_ipc::Badge;
use sojourn_ipc::Credentials;
use sojourn_ipc::rt::{Caller, Descriptor};
use sojourn_session::{
    DelegateT, EventT, HopT, LocalNumber, OfferT, ProcessId, ReasonT, RerouteT, RouteT,
    SessionServer, StreamNumber,
};
use sojourn_stream::Traffic;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};

/// The server as its carrier sees it.
#[derive(Debug)]
pub(crate) struct ServerSide {
    server: Weak<Sojournd>,
    caller: Caller,
    network: Network,
    has_xdp: bool,
    respects_firewalls: bool,
    beat: Beat,
}

impl ServerSide {
    /// Makes the carrier known to the server, with its bell. Returns `None` if it is known already,
    /// or if there are no descriptors left.
    pub(crate) fn new(
        server: &Arc<Sojournd>,
        commands: &CommandSender,
        network: Network,
        options: &Options,
    ) -> Option<Self> {
        introduce(server, commands)?;
        let credentials =
            Credentials { pid: getpid().as_raw_nonzero().get(), ..Credentials::default() };
        let caller = Caller { client: CARRIER, badge: Badge::default(), credentials };
        let beat = server.beats().beat("carrier");
        let server = Arc::downgrade(server);
        let &Options { has_xdp, respects_firewalls, .. } = options;
        Some(Self { server, caller, network, has_xdp, respects_firewalls, beat })
    }
}

/// Makes a carrier known to the server, with its bell. Returns `None` if one is known already, or
/// if there are no descriptors left. To programs at the other sides of streams the carrier's
/// process is the server's, which does not outlive its carrier.
pub(crate) fn introduce(server: &Arc<Sojournd>, commands: &CommandSender) -> Option<()> {
    let pid = getpid();
    let info = ProcessInfo {
        pid: ProcessId::own(),
        uid: rustix::process::geteuid(),
        program: "sojournd".into(),
        process: pidfd_open(pid, PidfdFlags::empty()).ok()?.into(),
        doorbell: rustix::io::fcntl_dupfd_cloexec(commands.bell(), 0).ok()?.into(),
    };
    server.introduce_carrier(info).ok()
}

/// Starts the carrier of a server. When this returns, the carrier has adopted the sessions that an
/// earlier server has left with a keeper. Without the capabilities that it needs there is no
/// carrier, and sessions with other hosts stay in the kernel.
///
/// # Errors
/// The missing thing, for people.
pub(crate) fn start(
    server: &Arc<Sojournd>,
    network: Network,
    options: &Options,
    keeper: Option<PathBuf>,
) -> Result<(), String> {
    let CommandChannel { sender: commands, receiver } =
        command_channel().map_err(|error| error.to_string())?;
    let place =
        ServerSide::new(server, &commands, network, options).ok_or("no descriptors left")?;
    let (tell, told) = channel();
    let keeper = keeper.map(|path| KeeperLocation { path, start: Box::new(start_keeper) });
    let carry = move || match Carrier::new(Box::new(place), Box::new(receiver), keeper) {
        Ok(carrier) => {
            let _ = tell.send(Ok(()));
            carrier.run();
        }
        Err(error) => drop(tell.send(Err(error.to_string()))),
    };
    let thread = std::thread::Builder::new().name("sojourn-carrier".into());
    thread.spawn(carry).map_err(|error| error.to_string())?;
    told.recv().map_err(|_| "its thread has ended")??;
    server.set_commands(commands);
    Ok(())
}

impl ServerSide {
    fn tell(&self, local: LocalNumber, what: CarrierMessage) {
        if let Some(server) = self.server.upgrade() {
            server.tell_carried(local, what);
        }
    }
}

impl Sessions for ServerSide {
    fn make_look(&self) -> MakeLook {
        Inspected::make_look()
    }

    fn offer(&self, seen: &[u8], what: &OfferT) {
        if let (Some(server), Some(seen)) = (self.server.upgrade(), Inspected::read(seen, None)) {
            server.offer_carried(seen, what);
        }
    }

    fn decline(&self, seen: &[u8], reason: ReasonT) {
        if let (Some(server), Some(seen)) = (self.server.upgrade(), Inspected::read(seen, None)) {
            server.decline_carried(seen, reason);
        }
    }

    fn next(&self) -> EventT {
        let event = self.server.upgrade().and_then(|server| server.next(&self.caller).ok());
        event.unwrap_or(EventT::None)
    }

    fn may_have_packets(&self, process: &Descriptor) -> bool {
        let server = self.server.upgrade().filter(|_| self.network != Network::Ports);
        server.is_some_and(|server| server.program(process).has_packets)
    }

    fn has_rings(&self) -> bool {
        self.network.has_rings()
    }

    fn has_xdp(&self) -> bool {
        // A driver's connection is no packet socket.
        self.has_xdp && !matches!(self.network, Network::Driver(_))
    }

    fn hand_over(&self) -> HandOver {
        let Network::Driver(way) = self.network else { return Box::new(Ok) };
        let drivers = Drivers::new(way);
        Box::new(move |packets| drivers.hand(&packets))
    }

    fn respects_firewalls(&self) -> bool {
        self.respects_firewalls
    }

    fn at_work(&self, is_working: bool) {
        self.beat.set(is_working);
    }

    fn warn(&self, text: core::fmt::Arguments<'_>) {
        log::say(Level::Warn, text);
    }

    fn concerned(&self, local: SocketAddr, remote: Option<SocketAddr>, hook: &str) {
        if let Some(server) = self.server.upgrade() {
            server.concerned_carried(concerned::texts(local, remote, hook));
        }
    }

    fn say(&self, text: core::fmt::Arguments<'_>) {
        log::say(Level::Info, text);
    }

    fn adopt(
        &self,
        local: LocalNumber,
        what: Adopted<'_>,
        stream: StreamNumber,
        side: u8,
        region: Descriptor,
    ) {
        if let Some(server) = self.server.upgrade() {
            let inspected = match what {
                Adopted::Socket(seen) => Inspected::read(seen, None),
                Adopted::Datagrams { cookie, local, remote } => {
                    Some(Inspected::known(Ok(identity::of_datagrams(cookie, local, remote))))
                }
            };
            let stream = AdoptedStream { number: stream, side, region };
            if let Some(inspected) = inspected {
                server.adopt_carried(local, inspected, stream);
            }
        }
    }

    fn delegate(&self, local: LocalNumber, terms: DelegateT) {
        self.tell(local, CarrierMessage::Delegate(terms));
    }

    fn reroute(&self, local: LocalNumber, hop: HopT) {
        self.tell(local, CarrierMessage::Reroute(RerouteT { local: local.0, hop }));
    }

    fn tell_route(&self, local: LocalNumber, route: RouteT) {
        self.tell(local, CarrierMessage::Route(route));
    }

    fn left(&self, local: LocalNumber, reason: ReasonT, traffic: Traffic) {
        if let Some(server) = self.server.upgrade() {
            server.left(&self.caller, local.0, reason, traffic.sent, traffic.received);
        }
    }
}
