//! The interfaces of carried sessions: for each one a packet filter, and for each program a packet
//! socket, on the interface itself or at the far end of a port (`docs/understand/packet-path.md`).
//!
//! Not here: the filter itself (`sojourn_filter`).

use crate::clock::later;
use crate::fd_name::FdName;
use crate::keeping::Keeping;
use crate::metastate::{Mac, NextHop};
use crate::sessions::HandOver;
use crate::sockets::{InterfaceError, Made, SocketKinds, direct, port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use sojourn_filter::{Filter, Flow, Holding, Key, Method, Options, OwnerId, XdpMode};
use sojourn_ipc::rt::Descriptor;
use sojourn_proto::time::Instant;
use sojourn_pump::{LinkId, now};
use sojourn_session::RingT;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// How long an unused filter or socket stays for the next session (microseconds): a filter takes a
/// millisecond to attach.
const LINGER_US: u64 = 1_000_000;

/// The filter's options; it stays attached, because a keeper holds it, too.
const OPTIONS: Options = Options {
    sessions_max: 65536,
    method: Method::Automatic,
    xdp_mode: XdpMode::Generic,
    stays_attached: true,
};

/// Pause between two looks for fragments while there are sessions (microseconds).
const FRAGMENTS_EVERY_US: u64 = 1_000_000;

/// A program's way to the packets of an interface.
struct Owner {
    id: OwnerId,
    /// The program's process, see [`Program::process`].
    process: Descriptor,
    /// `None` if the owner is adopted.
    socket: Option<OwnedFd>,
    /// An AF_XDP socket, until the program gets it with a session.
    xdp: Option<OwnedFd>,
    /// The link address from which a port's frames are sent.
    port: Option<Mac>,
    sessions: usize,
    /// The time at which the last session left.
    idle_since: Instant,
    /// The owner is an earlier server's: its program may have dropped the socket, so it must not be
    /// given more sessions by it.
    is_adopted: bool,
}

/// One interface with its filter.
pub(crate) struct FilteredInterface {
    filter: Filter,
    /// The owners, by the names that their programs know.
    owners: HashMap<LinkId, Owner>,
    /// The time at which the filter was attached, or the last owner went.
    idle_since: Instant,
}

/// The things that a program needs for an interface.
pub(crate) struct Ticket {
    pub(crate) link: LinkId,
    pub(crate) owner: OwnerId,
    pub(crate) socket: OwnedFd,
    /// The link address from which a port's frames are sent.
    pub(crate) port: Option<Mac>,
}

/// A program that is to get packets.
#[derive(Clone)]
pub(crate) struct Program {
    /// The process, as its connection to the server has it. While somebody keeps this descriptor no
    /// other program has the same one, not even one that the process becomes by execve(2).
    pub(crate) process: Descriptor,
    /// The program may have a packet socket on the interface itself; otherwise it gets a port.
    pub(crate) may_have_packets: bool,
}

/// All interfaces with filters, by their numbers.
pub(crate) struct Links {
    links: HashMap<u32, FilteredInterface>,
    last: u64,
    kinds: SocketKinds,
    /// What a program gets for its packet socket.
    hand_over: HandOver,
    /// The time of the next look for fragments.
    fragments_at: Instant,
    /// The keeper, for the next server.
    pub(crate) keeping: Keeping,
}

/// Pause between two looks whether a keeper that was let go of has ended (microseconds).
const CHILDREN_EVERY_US: u64 = 50_000;

impl Owner {
    /// Returns true if the program's next session may use this owner. The program may have given up
    /// its rights. Or it may have become another one by execve(2): that one knows neither the
    /// socket nor the kernel's position in its ring, and must not find packets of the first there.
    fn is_for(&self, program: &Program) -> bool {
        !self.is_adopted
            && self.process == program.process
            && self.port.is_none() == program.may_have_packets
            && !self.has_hung_up()
    }

    /// Returns true if a driver had the packet socket and has died.
    fn has_hung_up(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(socket, PollFlags::empty())];
        // A packet socket shows errors, but never a hang-up.
        let _ = poll(&mut polled, Some(&now));
        polled[0].revents().contains(PollFlags::HUP)
    }
}

