//! The interfaces that carried sessions go over: for each one a packet filter, and for each program
//! a packet socket: on the interface itself, or at the far end of a port
//! (`docs/understand/packet-path.md`).

use crate::clock::later;
use crate::keeping::Keeping;
use crate::label::Label;
use crate::metastate::{Mac, NextHop};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_filter::{
    AttachError, Filter, FlowError, Key, Method, Options, OwnerError, OwnerId, XdpMode,
};
use sojourn_ipc::rt::Descriptor;
use sojourn_netif::{OpenError, PacketOptions, Ring, RingLayout, packet};
use sojourn_proto::time::Instant;
use sojourn_pump::now;
use sojourn_session::RingT;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error(transparent)]
    Filter(#[from] AttachError),
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error("a packet socket: {0}")]
    Socket(#[from] OpenError),
    #[error("a port takes no datagrams without checksum")]
    NoChecksum,
    #[error("no descriptors left")]
    Descriptors,
}

/// What nobody uses stays for so long (microseconds), for the next: a filter takes a millisecond to
/// attach.
const LINGER_US: u64 = 1_000_000;

/// A keeper holds the filters, too.
const OPTIONS: Options = Options {
    sessions_max: 65536,
    method: Method::Automatic,
    xdp_mode: XdpMode::Generic,
    stays_attached: true,
};

/// The ring that a program's packet socket has: what fits its slots is seen without a system call.
/// Segments that offloads make do not, and are taken from the socket.
const RING: RingLayout = RingLayout { slot_len: 2048, slots: 512 };

/// How often it is looked for fragments while there are sessions (microseconds).
const FRAGMENTS_EVERY_US: u64 = 1_000_000;

/// A program's way to the packets of an interface.
struct Owner {
    id: OwnerId,
    /// The program's, see there.
    process: Descriptor,
    /// None if it is adopted.
    socket: Option<OwnedFd>,
    /// Of a port: the link address that its frames are sent from.
    port: Option<Mac>,
    sessions: usize,
    /// When the last of them left.
    idle_since: Instant,
    /// Of an earlier server: its program may have let go of it, and must not be given it again.
    is_adopted: bool,
}

/// One interface.
pub(crate) struct FilteredInterface {
    filter: Filter,
    /// By what their programs know them by.
    owners: HashMap<u64, Owner>,
    /// When it was attached, or the last owner went.
    idle_since: Instant,
}

/// What a program needs to take part in an interface.
pub(crate) struct Ticket {
    pub(crate) number: u64,
    pub(crate) owner: OwnerId,
    pub(crate) socket: OwnedFd,
    /// Of a port: the link address that its frames are sent from.
    pub(crate) port: Option<Mac>,
}

/// A program to be given packets.
#[derive(Clone)]
pub(crate) struct Program {
    /// Its process as its connection to the server has it: while somebody keeps this no other
    /// program has the same, also not one that the process becomes.
    pub(crate) process: Descriptor,
    /// It may have a packet socket on the interface itself; else it gets a port.
    pub(crate) may_have_packets: bool,
}

/// All of them, by the interfaces' numbers.
pub(crate) struct Links {
    links: HashMap<u32, FilteredInterface>,
    last: u64,
    /// That of a program's packet socket, if it has one.
    ring: Option<RingLayout>,
    /// When it is looked for fragments next.
    fragments_at: Instant,
    /// What the next server would need.
    pub(crate) keeping: Keeping,
}

/// How often it is looked whether a keeper that was let go of has ended (microseconds).
const CHILDREN_EVERY_US: u64 = 50_000;

impl Owner {
    /// Whether the program's next session may go this way. It may have given up its rights, or have
    /// become another one by execve(2), which knows nothing of the socket and where the kernel
    /// stands in its ring, and must not find there what came for the first.
    fn is_for(&self, program: &Program) -> bool {
        !self.is_adopted
            && self.process == program.process
            && self.port.is_none() == program.may_have_packets
    }
}

/// What an owner consists of.
type Made = (OwnerId, OwnedFd, Option<Mac>);

