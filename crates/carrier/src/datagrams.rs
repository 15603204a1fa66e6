//! The carrier's part in the moves of UDP sockets.
//!
//! Nothing is taken out of a UDP socket: it stays as it is, and goes on receiving what the filter
//! lets pass (fragments, multicast, this host's own datagrams, errors). Only its plain datagrams
//! from other hosts, by one interface, bypass the kernel. On the way home the datagrams that the
//! program has not read are given to the kernel again (`replay`), so that the next user of the
//! socket finds them there. Not here: TCP sessions (`moves`). Read `docs/understand/moves.md`,
//! "UDP", then `carrier` and `moves`.

use crate::addresses::{self, Own};
use crate::carrier::{Carrier, OpenedJoin};
use crate::clock::later;
use crate::fd_name::{FdName, Kept, OfDatagrams};
use crate::joined::{JoinedEnds, JoinedStream};
use crate::links::Ticket;
use crate::metastate::NextHop;
use crate::next_hop::hop_of;
use crate::plan::{UdpFacts, UdpPlan, receives_for};
use crate::quiesce::{TAKE_EVERY_US, TAKE_LIMIT_US, wait_for_softirqs};
use crate::replay;
use crate::session::{Outcome, Phase, Session, UdpDelegated, UdpWaiting, is_sending, token};
use crate::sockets::InterfaceError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketType;
use sojourn_filter::Key;
use sojourn_proto::record::{Kind, SessionRecord};
use sojourn_pump::{Counts, now};
use sojourn_session::{DelegateT, HopT, LocalNumber, OfferT, ReasonT, RouteT};
use sojourn_stream::{Stream, Traffic};
use sojourn_wire::{FlowKey, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How long a library may take to withdraw a session that the carrier calls home (microseconds).
/// After that its rules are removed in any case.
const WITHDRAW_LIMIT_US: u64 = 1_000_000;

/// Returns an address in the interface's form.
fn mapped_into_ipv6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl Carrier {
    /// Offers a UDP socket in these terms.
    pub(crate) fn offer_datagrams(
        &mut self,
        local: LocalNumber,
        what: &OfferT,
        seen: &[u8],
        facts: Option<Box<UdpFacts>>,
    ) {
        let plan = facts.and_then(|facts| self.plan(&facts));
        self.update_rules(now());
        let is_filtered = |plan: &UdpPlan| {
            plan.keys.iter().any(|key| self.is_filtered(key, Some(&plan.next_hop)))
        };
        if plan.as_ref().is_some_and(is_filtered) {
            return self.sessions.decline(seen, ReasonT::Firewall);
        }
        self.sessions.offer(seen, what);
        let key = plan.as_ref().and_then(|plan| plan.keys.first().copied());
        match (plan, key) {
            (Some(plan), Some(key)) => {
                let phase = Phase::UdpOffered(Box::new(plan));
                self.table.insert(local, Session { key, phase });
            }
            _ => self.sessions.left(local, ReasonT::NoPeer, Traffic::default()),
        }
    }

    /// Makes the plan for a socket; `None` if no interface of it leads to other hosts.
    fn plan(&mut self, facts: &UdpFacts) -> Option<UdpPlan> {
        let UdpFacts { local, remote, cookie, is_both, .. } = *facts;
        let key = |local, remote| Key::new(Protocol::Udp, local, remote).ok();
        if let Some(peer) = remote {
            if addresses::is_of_link(peer.ip()) {
                return None;
            }
            let next_hop = self.metastate.next_hop(&udp(local, peer)).ok()?;
            let record = facts.record(next_hop.interface);
            let keys = vec![key(local, remote)?];
            return Some(UdpPlan { local, remote, next_hop, keys, record, cookie, is_both });
        }
        let own = addresses::own().ok()?;
        let receives_for = |own: &Own| receives_for(local.ip(), is_both, own.ip);
        let own: Vec<Own> = own.into_iter().filter(receives_for).collect();
        let next_hop = self.interface_of(&own)?;
        let of_it = own.iter().filter(|own| own.interface == next_hop.name);
        let keys = of_it.filter_map(|own| key(SocketAddr::new(own.ip, local.port()), None));
        let record = facts.record(next_hop.interface);
        Some(UdpPlan { local, remote, keys: keys.collect(), next_hop, record, cookie, is_both })
    }

    /// Begins with a session that is joined.
    pub(crate) fn begin_datagrams(
        plan: UdpPlan,
        joined: JoinedStream,
        OpenedJoin { stream, ends }: OpenedJoin,
    ) -> Phase {
        // Datagrams may come and go both ways at any time, so only threads that sit in the kernel
        // are waited for.
        stream.consent();
        stream.use_ring();
        stream.attention();
        let waiting = UdpWaiting { stream, joined, ends, plan, since: now() };
        Phase::UdpWaiting(Box::new(waiting))
    }

    /// Chooses the only interface of those addresses, or else the one of the default route.
    fn interface_of(&mut self, own: &[Own]) -> Option<NextHop> {
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
        Some(NextHop { interface: chosen, name, link: None, mtu: 0 })
    }

    /// Delegates the session to its library, if no thread of the program sits in the kernel any
    /// more.
    pub(crate) fn step_out_datagrams(
        &mut self,
        local: LocalNumber,
        key: &Key,
        waiting: Box<UdpWaiting>,
    ) -> Outcome {
        let UdpWaiting { stream, since, .. } = &*waiting;
        let at = now();
        if stream.is_frozen() || at >= later(*since, TAKE_LIMIT_US) {
            return Outcome::End(Phase::UdpWaiting(waiting));
        }
        if !stream.ledger().has_given_up() {
            let again = Some(later(at, TAKE_EVERY_US));
            return Outcome::Look(Phase::UdpWaiting(waiting), again);
        }
        // The library has gone home with the session.
        if !stream.ledger().take() {
            return Outcome::End(Phase::UdpWaiting(waiting));
        }
        match self.take_datagrams(&waiting) {
            Ok(taken) => {
                let delegated = self.delegate_datagrams(local, *waiting, taken);
                Outcome::Stay(Phase::UdpDelegated(Box::new(delegated)))
            }
            Err(error) => {
                self.sessions.warn(format_args!("{key:?}: not carried: {error}"));
                Outcome::End(Phase::UdpWaiting(waiting))
            }
        }
    }

    /// Turns the session's datagrams away from the kernel: all of them, or none.
    fn take_datagrams(
        &mut self,
        waiting: &UdpWaiting,
    ) -> Result<ExportedDatagrams, InterfaceError> {
        let UdpWaiting { plan, ends, .. } = waiting;
        let program = self.program_at(ends);
        if let Kind::Udp(udp) = &plan.record.kind
            && udp.options.no_checksum
            && !program.may_have_packets
        {
            return Err(InterfaceError::NoChecksum);
        }
        let sealed = sojourn_pump::sealed::pack(&plan.record);
        let mut taken = Vec::new();
        let mut ticket: Option<Ticket> = None;
        let result = plan.keys.iter().try_for_each(|key| {
            let one = self.links.take(&plan.next_hop, program.clone(), *key)?;
            taken.push(*key);
            // Each key gets the same ticket.
            ticket = Some(one);
            Ok::<_, InterfaceError>(())
        });
        match (&result, sealed, ticket) {
            (Ok(()), Ok(sealed), Some(ticket)) => {
                Ok(ExportedDatagrams { keys: taken, ticket, sealed })
            }
            (_, _, ticket) => {
                let interface = plan.next_hop.interface;
                // Without a ticket no key was taken.
                if let Some(Ticket { link, .. }) = ticket {
                    taken.iter().for_each(|key| self.links.give_back(interface, link, key));
                }
                result.and(Err(InterfaceError::Descriptors))
            }
        }
    }

    fn delegate_datagrams(
        &mut self,
        local: LocalNumber,
        waiting: UdpWaiting,
        taken: ExportedDatagrams,
    ) -> UdpDelegated {
        let Self { links, sessions, tokens, flows, inboxes, peer_inboxes, .. } = self;
        let UdpWaiting { stream, joined, ends, plan, .. } = waiting;
        let ExportedDatagrams { keys, ticket, sealed } = taken;
        let (token, next_hop) = (token(), plan.next_hop.clone());
        let datagrams = Some(of_it(&plan, &ends));
        let fd_name =
            FdName { datagrams, ..joined.fd_name(token, &ends, &ticket, next_hop.interface) };
        let Ticket { link, socket: packets, port, .. } = ticket;
        let inbox = peer_inboxes.descriptors(ends.peer.inbox).unwrap_or_default();
        let own = inboxes.descriptors(ends.own.inbox);
        let kept = Kept { fd_name, region: joined.region, inbox, own };
        links.keeping.hold(&kept, ends.peer_process.as_fd(), None, sealed.as_fd());
        flows.extend(keys.iter().map(|key| (*key, local)));
        tokens.insert(token, local);
        let (hop, ring) = (hop_of(&next_hop, port), links.ring());
        let (packets, record) = (packets.into(), sealed.into());
        let xdp = links.take_xdp(next_hop.interface, link);
        sessions.delegate(
            local,
            DelegateT { local: 0, token: token.0, hop, link: link.0, packets, ring, xdp, record },
        );
        UdpDelegated {
            stream,
            ends,
            plan,
            next_hop,
            keys,
            kept,
            is_known: true,
            frozen_at: None,
            is_told: false,
            home_by: None,
        }
    }

    /// Attends to a session away: once it is frozen its datagrams become the kernel's, and its
    /// library is told.
    pub(crate) fn attend_datagrams(&mut self, mut delegated: Box<UdpDelegated>) -> Outcome {
        if !delegated.stream.is_frozen() {
            return Outcome::Stay(Phase::UdpDelegated(delegated));
        }
        let home_by = delegated.home_by;
        if delegated.is_told {
            let phase = Phase::UdpDelegated(delegated);
            return match home_by {
                Some(limit) if limit <= now() => Outcome::End(phase),
                limit => Outcome::Look(phase, limit),
            };
        }
        // From here on no library claims the session.
        let is_carried = !delegated.stream.ledger().revoke();
        let at = now();
        let frozen_at = *delegated.frozen_at.get_or_insert(at);
        // The port's guard drops what its program sends once the rule is gone, so the rule stays
        // until the program has sent what it has.
        let has_port = delegated.kept.fd_name.port.is_some();
        if has_port && is_sending(&delegated.stream) && at < later(frozen_at, WITHDRAW_LIMIT_US) {
            let again = Some(later(at, TAKE_EVERY_US));
            return Outcome::Look(Phase::UdpDelegated(delegated), again);
        }
        delegated.is_told = true;
        for key in core::mem::take(&mut delegated.keys) {
            self.flows.remove(&key);
            self.links.give_back(delegated.next_hop.interface, delegated.kept.fd_name.link, &key);
        }
        // The library shall have the datagrams that are already on their way to it before it is
        // told.
        wait_for_softirqs();
        match is_carried {
            true => delegated.stream.set_flushing(0),
            false => delegated.stream.set_flushed(0),
        }
        delegated.stream.notify_peer();
        Outcome::Look(Phase::UdpDelegated(delegated), home_by)
    }

    /// Takes back the datagrams that the program has not read.
    pub(crate) fn datagrams_back(&self, key: &Key, delegated: &UdpDelegated, sealed: &OwnedFd) {
        match sojourn_pump::sealed::open(sealed) {
            Ok(record) => {
                if let Err(error) = say_again(&delegated.plan, &record) {
                    self.sessions.warn(format_args!("{key:?}: unread datagrams: {error}"));
                }
            }
            Err(error) => {
                self.sessions.warn(format_args!("{key:?}: what its program knows: {error}"));
            }
        }
        delegated.stream.set_flushed(0);
        delegated.stream.notify_peer();
    }

    /// Ends a session. Returns what has gone past the kernel, as its program has told it last.
    pub(crate) fn end_datagrams(&mut self, delegated: &UdpDelegated) -> Traffic {
        let fd_name = &delegated.kept.fd_name;
        self.tokens.remove(&fd_name.token);
        self.links.keeping.release(fd_name);
        for key in &delegated.keys {
            self.flows.remove(key);
            self.links.give_back(fd_name.interface, fd_name.link, key);
        }
        let_go(&delegated.stream);
        let counts = Counts::from_words(&delegated.stream.ledger().published());
        Traffic { sent: counts.sent_bytes, received: counts.received_bytes }
    }

    /// Tells a library how its session may send to an address.
    pub(crate) fn tell_route(&mut self, local: LocalNumber, to: IpAddr) {
        let Self { table, metastate, sessions, .. } = self;
        let Some(Session { phase: Phase::UdpDelegated(delegated), .. }) = table.get(&local) else {
            return;
        };
        let plan = &delegated.plan;
        let from = match plan.local.ip() {
            bound if !bound.is_unspecified() => Some(bound),
            _ => metastate.source(to).ok(),
        };
        let next_hop = from
            .filter(|from| from.is_ipv4() == to.is_ipv4() && !addresses::is_of_link(to))
            .and_then(|from| {
                // The port is not known, and rules that go by it are rare.
                let (from_port, to_port) = (plan.local.port(), 0);
                let flow = udp(SocketAddr::new(from, from_port), SocketAddr::new(to, to_port));
                Some((from, metastate.next_hop(&flow).ok()?))
            })
            .filter(|(_, next_hop)| next_hop.interface == delegated.next_hop.interface);
        let route = match next_hop {
            Some((from, next_hop)) => {
                let (from, hop) =
                    (mapped_into_ipv6(from), hop_of(&next_hop, delegated.kept.fd_name.port));
                RouteT { local: 0, to: mapped_into_ipv6(to), is_there: true, from, hop }
            }
            None => RouteT {
                local: 0,
                to: mapped_into_ipv6(to),
                is_there: false,
                from: [0; 16],
                hop: HopT { is_cut: true, has_addresses: false, own: [0; 6], next: [0; 6], mtu: 0 },
            },
        };
        sessions.tell_route(local, route);
    }
}

/// A session whose datagrams are turned away from the kernel: the keys, and where they go now.
struct ExportedDatagrams {
    keys: Vec<Key>,
    ticket: Ticket,
    /// A file with the record.
    sealed: OwnedFd,
}

/// Returns the facts about a session that the next server needs.
fn of_it(plan: &UdpPlan, ends: &JoinedEnds) -> OfDatagrams {
    OfDatagrams { cookie: plan.cookie, is_both: plan.is_both, own: ends.own }
}

/// Gives the record's datagrams to the kernel's socket. The library's word counts only where the
/// plan does not know better. Returns an error if a datagram is lost.
fn say_again(plan: &UdpPlan, record: &SessionRecord) -> Result<(), Errno> {
    let Kind::Udp(udp) = &record.kind else { return Ok(()) };
    let mut result = Ok(());
    for datagram in &udp.receive_queue {
        let receives_for = plan.remote.is_none_or(|remote| remote == datagram.source);
        // The program must not choose other target addresses.
        let to = plan.keys.iter().map(Key::local).find(|to| to.ip() == datagram.target);
        if let (true, Some(to)) = (receives_for, to) {
            // The others are given in any case.
            result = result.and(replay::datagram(datagram, to));
        }
    }
    result
}

fn udp(source: SocketAddr, target: SocketAddr) -> FlowKey {
    FlowKey { protocol: Protocol::Udp, source, target }
}

/// Lets the other side go on with the socket alone.
pub(crate) fn let_go(stream: &Stream) {
    stream.freeze();
    stream.set_flushed(0);
    stream.attention();
    stream.notify_peer();
}

/// Returns an address of the same family that nobody has (RFC 5737, RFC 3849).
fn nobody(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Opens any socket, for questions about interfaces.
fn socket() -> Option<OwnedFd> {
    rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None).ok()
}