/// Sessions for which fragments have come.
pub(crate) struct Fragmented {
    pub(crate) sessions: Vec<Key>,
    /// The time of the next look, if there are any sessions.
    pub(crate) next: Option<Instant>,
}

impl Links {
    /// Starts without interfaces.
    pub(crate) fn new(keeping: Keeping, kinds: SocketKinds, hand_over: HandOver) -> Self {
        let mut bytes = [0; 8];
        // Numbers of an earlier server must not come again, because programs may still know them.
        // Without randomness they might.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let last = u64::from_ne_bytes(bytes) >> 1;
        Self { links: HashMap::new(), last, kinds, hand_over, fragments_at: Instant::ZERO, keeping }
    }

    /// Returns the layout of the ring of programs' packet sockets, as programs are told.
    pub(crate) fn ring(&self) -> RingT {
        self.kinds.ring_told()
    }

    /// Returns the interface of a next hop, after attaching a filter if need be.
    pub(crate) fn open(
        &mut self,
        next_hop: &NextHop,
    ) -> Result<&mut FilteredInterface, InterfaceError> {
        Ok(match self.links.entry(next_hop.interface) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let filter = Filter::attach(&next_hop.name, OPTIONS)?;
                // The keeper is started now, while nothing waits for it: starting a process takes a
                // while.
                self.keeping.ready();
                self.keeping.link(next_hop.interface, &filter);
                place.insert(FilteredInterface {
                    filter,
                    owners: HashMap::new(),
                    idle_since: now(),
                })
            }
        })
    }

    /// Adopts an interface's filter of an earlier server. Its owners become known by its sessions.
    pub(crate) fn adopt(
        &mut self,
        index: u32,
        holdings: Vec<Holding<OwnedFd>>,
    ) -> Result<(), InterfaceError> {
        let filter = Filter::adopt(holdings, OPTIONS)?;
        self.links
            .insert(index, FilteredInterface { filter, owners: HashMap::new(), idle_since: now() });
        Ok(())
    }

    /// Returns the name of an interface, if it has a filter.
    pub(crate) fn name_of(&self, index: u32) -> Option<&str> {
        Some(&self.links.get(&index)?.filter.interface().name)
    }

    /// Lists the keys that the filter has for the owner in the name.
    pub(crate) fn keys_of(&self, fd_name: &FdName) -> Vec<Key> {
        let link = self.links.get(&fd_name.interface);
        let all = link.into_iter().flat_map(|link| link.filter.flows());
        all.filter(|flow| flow.owner == fd_name.owner).map(|flow| flow.key).collect()
    }

    /// Adopts a session of an earlier server. Returns false if the filter does not agree with the
    /// name.
    pub(crate) fn adopt_session(&mut self, fd_name: &FdName, key: &Key) -> bool {
        let Some(link) = self.links.get_mut(&fd_name.interface) else { return false };
        let id = fd_name.owner;
        if !link.filter.rule(key).is_ok_and(|rule| rule.owner == id) {
            return false;
        }
        // The owner gets no other session: it is not known what its program still has of it.
        let owner = link.owners.entry(fd_name.link).or_insert_with(|| Owner {
            id,
            process: Descriptor::NONE,
            socket: None,
            xdp: None,
            port: fd_name.port,
            sessions: 0,
            idle_since: now(),
            is_adopted: true,
        });
        owner.sessions += 1;
        owner.id == id
    }

    /// Returns true if the kernel has the packets of a session of an earlier server: the filter of
    /// its interface is there, and has no rule for it.
    pub(crate) fn is_without_rule(&self, fd_name: &FdName, key: &Key) -> bool {
        self.links.get(&fd_name.interface).is_some_and(|link| link.filter.rule(key).is_err())
    }

    /// Gives the kernel all packets that no adopted session claims. Returns the keys of the rules
    /// that were removed.
    pub(crate) fn drop_unclaimed(&mut self, is_known: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        let mut unclaimed = Vec::new();
        for (index, link) in &mut self.links {
            let flows: Vec<_> = link.filter.flows().filter(|flow| !is_known(&flow.key)).collect();
            for Flow { key, .. } in flows {
                let _ = link.filter.remove_flow(&key);
                unclaimed.push(key);
            }
            let known: Vec<_> = link.owners.values().map(|owner| owner.id).collect();
            let owners: Vec<_> = link.filter.owners_with_sockets().collect();
            for owner in owners.into_iter().filter(|owner| !known.contains(owner)) {
                let _ = link.filter.remove_owner(owner);
            }
            self.keeping.link(*index, &link.filter);
        }
        unclaimed
    }

    /// Has a new keeper hold all filters.
    pub(crate) fn keep_anew(&mut self) {
        self.keeping.ready();
        for (index, link) in &self.links {
            self.keeping.link(*index, &link.filter);
        }
    }

    /// Makes what a program needs for its first session on an interface, before something waits for
    /// it. Returns the name by which the program knows it.
    pub(crate) fn prepare(
        &mut self,
        next_hop: &NextHop,
        program: Program,
    ) -> Result<LinkId, InterfaceError> {
        let (fresh, kinds) = (LinkId(self.last + 1), self.kinds);
        let link = self.open(next_hop)?;
        // Otherwise the first session would have to wait for the hook.
        link.filter.attach_hook()?;
        let known = link.owners.iter().find(|(_, owner)| owner.is_for(&program));
        if let Some((id, _)) = known {
            return Ok(*id);
        }
        let Made { id, socket, xdp, port } = match program.may_have_packets {
            true => direct(&mut link.filter, kinds)?,
            false => port(&mut link.filter, kinds)?,
        };
        let socket = match (self.hand_over)(socket) {
            Ok(socket) => socket,
            Err(error) => {
                let link = self.open(next_hop)?;
                let _ = link.filter.remove_owner(id);
                return Err(InterfaceError::Driver(error));
            }
        };
        let link = self.open(next_hop)?;
        let Program { process, .. } = program;
        let owner = Owner {
            id,
            process,
            socket: Some(socket),
            xdp,
            port,
            sessions: 0,
            idle_since: now(),
            is_adopted: false,
        };
        link.owners.insert(fresh, owner);
        if let Some(link) = self.links.get(&next_hop.interface) {
            self.keeping.link(next_hop.interface, &link.filter);
        }
        // No number is used twice.
        self.last = fresh.0;
        Ok(fresh)
    }

    /// Turns the session's packets away from the kernel, to the program's socket.
    pub(crate) fn take(
        &mut self,
        next_hop: &NextHop,
        program: Program,
        key: Key,
    ) -> Result<Ticket, InterfaceError> {
        let id = self.prepare(next_hop, program)?;
        let link = self.open(next_hop)?;
        let owner = link.owners.get_mut(&id).ok_or(InterfaceError::Descriptors)?;
        let socket = owner.socket.as_ref().ok_or(InterfaceError::Descriptors)?;
        let socket =
            rustix::io::fcntl_dupfd_cloexec(socket, 0).map_err(|_| InterfaceError::Descriptors)?;
        // Last, because from now on packets go to the program: nothing may fail any more.
        link.filter.add_flow(key, owner.id)?;
        owner.sessions += 1;
        Ok(Ticket { link: id, owner: owner.id, socket, port: owner.port })
    }

    /// Returns the AF_XDP socket that a program gets with a session, or none. It gets it once, so
    /// that the queue which it binds the socket to is free when the program has closed it.
    /// `id`: that of the ticket.
    pub(crate) fn take_xdp(&mut self, interface: u32, id: LinkId) -> Descriptor {
        let link = self.links.get_mut(&interface);
        let owner = link.and_then(|link| link.owners.get_mut(&id));
        let socket = owner.and_then(|owner| owner.xdp.take());
        socket.map_or(Descriptor::NONE, Descriptor::from)
    }

    /// Notes that no packet which came before [`Links::take`] is on its way to the kernel any more.
    pub(crate) fn settle(&mut self, interface: u32, key: &Key) {
        if let Some(link) = self.links.get_mut(&interface) {
            // If this fails the filter goes on as for a new session, which is nearly the same.
            let _ = link.filter.settle_flow(key);
        }
    }

    /// Gives the session's packets back to the kernel. `id`: that of the ticket.
    pub(crate) fn give_back(&mut self, interface: u32, id: LinkId, key: &Key) {
        let Some(link) = self.links.get_mut(&interface) else { return };
        // A rule that is not there is as good as a removed one.
        let _ = link.filter.release_flow(key);
        if let Some(owner) = link.owners.get_mut(&id) {
            owner.sessions -= 1;
            owner.idle_since = now();
        }
    }

    /// Gives the session's packets back to the kernel at once, whatever interface they come by.
    /// [`Links::give_back`] is still to follow.
    pub(crate) fn release_everywhere(&mut self, key: &Key) {
        for link in self.links.values_mut() {
            let _ = link.filter.release_flow(key);
        }
    }

    /// Returns the map with the rules of an interface's sessions, for an assistant, which gives a
    /// session's packets back by it. [`Links::give_back`] is still to follow.
    pub(crate) fn rules(&self, interface: u32) -> Option<Arc<OwnedFd>> {
        let rules = self.links.get(&interface)?.filter.rules()?;
        rules.try_clone_to_owned().ok().map(Arc::new)
    }

    /// Has no packet of the session pass its program's port, or all of them again.
    pub(crate) fn hold(&mut self, interface: u32, key: &Key, is_held: bool) {
        if let Some(link) = self.links.get_mut(&interface) {
            // A session without a rule has no packets here.
            let _ = link.filter.hold_flow(key, is_held);
        }
    }

    /// Lets go of sockets and filters that have not been used for a while. Returns the time of the
    /// next call.
    pub(crate) fn tidy(&mut self, at: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut is_over = |idle_since| {
            let over = later(idle_since, LINGER_US);
            if at < over {
                next = Some(next.map_or(over, |next: Instant| next.min(over)));
            }
            at >= over
        };
        let Self { links, keeping, .. } = self;
        links.retain(|index, FilteredInterface { filter, owners, idle_since }| {
            let mut leaves = |owner: &Owner| {
                owner.sessions == 0 && (owner.is_adopted || is_over(owner.idle_since))
            };
            let leaving: Vec<_> = owners.extract_if(|_, owner| leaves(owner)).collect();
            let some_leave = !leaving.is_empty();
            for (_, owner) in leaving {
                *idle_since = owner.idle_since;
                // An open duplicate would keep the socket's place in the filter.
                keeping.forget_owner(*index, owner.id);
                drop(owner.socket);
                let _ = filter.remove_owner(owner.id);
                filter.detach_if_idle();
            }
            // Dropping the filter detaches it.
            let stays = !owners.is_empty() || !is_over(*idle_since);
            if !stays {
                keeping.forget_link(*index);
            } else if some_leave {
                keeping.link(*index, filter);
            }
            stays
        });
        keeping.tidy();
        if keeping.is_ending() {
            let look = later(at, CHILDREN_EVERY_US);
            next = Some(next.map_or(look, |next: Instant| next.min(look)));
        }
        next
    }

    /// Lists sessions for which fragments have come, now and then.
    pub(crate) fn take_fragmented(&mut self, at: Instant) -> Fragmented {
        let mut sessions = Vec::new();
        if self.links.is_empty() {
            return Fragmented { sessions, next: None };
        }
        if at >= self.fragments_at {
            for link in self.links.values_mut() {
                sessions.extend(link.filter.take_fragmented().unwrap_or_default());
            }
            self.fragments_at = later(at, FRAGMENTS_EVERY_US);
        }
        Fragmented { sessions, next: Some(self.fragments_at) }
    }

    /// Reads the interfaces' properties again.
    pub(crate) fn refresh(&mut self) {
        for link in self.links.values_mut() {
            let _ = link.filter.refresh();
        }
    }
}