fn set_up(socket: BorrowedFd<'_>, ring: Option<RingLayout>) -> Result<(), OpenError> {
    packet::configure(socket, &PacketOptions::default())?;
    ring.map_or(Ok(()), |ring| Ring::prepare(socket, ring))
}

fn direct(filter: &mut Filter, ring: Option<RingLayout>) -> Result<Made, LinkError> {
    let (id, socket) = filter.add_owner(|socket| set_up(socket, ring).map_err(io::Error::other))?;
    Ok((id, socket, None))
}

fn port(filter: &mut Filter, ring: Option<RingLayout>) -> Result<Made, LinkError> {
    let port = filter.open_port()?;
    if let Err(error) = set_up(port.descriptor.as_fd(), ring) {
        let _ = filter.remove_owner(port.owner);
        return Err(error.into());
    }
    Ok((port.owner, port.descriptor, Some(port.mac.0)))
}

impl Links {
    /// None yet.
    pub(crate) fn new(keeping: Keeping, has_rings: bool) -> Self {
        let mut bytes = [0; 8];
        // Numbers of an earlier server are not to come again: programs may know them still. Without
        // randomness that is so by chance.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let last = u64::from_ne_bytes(bytes) >> 1;
        let ring = has_rings.then_some(RING);
        Self { links: HashMap::new(), last, ring, fragments_at: Instant::ZERO, keeping }
    }

    /// What a program is told of its packet socket's ring.
    pub(crate) fn ring(&self) -> RingT {
        let none = RingLayout { slot_len: 0, slots: 0 };
        let RingLayout { slot_len, slots } = self.ring.unwrap_or(none);
        RingT { slot_len, slots }
    }

