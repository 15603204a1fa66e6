//! UDP sockets: the carrier's part in their moves.
//!
//! There is nothing to be taken out of a UDP socket: it stays as it is and goes on receiving what
//! the filter lets pass (fragments, multicast, this host's own datagrams, errors). Away are only
//! its plain datagrams from other hosts, by one interface. On the way home the datagrams that the
//! program has not read are said to the kernel again (`replay`), so that whoever has the socket
//! next finds them there. Read `docs/understand/moves.md`, "UDP", then `carrier` and `moves`.

use crate::addresses::{self, Own};
use crate::carrier::{Carrier, Entry, Joined, Kept, Phase, Place, later};
use crate::keeping::{Label, OfDatagrams};
use crate::links::{LinkError, Ticket};
use crate::metastate::Way;
use crate::moves::{RING_BYTES, TAKE_EVERY_US, TAKE_LIMIT_US, grace, hop_of, token};
use crate::replay;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SocketAddrAny, SocketType, sockopt};
use sojourn_filter::Key;
use sojourn_proto::record::{Kind, SessionRecord, UdpRecord};
use sojourn_proto::time::Instant;
use sojourn_pump::{Counts, now};
use sojourn_session::{HopT, LendT, OfferT, ReasonT, WayT};
use sojourn_stream::Stream;
use sojourn_wire::{FlowKey, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a session is to have.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) local: SocketAddr,
    pub(crate) remote: Option<SocketAddr>,
    /// The interface; of its link addresses and packet size nothing is used.
    pub(crate) way: Way,
    /// What the filter is to turn away from the kernel.
    pub(crate) keys: Vec<Key>,
    /// Where the socket stands; nobody has sent to it by this way yet.
    pub(crate) record: SessionRecord,
    /// The socket's, for ever.
    pub(crate) cookie: u64,
    /// An unconnected socket of both families.
    pub(crate) is_both: bool,
}

impl Plan {
    /// That of a session of an earlier server; `ruled`: what the filter has for its program.
    pub(crate) fn adopted(
        record: SessionRecord,
        way: Way,
        of_it: &OfDatagrams,
        ruled: &[Key],
    ) -> Self {
        let (local, remote) = (record.local, record.remote);
        let OfDatagrams { cookie, is_both, .. } = *of_it;
        let is_its = |key: &&Key| {
            key.protocol() == Protocol::Udp
                && key.local().port() == local.port()
                && key.remote() == remote
                && is_its(local.ip(), is_both, key.local().ip())
        };
        let keys = ruled.iter().filter(is_its).copied().collect();
        Self { local, remote, way, keys, record, cookie, is_both }
    }

    /// What of it the next server has to know.
    fn of_it(&self, place: &Place) -> OfDatagrams {
        let (own_inbox, own_slot) = (place.own_inbox, place.own_slot);
        OfDatagrams { cookie: self.cookie, is_both: self.is_both, own_inbox, own_slot }
    }
}

/// A session whose library carries it.
pub(crate) struct Lodger {
    pub(crate) stream: Stream,
    pub(crate) way: Way,
    /// Those that are the library's still.
    pub(crate) keys: Vec<Key>,
    pub(crate) kept: Kept,
    /// Its library can be told things: of an adopted session, once it has registered.
    pub(crate) is_known: bool,
    /// Its library was told that its datagrams are the kernel's.
    pub(crate) is_told: bool,
    /// It was adopted on its way home: its library may not be able to say that it is over.
    pub(crate) home_by: Option<Instant>,
}

impl Lodger {
    /// A session whose library is known.
    fn new(stream: Stream, way: Way, keys: Vec<Key>, kept: Kept) -> Self {
        Self { stream, way, keys, kept, is_known: true, is_told: false, home_by: None }
    }

    /// Its library is to let go of it.
    pub(crate) fn call_home(&self) {
        self.stream.freeze();
        self.stream.attention();
        self.stream.ring_peer();
    }
}

/// Whether it is a UDP socket that was handed in.
pub(crate) fn is_of_datagrams(socket: &OwnedFd) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::DGRAM)
}

