//! The carrier's process: the carrier, and the front process as the carrier sees it.
//!
//! What the front says is what a library says of itself, passed on: the carrier copies it and
//! checks it (`sojourn_carrier`). Not here: carrying, the front's side (`desk`).

use super::child::{Child, EnteredChild};
use super::desk::command;
use super::line::{self, LineMessage};
use super::spawner::Spawner;
use crate::beat::{Beat, Beats};
use crate::claim::keeper_of;
use crate::concerned;
use crate::identity;
use crate::inspected::Inspected;
use crate::log::{self, Level};
use crate::network::Network;
use crate::options::Options;
use crate::privileges;
use crate::seccomp::{self, Part};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_carrier::{Adopted, Carrier, Command, Commands, KeeperLocation, MakeLook, Sessions};
use sojourn_ipc::rt::{CallError, Descriptor};
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_session::{
    CarrierClient, DelegateT, EventT, HopT, LocalNumber, OfferT, ReasonT, RouteT, StreamNumber,
    carrier_connect_options,
};
use sojourn_stream::Traffic;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time for an answer of the front, which waits for nobody.
const LIMIT: Duration = Duration::from_secs(10);
/// The number of known programs at which those that have ended are forgotten.
const PROGRAMS_SOME: usize = 64;

/// The program at the other side of a join.
struct JoinedProgram {
    process: Descriptor,
    may_have_packets: bool,
}

/// The front, and the bell that it rings.
struct MetFront {
    front: Front,
    bell: OwnedFd,
}

/// The connection to the front, which commands and sessions share.
struct Front {
    client: CarrierClient<Connection>,
    is_closed: bool,
    /// The programs at the other sides of joins, by the front's numbers.
    programs: HashMap<u64, JoinedProgram>,
    /// The number of programs at which those that have ended are looked for.
    look_at: usize,
    /// The count that the front was told last, if no order has come since.
    told: Option<usize>,
}

type Shared = Arc<Mutex<Front>>;

/// Runs the carrier of the server at `text`, beside whose socket keepers listen if it has a name.
/// Returns when the front has gone.
///
/// # Errors
/// The process cannot begin, or cannot carry.
pub fn carry(options: &Options, text: &str) -> io::Result<()> {
    let network = options.network.ok_or(io::ErrorKind::InvalidInput)?;
    let keeper = match Address::parse(text) {
        Ok(Address::Path(socket)) => Some(keeper_of(&socket)),
        _ => None,
    };
    privileges::keep_only_carriers(keeper.as_deref())?;
    let EnteredChild { child, belongings } = Child::enter(c"sojourn-carrier")?;
    let [way, spawns] =
        belongings.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    seccomp::confine(Part::Carrier).map_err(io::Error::other)?;
    let beats = Beats::new();
    let beat = beats.beat("carrier");
    child.watch(beats, || {})?;
    let MetFront { front, bell } = meet(&way)?;
    let front = Arc::new(Mutex::new(front));
    let spawner = Spawner::new(spawns);
    let place = keeper.map(|path| KeeperLocation {
        path,
        // The parent knows the path.
        start: Box::new(move |_, control, listener| {
            Ok(spawner.spawn(&[control.as_fd(), listener.as_fd()])?)
        }),
    });
    let sessions = Apart {
        front: Arc::clone(&front),
        network,
        has_xdp: options.has_xdp,
        respects_firewalls: options.respects_firewalls,
        beat,
    };
    let orders = Orders { front: Arc::clone(&front), bell };
    let carrier = Carrier::new(Box::new(sessions), Box::new(orders), place)
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))?;
    lock(&front).tell(|client| client.ready());
    child.ready();
    carrier.run();
    Ok(())
}

/// Receives the way to the front, and connects.
fn meet(way: &OwnedFd) -> io::Result<MetFront> {
    line::wait(way, LIMIT);
    let LineMessage::Told(_, mut fds) = line::hear(way) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let socket = fds.pop().ok_or(io::ErrorKind::BrokenPipe)?;
    let connection = Connection::connect(Address::Descriptor(socket), &carrier_connect_options());
    let connection = connection.map_err(io::Error::other)?;
    let by = Deadline::after(LIMIT);
    let mut client = CarrierClient::bind_by(connection, by).map_err(io::Error::other)?;
    let bell = client.with_deadline(by).hello().map_err(io::Error::other)?;
    let bell = bell.ok_or(io::ErrorKind::InvalidData)?;
    let programs = HashMap::new();
    let front = Front { client, is_closed: false, programs, look_at: PROGRAMS_SOME, told: Some(0) };
    Ok(MetFront { front, bell })
}