    /// Sees to it that the interface of a next hop has its filter.
    pub(crate) fn open(&mut self, next_hop: &NextHop) -> Result<&mut FilteredInterface, LinkError> {
        Ok(match self.links.entry(next_hop.interface) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let filter = Filter::attach(&next_hop.name, OPTIONS)?;
                // Now, while nothing waits for it: starting a process takes a while.
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

    /// An interface's filter, of an earlier server. Its owners are known by its sessions.
    pub(crate) fn adopt(
        &mut self,
        index: u32,
        holdings: Vec<(String, OwnedFd)>,
    ) -> Result<(), LinkError> {
        let filter = Filter::adopt(holdings, OPTIONS)?;
        self.links
            .insert(index, FilteredInterface { filter, owners: HashMap::new(), idle_since: now() });
        Ok(())
    }

    /// An interface's number of an earlier server, and name, if its filter was adopted.
    pub(crate) fn name_of(&self, index: u32) -> Option<&str> {
        Some(&self.links.get(&index)?.filter.interface().name)
    }

    /// What the filter has for the owner in the label.
    pub(crate) fn keys_of(&self, label: &Label) -> Vec<Key> {
        let link = self.links.get(&label.interface);
        let all = link.into_iter().flat_map(|link| link.filter.flows());
        all.filter(|(_, owner)| *owner == OwnerId(label.owner)).map(|(key, _)| key).collect()
    }

    /// A session of an earlier server, as that has labelled it: the filter must say the same of it.
    /// False: it says something else.
    pub(crate) fn adopt_session(&mut self, label: &Label, key: &Key) -> bool {
        let Some(link) = self.links.get_mut(&label.interface) else { return false };
        let id = OwnerId(label.owner);
        if !link.filter.rule(key).is_ok_and(|rule| rule.owner == id) {
            return false;
        }
        // It is given to no other session: what its program still has of it is not known.
        let owner = link.owners.entry(label.link).or_insert_with(|| Owner {
            id,
            process: Descriptor::NONE,
            socket: None,
            port: label.port,
            sessions: 0,
            idle_since: now(),
            is_adopted: true,
        });
        owner.sessions += 1;
        owner.id == id
    }

    /// Gives everything to the kernel that no adopted session is about. The sessions that were
    /// nobody's.
    pub(crate) fn drop_unclaimed(&mut self, is_known: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        let mut unclaimed = Vec::new();
        for (index, link) in &mut self.links {
            let flows: Vec<_> = link.filter.flows().filter(|(key, _)| !is_known(key)).collect();
            for (key, _) in flows {
                let _ = link.filter.remove_flow(&key);
                unclaimed.push(key);
            }
            let known: Vec<_> = link.owners.values().map(|owner| owner.id).collect();
            let owners: Vec<_> = link.filter.sockets().map(|(owner, _)| owner).collect();
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

    /// Makes what a program needs for its first session on an interface, which takes a while and
    /// later would be waited for. What the program knows it by.
    pub(crate) fn prepare(
        &mut self,
        next_hop: &NextHop,
        program: Program,
    ) -> Result<u64, LinkError> {
        let (number, ring) = (self.last + 1, self.ring);
        let link = self.open(next_hop)?;
        link.filter.attach_hook()?;
        let known = link.owners.iter().find(|(_, owner)| owner.is_for(&program));
        if let Some((number, _)) = known {
            return Ok(*number);
        }
        let (id, socket, port) = match program.may_have_packets {
            true => direct(&mut link.filter, ring)?,
            false => port(&mut link.filter, ring)?,
        };
        let Program { process, .. } = program;
        let owner = Owner {
            id,
            process,
            socket: Some(socket),
            port,
            sessions: 0,
            idle_since: now(),
            is_adopted: false,
        };
        link.owners.insert(number, owner);
        if let Some(link) = self.links.get(&next_hop.interface) {
            self.keeping.link(next_hop.interface, &link.filter);
        }
        // Never used twice.
        self.last = number;
        Ok(number)
    }

    /// From now on the session's packets come to the program's socket, and the kernel does not see
    /// them.
    pub(crate) fn take(
        &mut self,
        next_hop: &NextHop,
        program: Program,
        key: Key,
    ) -> Result<Ticket, LinkError> {
        let number = self.prepare(next_hop, program)?;
        let link = self.open(next_hop)?;
        let owner = link.owners.get_mut(&number).ok_or(LinkError::Descriptors)?;
        let socket = owner.socket.as_ref().ok_or(LinkError::Descriptors)?;
        let socket =
            rustix::io::fcntl_dupfd_cloexec(socket, 0).map_err(|_| LinkError::Descriptors)?;
        link.filter.add_flow(key, owner.id)?;
        owner.sessions += 1;
        Ok(Ticket { number, owner: owner.id, socket, port: owner.port })
    }

    /// From now on they are the kernel's. `number` as in the ticket.
    pub(crate) fn give_back(&mut self, interface: u32, number: u64, key: &Key) {
        let Some(link) = self.links.get_mut(&interface) else { return };
        // Not being there is what is wanted.
        let _ = link.filter.release_flow(key);
        if let Some(owner) = link.owners.get_mut(&number) {
            owner.sessions -= 1;
            owner.idle_since = now();
        }
    }

    /// Lets go of sockets and filters that have not been used for a while. When to call this again.
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
                // While a copy is open the socket keeps its place among the others.
                keeping.forget_owner(*index, owner.id);
                drop(owner.socket);
                let _ = filter.remove_owner(owner.id);
                filter.detach_if_idle();
            }
            // Dropped, it is detached.
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

    /// Sessions for which fragments have come, looked for now and then; when to look again, if
    /// there are any sessions.
    pub(crate) fn take_fragmented(&mut self, at: Instant) -> (Vec<Key>, Option<Instant>) {
        let mut fragmented = Vec::new();
        if self.links.is_empty() {
            return (fragmented, None);
        }
        if at >= self.fragments_at {
            for link in self.links.values_mut() {
                fragmented.extend(link.filter.take_fragmented().unwrap_or_default());
            }
            self.fragments_at = later(at, FRAGMENTS_EVERY_US);
        }
        (fragmented, Some(self.fragments_at))
    }

    /// Looks at the interfaces again.
    pub(crate) fn refresh(&mut self) {
        for link in self.links.values_mut() {
            let _ = link.filter.refresh();
        }
    }
}