/// IPv4 addresses in IPv6 form as IPv4; without flow label.
fn canonical(any: SocketAddrAny) -> Option<SocketAddr> {
    let address = SocketAddr::try_from(any).ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Whether a socket that is bound there has what comes for this address of the host's.
fn is_its(bound: IpAddr, is_both: bool, ip: IpAddr) -> bool {
    match bound.is_unspecified() {
        true => ip.is_ipv4() == bound.is_ipv4() || is_both,
        false => ip == bound,
    }
}

/// An address as the interface has it.
fn told(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl Carrier {
    pub(crate) fn offer_datagrams(&mut self, local: u64, socket: OwnedFd) {
        let what = OfferT { local, set: 0, ring_bytes: RING_BYTES, is_sole: true };
        let plan = self.plan(socket.as_fd());
        self.update_rules(now());
        let is_filtered =
            |plan: &Plan| plan.keys.iter().any(|key| self.is_filtered(key, Some(&plan.way)));
        if plan.as_ref().is_some_and(is_filtered) {
            return self.sessions.decline(socket.as_fd(), ReasonT::Firewall);
        }
        self.sessions.offer(socket.as_fd(), &what);
        // Nobody else is to keep the port.
        drop(socket);
        let key = plan.as_ref().and_then(|plan| plan.keys.first().copied());
        match (plan, key) {
            (Some(plan), Some(key)) => {
                self.entries.insert(local, Entry::planned(key, plan));
            }
            _ => self.sessions.left(local, ReasonT::NoPeer, 0, 0),
        }
    }

    /// By which interface it is carried, and what; `None`: none leads to other hosts.
    fn plan(&mut self, socket: BorrowedFd<'_>) -> Option<Plan> {
        let local = canonical(rustix::net::getsockname(socket).ok()?)?;
        let cookie = sockopt::socket_cookie(socket).ok()?;
        let remote = rustix::net::getpeername(socket).ok().flatten().and_then(canonical);
        let key = |local, remote| Key::new(Protocol::Udp, local, remote).ok();
        if let Some(peer) = remote {
            if addresses::is_of_link(peer.ip()) {
                return None;
            }
            let way = self.metastate.way(&udp(local, peer)).ok()?;
            let record = record_of(socket, local, remote, way.interface);
            let keys = vec![key(local, remote)?];
            return Some(Plan { local, remote, way, keys, record, cookie, is_both: false });
        }
        let is_both = local.is_ipv6() && !sockopt::ipv6_v6only(socket).unwrap_or(true);
        let own = addresses::own().ok()?;
        let is_its = |own: &Own| is_its(local.ip(), is_both, own.ip);
        let own: Vec<Own> = own.into_iter().filter(is_its).collect();
        let way = self.interface_of(&own)?;
        let of_it = own.iter().filter(|own| own.interface == way.name);
        let keys = of_it.filter_map(|own| key(SocketAddr::new(own.ip, local.port()), None));
        let record = record_of(socket, local, remote, way.interface);
        Some(Plan { local, remote, keys: keys.collect(), way, record, cookie, is_both })
    }

    pub(crate) fn joined_datagrams(
        &mut self,
        local: u64,
        opened: Option<(Stream, Place)>,
        joined: Joined,
    ) {
        let Some(entry) = self.entries.get_mut(&local) else { return };
        let Some((stream, place)) = opened else {
            self.entries.remove(&local);
            self.sessions.left(local, ReasonT::Resources, 0, 0);
            return;
        };
        // Its datagrams may come and go both ways at any time: only who sits in the kernel is
        // waited for.
        stream.consent();
        stream.start_ring();
        stream.attention();
        let since = now();
        entry.phase = Phase::Expected { stream: Box::new(stream), joined, since };
        self.slots.insert((place.own_inbox, place.own_slot), local);
        entry.place = Some(place);
        self.look_at(local, Some(since));
    }

    /// The only interface of those, or that by which most of the world is reached.
    fn interface_of(&mut self, own: &[Own]) -> Option<Way> {
        let first = own.first()?;
        let is_one = own.iter().all(|own| own.interface == first.interface);
        let index = |name: &str| rustix::net::netdevice::name_to_index(socket()?, name).ok();
        let chosen = if is_one {
            index(&first.interface)?
        } else {
            let mut by_default = |from: IpAddr| self.metastate.interface(from, nobody(from)).ok();
            own.iter().find_map(|own| {
                let found = by_default(own.ip)?;
                (index(&own.interface) == Some(found)).then_some(found)
            })?
        };
        let name = own.iter().find(|own| index(&own.interface) == Some(chosen))?.interface.clone();
        Some(Way { interface: chosen, name, link: None, mtu: 0 })
    }

    /// Lends the session to its library, if no thread of the program sits in the kernel any more.
    pub(crate) fn try_take_datagrams(&mut self, local: u64) {
        let Some(entry) = self.entries.get_mut(&local) else { return };
        let Phase::Expected { stream, since, .. } = &entry.phase else { return };
        let at = now();
        if stream.is_frozen() || at >= later(*since, TAKE_LIMIT_US) {
            return self.end(local);
        }
        if !stream.ledger().has_given_up() {
            return self.look_at(local, Some(later(at, TAKE_EVERY_US)));
        }
        // Its library has gone home with it.
        if !stream.ledger().take() {
            return self.end(local);
        }
        if let Err(error) = self.take_datagrams(local) {
            if let Some(entry) = self.entries.get(&local) {
                self.sessions.warn(format_args!("{:?}: not carried: {error}", entry.key));
            }
            self.end(local);
        }
    }

    fn take_datagrams(&mut self, local: u64) -> Result<(), LinkError> {
        let program = self.entries.get(&local).and_then(|entry| self.program_of(entry));
        let Self { entries, links, sessions, tokens, flows, inboxes, peer_inboxes, .. } = self;
        let Some(entry) = entries.get_mut(&local) else { return Ok(()) };
        let (Some(plan), Some(program)) = (&entry.plan, program) else { return Ok(()) };
        let Some(place) = &entry.place else { return Ok(()) };
        if let Kind::Udp(udp) = &plan.record.kind
            && udp.options.no_checksum
            && !program.may_have_packets
        {
            return Err(LinkError::NoChecksum);
        }
        let phase = core::mem::replace(&mut entry.phase, Phase::Between);
        let Phase::Expected { stream, joined, since } = phase else { return Ok(()) };
        let parcel = sojourn_pump::parcel::pack(&plan.record);
        let mut taken = Vec::new();
        let mut ticket: Option<Ticket> = None;
        let result = plan.keys.iter().try_for_each(|key| {
            let one = links.take(&plan.way, program.clone(), *key)?;
            taken.push(*key);
            // The same each time.
            ticket = Some(one);
            Ok::<_, LinkError>(())
        });
        let number = ticket.as_ref().map_or(0, |ticket| ticket.number);
        let (Ok(()), Ok(parcel), Some(Ticket { number: link, owner, socket: packets, port })) =
            (&result, parcel, ticket)
        else {
            for key in taken {
                links.give_back(plan.way.interface, number, &key);
            }
            entry.phase = Phase::Expected { stream, joined, since };
            return result.and(Err(LinkError::Descriptors));
        };
        let (token, way) = (token(), plan.way.clone());
        let label = Label {
            token,
            stream: joined.stream,
            side: joined.side,
            ring_bytes: joined.ring_bytes,
            peer_inbox: place.peer_inbox,
            peer_slot: place.peer_slot,
            pid: place.peer_pid,
            interface: way.interface,
            owner: owner.0,
            link,
            port,
            datagrams: Some(plan.of_it(place)),
        };
        let inbox = peer_inboxes.descriptors(place.peer_inbox).unwrap_or_default();
        let own = inboxes.descriptors(place.own_inbox);
        let kept = Kept { label, region: joined.region, inbox, own };
        links.keeping.hold(&kept, place.peer_process.as_fd(), None, parcel.as_fd());
        let hop = hop_of(&way, port);
        flows.extend(taken.iter().map(|key| (*key, local)));
        let lodger = Lodger::new(*stream, way, taken, kept);
        entry.phase = Phase::Datagrams(Box::new(lodger));
        tokens.insert(token, local);
        let (packets, record) = (packets.into(), parcel.into());
        let ring = links.ring();
        sessions.lend(local, LendT { local: 0, token, hop, link, packets, ring, record });
        Ok(())
    }

    /// Frozen: its datagrams are the kernel's from now on, which its library is told.
    pub(crate) fn attend_datagrams(&mut self, local: u64) {
        let Self { entries, links, flows, .. } = self;
        let Some(entry) = entries.get_mut(&local) else { return };
        let Phase::Datagrams(lodger) = &mut entry.phase else { return };
        if !lodger.stream.is_frozen() {
            return;
        }
        let home_by = lodger.home_by;
        if core::mem::replace(&mut lodger.is_told, true) {
            return match home_by {
                Some(limit) if limit <= now() => self.end(local),
                limit => self.look_at(local, limit),
            };
        }
        for key in core::mem::take(&mut lodger.keys) {
            flows.remove(&key);
            links.give_back(lodger.way.interface, lodger.kept.label.link, &key);
        }
        // What it has of them already it shall have before it is told.
        grace();
        let is_carried = !lodger.stream.ledger().revoke();
        match is_carried {
            true => lodger.stream.set_flushing(0),
            false => lodger.stream.set_flushed(0),
        }
        lodger.stream.ring_peer();
        self.look_at(local, home_by);
    }

    /// What its program has not read.
    pub(crate) fn datagrams_back(&mut self, local: u64, parcel: &OwnedFd) {
        let Some(entry) = self.entries.get(&local) else { return };
        let Phase::Datagrams(lodger) = &entry.phase else { return };
        match sojourn_pump::parcel::open(parcel) {
            Ok(record) => self.say_again(local, &record),
            Err(error) => {
                self.sessions
                    .warn(format_args!("{:?}: what its program knows: {error}", entry.key));
            }
        }
        lodger.stream.set_flushed(0);
        lodger.stream.ring_peer();
    }

    /// Says the record's datagrams to the kernel's socket. What the library says of the session
    /// counts only as far as the plan does not know better.
    fn say_again(&self, local: u64, record: &SessionRecord) {
        let Some(plan) = self.entries.get(&local).and_then(|entry| entry.plan.as_ref()) else {
            return;
        };
        let Kind::Udp(udp) = &record.kind else { return };
        for datagram in &udp.receive_queue {
            let is_its = plan.remote.is_none_or(|remote| remote == datagram.source);
            // Where else it may have been sent to is not the program's to say.
            let to = plan.keys.iter().map(Key::local).find(|to| to.ip() == datagram.target);
            if let (true, Some(to)) = (is_its, to) {
                // Datagrams may be lost.
                let _ = replay::datagram(datagram, to);
            }
        }
    }

    /// Of an ended session: bytes sent and received past the kernel, as its program has told them
    /// last.
    pub(crate) fn end_datagrams(&mut self, lodger: Lodger) -> (u64, u64) {
        let label = &lodger.kept.label;
        self.tokens.remove(&label.token);
        self.links.keeping.release(label);
        for key in &lodger.keys {
            self.flows.remove(key);
            self.links.give_back(label.interface, label.link, key);
        }
        let_go(&lodger.stream);
        let counts = Counts::told(&lodger.stream.ledger().told());
        (counts.sent_bytes, counts.received_bytes)
    }

    /// Tells a library how its session may send there.
    pub(crate) fn tell_way(&mut self, local: u64, to: IpAddr) {
        let Self { entries, metastate, sessions, .. } = self;
        let Some(entry) = entries.get(&local) else { return };
        let (Phase::Datagrams(lodger), Some(plan)) = (&entry.phase, &entry.plan) else { return };
        let from = match plan.local.ip() {
            bound if !bound.is_unspecified() => Some(bound),
            _ => metastate.source(to).ok(),
        };
        let way = from
            .filter(|from| from.is_ipv4() == to.is_ipv4() && !addresses::is_of_link(to))
            .and_then(|from| {
                // To which port is not known, and rules that go by it are few.
                let (from_port, to_port) = (plan.local.port(), 0);
                let flow = udp(SocketAddr::new(from, from_port), SocketAddr::new(to, to_port));
                Some((from, metastate.way(&flow).ok()?))
            })
            .filter(|(_, way)| way.interface == lodger.way.interface);
        let told = match way {
            Some((from, way)) => {
                let (from, hop) = (told(from), hop_of(&way, lodger.kept.label.port));
                WayT { local: 0, to: told(to), is_there: true, from, hop }
            }
            None => WayT {
                local: 0,
                to: told(to),
                is_there: false,
                from: [0; 16],
                hop: HopT { is_cut: true, has_addresses: false, own: [0; 6], next: [0; 6], mtu: 0 },
            },
        };
        sessions.tell_way(local, told);
    }
}

fn udp(source: SocketAddr, target: SocketAddr) -> FlowKey {
    FlowKey { protocol: Protocol::Udp, source, target }
}

/// The other side may go on with the socket alone.
pub(crate) fn let_go(stream: &Stream) {
    stream.freeze();
    stream.set_flushed(0);
    stream.attention();
    stream.ring_peer();
}

/// An address that nobody has (RFC 5737, RFC 3849), of the same family.
fn nobody(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Any socket, for questions about interfaces.
fn socket() -> Option<OwnedFd> {
    rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None).ok()
}

fn record_of(
    socket: BorrowedFd<'_>,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    interface: u32,
) -> SessionRecord {
    let options = sojourn_pump::options::read_udp(socket);
    let ip = sojourn_pump::options::read_ip(socket, local);
    let udp = UdpRecord { options, interface, receive_queue: Vec::new() };
    SessionRecord { local, remote, ip, kind: Kind::Udp(udp) }
}