fn lock(front: &Shared) -> MutexGuard<'_, Front> {
    front.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Front {
    /// Calls the front; `None` if it has gone.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut CarrierClient<Connection>) -> Result<T, CallError>,
    ) -> Option<T> {
        if self.is_closed {
            return None;
        }
        match call(self.client.with_deadline(Deadline::after(LIMIT))) {
            Ok(answer) => Some(answer),
            // The front refuses this call and is there.
            Err(CallError::Fault(_)) => None,
            Err(error) => {
                log::say(Level::Debug, format_args!("the front process has gone: {error}"));
                self.is_closed = true;
                None
            }
        }
    }

    fn tell(&mut self, call: impl FnOnce(&mut CarrierClient<Connection>) -> Result<(), CallError>) {
        let _ = self.call(call);
    }

    /// Returns the process of the program with that number: the same descriptor in all of its
    /// joins.
    fn program(&mut self, number: u64, process: Descriptor, has_packets: bool) -> Descriptor {
        if number == 0 {
            return process;
        }
        if self.programs.len() >= self.look_at {
            self.programs.retain(|_, program| !has_ended(&program.process));
            self.look_at = PROGRAMS_SOME.max(2 * self.programs.len());
        }
        let program = JoinedProgram { process, may_have_packets: has_packets };
        let known = self.programs.entry(number).or_insert(program);
        known.may_have_packets = has_packets;
        known.process.clone()
    }
}

fn has_ended(process: &Descriptor) -> bool {
    let Some(fd) = process.as_fd() else { return true };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)) != Ok(0)
}

/// The front's orders.
struct Orders {
    front: Shared,
    bell: OwnedFd,
}

impl Commands for Orders {
    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn quiet(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    fn next(&mut self) -> Option<Command> {
        let mut front = lock(&self.front);
        let order = front.call(CarrierClient::next_order)?;
        let command = command(order);
        if command.is_some() {
            front.told = None;
        }
        command
    }

    fn tell_count(&mut self, sessions: usize) {
        let mut front = lock(&self.front);
        if front.told != Some(sessions) {
            let count = u32::try_from(sessions).unwrap_or(u32::MAX);
            front.tell(|client| client.count(count));
            front.told = Some(sessions);
        }
    }

    fn is_closed(&self) -> bool {
        lock(&self.front).is_closed
    }
}

/// The front as the carrier sees it.
struct Apart {
    front: Shared,
    network: Network,
    has_xdp: bool,
    respects_firewalls: bool,
    beat: Beat,
}

impl Apart {
    fn front(&self) -> MutexGuard<'_, Front> {
        lock(&self.front)
    }
}

impl Sessions for Apart {
    fn make_look(&self) -> MakeLook {
        Inspected::make_look()
    }

    fn offer(&self, seen: &[u8], what: &OfferT) {
        self.front().tell(|client| client.offer(seen, what));
    }

    fn decline(&self, seen: &[u8], reason: ReasonT) {
        self.front().tell(|client| client.decline(seen, reason));
    }

    fn next(&self) -> EventT {
        let mut front = self.front();
        let Some(next) = front.call(CarrierClient::next) else { return EventT::None };
        match next.event {
            EventT::Join(mut join) => {
                join.peer_process =
                    front.program(next.program, join.peer_process, next.has_packets);
                EventT::Join(join)
            }
            event => event,
        }
    }

    fn may_have_packets(&self, process: &Descriptor) -> bool {
        let front = self.front();
        let mut known = front.programs.values();
        self.network != Network::Ports
            && !process.is_none()
            && known.any(|known| known.may_have_packets && known.process == *process)
    }

    fn has_rings(&self) -> bool {
        self.network.has_rings()
    }

    fn has_xdp(&self) -> bool {
        self.has_xdp
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
        let [from, to, hook] = concerned::texts(local, remote, hook);
        self.front().tell(|client| client.concerned(&from, &to, &hook));
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
        let known;
        let seen = match what {
            Adopted::Socket(seen) => seen,
            Adopted::Datagrams { cookie, local, remote } => {
                let seen = Ok(identity::of_datagrams(cookie, local, remote));
                known = Inspected::known(seen).to_bytes();
                &known
            }
        };
        let region = region.as_fd();
        self.front().tell(|client| client.adopt(seen, local.0, stream.0, side, region));
    }

    fn delegate(&self, local: LocalNumber, terms: DelegateT) {
        self.front().tell(|client| client.delegate(local.0, &terms));
    }

    fn reroute(&self, local: LocalNumber, hop: HopT) {
        self.front().tell(|client| client.reroute(local.0, &hop));
    }

    fn tell_route(&self, local: LocalNumber, route: RouteT) {
        self.front().tell(|client| client.tell_route(local.0, &route));
    }

    fn left(&self, local: LocalNumber, reason: ReasonT, traffic: Traffic) {
        let Traffic { sent, received } = traffic;
        self.front().tell(|client| client.left(local.0, reason, sent, received));
    }
}
