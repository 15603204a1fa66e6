//! The interfaces that carried sessions go over: for each one a packet filter, and for each program a packet socket: on the interface
//! itself, or at the far end of a port (`docs/packet-path.md`).

use crate::carrier::later;
use crate::metastate::{Mac, Way};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_filter::{AttachError, Filter, FlowError, Key, Options, OwnerError, OwnerId};
use sojourn_ipc::rt::Descriptor;
use sojourn_netif::{OpenError, PacketOptions, Ring, RingLayout, packet};
use sojourn_proto::time::Instant;
use sojourn_pump::now;
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

/// What nobody uses stays for so long (microseconds), for the next: a filter takes a millisecond to attach.
const LINGER_US: u64 = 1_000_000;

/// The ring that a program's packet socket has: what fits its slots is seen without a system call. Segments that offloads make do not, and are
/// taken from the socket.
pub(crate) const RING: RingLayout = RingLayout { slot_len: 2048, slots: 512 };

/// How often it is looked for fragments while there are sessions (microseconds).
const FRAGMENTS_EVERY_US: u64 = 1_000_000;

/// A program's way to the packets of an interface.
struct Owner {
    id: OwnerId,
    /// The program's, see there.
    process: Descriptor,
    socket: OwnedFd,
    /// Of a port: the link address that its frames are sent from.
    port: Option<Mac>,
    sessions: usize,
    /// When the last of them left.
    idle_since: Instant,
}

/// One interface.
pub(crate) struct Link {
    filter: Filter,
    /// By what their programs know them by.
    owners: HashMap<u64, Owner>,
    /// When it was attached, or the last owner went.
    idle_since: Instant,
}

/// What a program needs to take part in an interface.
pub(crate) struct Ticket {
    pub(crate) number: u64,
    pub(crate) socket: OwnedFd,
    /// Of a port: the link address that its frames are sent from.
    pub(crate) port: Option<Mac>,
}

/// A program to be given packets.
#[derive(Clone)]
pub(crate) struct Program {
    /// Its process as its connection to the server has it: while somebody keeps this no other program has the same, also not one that
    /// the process becomes.
    pub(crate) process: Descriptor,
    /// It may have a packet socket on the interface itself; else it gets a port.
    pub(crate) may_have_packets: bool,
}

/// All of them, by the interfaces' numbers.
pub(crate) struct Links {
    links: HashMap<u32, Link>,
    last: u64,
    /// When it is looked for fragments next.
    fragments_at: Instant,
}

impl Default for Links {
    fn default() -> Self {
        Self { links: HashMap::new(), last: 0, fragments_at: Instant::ZERO }
    }
}

impl Owner {
    /// Whether the program's next session may go this way. It may have given up its rights, or have become another one by execve(2), which
    /// knows nothing of the socket and where the kernel stands in its ring, and must not find there what came for the first.
    fn is_for(&self, program: &Program) -> bool {
        self.process == program.process && self.port.is_none() == program.may_have_packets
    }
}

/// What an owner consists of.
type Made = (OwnerId, OwnedFd, Option<Mac>);

fn set_up(socket: BorrowedFd<'_>) -> Result<(), OpenError> {
    packet::configure(socket, &PacketOptions::default())?;
    Ring::prepare(socket, RING)
}

fn direct(filter: &mut Filter) -> Result<Made, LinkError> {
    let (id, socket) = filter.add_owner(|socket| set_up(socket).map_err(io::Error::other))?;
    Ok((id, socket, None))
}

fn port(filter: &mut Filter) -> Result<Made, LinkError> {
    let port = filter.open_port()?;
    if let Err(error) = set_up(port.descriptor.as_fd()) {
        let _ = filter.remove_owner(port.owner);
        return Err(error.into());
    }
    Ok((port.owner, port.descriptor, Some(port.mac.0)))
}

impl Links {
    /// Sees to it that the interface of a way has its filter.
    pub(crate) fn open(&mut self, way: &Way) -> Result<&mut Link, LinkError> {
        Ok(match self.links.entry(way.interface) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let filter = Filter::attach(&way.name, Options::default())?;
                place.insert(Link { filter, owners: HashMap::new(), idle_since: now() })
            }
        })
    }

    /// Makes what a program needs for its first session on an interface, which takes a while and later would be waited for. What the program
    /// knows it by.
    pub(crate) fn prepare(&mut self, way: &Way, program: Program) -> Result<u64, LinkError> {
        let number = self.last + 1;
        let link = self.open(way)?;
        link.filter.attach_hook()?;
        let known = link.owners.iter().find(|(_, owner)| owner.is_for(&program));
        if let Some((number, _)) = known {
            return Ok(*number);
        }
        let (id, socket, port) = match program.may_have_packets {
            true => direct(&mut link.filter)?,
            false => port(&mut link.filter)?,
        };
        let Program { process, .. } = program;
        let owner = Owner { id, process, socket, port, sessions: 0, idle_since: now() };
        link.owners.insert(number, owner);
        // Never used twice.
        self.last = number;
        Ok(number)
    }

    /// From now on the session's packets come to the program's socket, and the kernel does not see them.
    pub(crate) fn take(
        &mut self,
        way: &Way,
        program: Program,
        key: Key,
    ) -> Result<Ticket, LinkError> {
        let number = self.prepare(way, program)?;
        let link = self.open(way)?;
        let owner = link.owners.get_mut(&number).ok_or(LinkError::Descriptors)?;
        let socket = rustix::io::fcntl_dupfd_cloexec(&owner.socket, 0)
            .map_err(|_| LinkError::Descriptors)?;
        link.filter.add_flow(key, owner.id)?;
        owner.sessions += 1;
        Ok(Ticket { number, socket, port: owner.port })
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
        self.links.retain(|_, Link { filter, owners, idle_since }| {
            let mut leaves = |owner: &Owner| owner.sessions == 0 && is_over(owner.idle_since);
            let leaving: Vec<_> = owners.extract_if(|_, owner| leaves(owner)).collect();
            for (_, owner) in leaving {
                *idle_since = owner.idle_since;
                // While this copy is open the socket keeps its place among the others.
                drop(owner.socket);
                let _ = filter.remove_owner(owner.id);
                filter.detach_if_idle();
            }
            // Dropped, it is detached.
            !owners.is_empty() || !is_over(*idle_since)
        });
        next
    }

    /// Sessions for which fragments have come, looked for now and then; when to look again, if there are any sessions.
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
