//! Adding and removing owners: programs with a packet socket of the group, with AF_XDP sockets in
//! addition, or with a port.
//!
//! # Places in the group
//! The kernel keeps a group's members in an array and moves them: the last member takes the place
//! of one that leaves (`__fanout_unlink`); a member whose ring changes goes to the end; after the
//! interface was down the members are in the order in which they were made. The map of owners has
//! each member's place. This file writes the map when the server itself changes the group, for
//! which the server keeps a copy of each socket. The programs write it when a frame shows that a
//! member has another place (`heal` and `sojourn_sink` in `bpf/filter.bpf.c`). No other owner ever
//! gets the frame; it arrives anew until it has found its own. So that this is rare, the server
//! closes its copies only from the last place on, because then no member moves. A removed member
//! with later members behind it keeps its place until they have gone.

use crate::error::{Failed, OwnerError};
use crate::filter::Filter;
use crate::group::{Group, MEMBERS_MAX};
use crate::loader::{SELECT, SINK, SocketSlots, XSK_PLACES};
use crate::netlink;
use crate::owner::{Owner, SocketInode};
use crate::port::{self, Opened, Port, PortOptions};
use crate::rule::{OwnerId, Target};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use std::collections::HashSet;
use std::io;

/// The result of removing an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// The owner is removed completely.
    Gone,
    /// The owner's socket, which receives nothing any more, still exists: later members are behind
    /// it, or another process has it. `refresh`, and every change of the owners, check it again.
    StillHeld,
}

/// An owner with a packet socket.
#[derive(Debug)]
pub struct NewOwner {
    /// Its number.
    pub owner: OwnerId,
    /// The descriptor for the program.
    pub socket: OwnedFd,
}

impl Filter {
    /// Creates a packet socket for a program that may have access to the interface: `SOCK_RAW`,
    /// bound, in the group, with its filter locked. `prepare` may set options that must be set
    /// before the socket receives, such as `PACKET_VNET_HDR` and rings.
    ///
    /// # Errors
    /// [`OwnerError::Full`] if 4,095 programs have a socket; otherwise the kernel's error: `EPERM`
    /// without `CAP_NET_RAW`.
    pub fn add_owner(
        &mut self,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<NewOwner, OwnerError> {
        self.settle();
        if self.config.members >= MEMBERS_MAX {
            self.vacate();
        }
        if self.config.members >= MEMBERS_MAX {
            return Err(OwnerError::Full);
        }
        let owner = self.next_owner()?;
        let filter = self.template.load(owner)?;
        if self.group.is_none() {
            let (select, sink) = (self.loaded.program(SELECT)?, self.loaded.program(SINK)?);
            self.group = Some(Group::new(self.interface.index, select, sink)?);
            self.numbers.group = self.numbers.fresh();
        }
        let result = self.join(owner, filter.as_fd(), prepare);
        if result.is_err() {
            self.close_group_if_empty();
        }
        Ok(NewOwner { owner, socket: result? })
    }

    fn join(
        &mut self,
        owner: OwnerId,
        filter: BorrowedFd<'_>,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<OwnedFd, Failed> {
        let group = self.group.as_ref().ok_or_else(|| Failed::missing("the fanout group"))?;
        let socket = group.join(filter, prepare)?;
        let copy = socket.try_clone().map_err(Failed::at("copying a packet socket"))?;
        let place = SocketSlots { index: self.config.members, ..SocketSlots::default() };
        self.loaded.set_place(owner, place)?;
        self.set_members(self.config.members + 1)?;
        self.owners.insert(owner, Owner::Direct { socket: copy, has_xsks: false });
        Ok(socket)
    }

    /// Opens a port for a program that may not have access to the interface, with an AF_XDP socket
    /// if `has_xdp`.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_SYS_ADMIN`, which is needed to make a network name
    /// space.
    pub fn open_port(&mut self, has_xdp: bool) -> Result<Port, OwnerError> {
        let how = PortOptions { method: self.options.method, has_xdp };
        loop {
            let owner = self.next_owner()?;
            match port::open(&self.loaded, &self.interface, owner, &how)? {
                Opened::NameTaken => {}
                Opened::Port(port) => {
                    self.owners.insert(owner, Owner::Port { interface: port.interface });
                    return Ok(port);
                }
            }
        }
    }

    /// Gives an owner AF_XDP sockets in addition to its packet socket: one for each queue of the
    /// interface, from the first on. Its sessions' packets go to these sockets; packets of other
    /// queues still go to the packet socket.
    ///
    /// # Errors
    /// [`OwnerError::Unknown`] for an owner without packet socket, [`OwnerError::Full`] if there is
    /// no room for the sockets.
    pub fn set_xsks(
        &mut self,
        owner: OwnerId,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(), OwnerError> {
        let Some(Owner::Direct { has_xsks, .. }) = self.owners.get_mut(&owner) else {
            return Err(OwnerError::Unknown(owner));
        };
        *has_xsks = true;
        self.forget_xsks(owner);
        let mut place = self.loaded.place(owner).ok_or(OwnerError::Unknown(owner))?;
        place.queues = sockets.len() as u32;
        place.xsk = self.free_xsks(owner, place.queues).ok_or(OwnerError::Full)?;
        for (at, socket) in (place.xsk..).zip(sockets) {
            let set = self.loaded.xsks.set(at, *socket, 0);
            set.map_err(|error| Failed::other("recording an AF_XDP socket", error))?;
        }
        self.loaded.set_place(owner, place)?;
        for key in self.keys_of(owner) {
            self.attach_xdp()?;
            self.write_rule(&key, owner, Target::Xsk)?;
        }
        Ok(())
    }

    /// Returns the first of `wanted` consecutive free places.
    fn free_xsks(&self, owner: OwnerId, wanted: u32) -> Option<u32> {
        let others = self.owners.keys().filter(|other| **other != owner);
        let mut taken: Vec<_> = others
            .filter_map(|other| self.loaded.place(*other))
            .filter(|place| place.queues > 0)
            .map(|place| (place.xsk, place.xsk + place.queues))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, end) in taken {
            if start - at >= wanted {
                break;
            }
            at = end;
        }
        (at + wanted <= XSK_PLACES).then_some(at)
    }

    /// Removes an owner and its sessions' rules, so that their packets go to the kernel again. Call
    /// this when the sessions are home.
    ///
    /// # Errors
    /// [`OwnerError::Unknown`].
    pub fn remove_owner(&mut self, owner: OwnerId) -> Result<Removed, OwnerError> {
        if !self.owners.get(&owner).is_some_and(Owner::is_usable) {
            return Err(OwnerError::Unknown(owner));
        }
        for key in self.keys_of(owner) {
            // An error is ignored, because the owner is removed in any case.
            let _ = self.remove_flow(&key);
        }
        match self.owners.remove(&owner) {
            Some(Owner::Port { interface }) => {
                // The interface may be gone with its program.
                let _ = netlink::delete(interface);
                Ok(Removed::Gone)
            }
            Some(Owner::Direct { socket, .. }) => {
                self.forget_xsks(owner);
                self.owners.insert(owner, Owner::Vacant { socket });
                self.settle();
                let held = self.owners.contains_key(&owner);
                Ok(if held { Removed::StillHeld } else { Removed::Gone })
            }
            _ => Err(OwnerError::Unknown(owner)),
        }
    }

    fn forget_xsks(&mut self, owner: OwnerId) {
        let place = self.loaded.place(owner).unwrap_or_default();
        for at in place.xsk..place.xsk + place.queues {
            // The kernel removes a closed socket from the map itself, so an error is ignored.
            let _ = self.loaded.xsks.unset(at);
        }
    }

    /// Removes the members of removed owners at the end of the group, and those whose sockets are
    /// gone.
    pub(crate) fn settle(&mut self) {
        loop {
            self.settle_lingering();
            let last = self.config.members.saturating_sub(1);
            let place = |owner: &OwnerId| self.loaded.place(*owner).map(|place| place.index);
            let vacant = self.owners.iter().find_map(|(owner, kind)| {
                let is_vacant = matches!(kind, Owner::Vacant { .. });
                (is_vacant && place(owner) == Some(last)).then_some(*owner)
            });
            let Some(owner) = vacant else { break };
            self.close(owner);
        }
        self.close_group_if_empty();
    }

    /// Frees all places of removed owners; the members that move have to be found again.
    fn vacate(&mut self) {
        let is_vacant = |kind: &Owner| matches!(kind, Owner::Vacant { .. });
        let vacant = self.owners.iter().filter(|(_, kind)| is_vacant(kind));
        let vacant: Vec<_> = vacant.map(|(owner, _)| *owner).collect();
        for owner in vacant {
            self.close(owner);
            self.settle_lingering();
        }
    }

    /// Closes a removed owner's socket, of which another process may still have a copy.
    fn close(&mut self, owner: OwnerId) {
        let Some(Owner::Vacant { socket }) = self.owners.remove(&owner) else { return };
        // A socket whose inode cannot be read counts as gone.
        let inode = SocketInode(fstat(&socket).map_or(0, |found| found.st_ino));
        drop(socket);
        self.owners.insert(owner, Owner::Lingering { inode });
    }

    /// Removes the owners whose sockets are gone, and which have left the kernel's group.
    fn settle_lingering(&mut self) {
        let lingering: Vec<_> = self
            .owners
            .iter()
            .filter_map(|(owner, kind)| match kind {
                Owner::Lingering { inode } => Some((*owner, *inode)),
                _ => None,
            })
            .collect();
        if lingering.is_empty() {
            return;
        }
        // Without the list nothing is changed; the next call may succeed.
        let Ok(open) = packet_sockets() else { return };
        for (owner, inode) in lingering {
            if !open.contains(&inode) {
                self.left(owner);
            }
        }
    }

    /// Notes that a member left, and that the kernel has moved the last member to its place.
    fn left(&mut self, owner: OwnerId) {
        self.owners.remove(&owner);
        let place = self.loaded.place(owner);
        self.loaded.remove_place(owner);
        let last = self.config.members.saturating_sub(1);
        let mut others = self.owners.keys().copied();
        let moved =
            others.find(|other| self.loaded.place(*other).is_some_and(|at| at.index == last));
        if let (Some(place), Some(moved)) = (place, moved) {
            let at = self.loaded.place(moved).unwrap_or_default();
            // If this fails, the programs correct the place themselves.
            let _ = self.loaded.set_place(moved, SocketSlots { index: place.index, ..at });
        }
        let _ = self.set_members(last.max(1));
    }

    /// Writes the places anew after the interface was down: the members are in the order in which
    /// they were made.
    pub(crate) fn reorder(&mut self) -> Result<(), Failed> {
        let members: Vec<_> = self
            .owners
            .iter()
            .filter(|(_, owner)| !matches!(owner, Owner::Port { .. }))
            .map(|(owner, _)| *owner)
            .collect();
        for (index, owner) in (1..).zip(members) {
            let place = self.loaded.place(owner).unwrap_or_default();
            self.loaded.set_place(owner, SocketSlots { index, ..place })?;
        }
        Ok(())
    }

    fn set_members(&mut self, members: u32) -> Result<(), Failed> {
        self.config.members = members;
        self.loaded.set_config(&self.config)
    }

    fn close_group_if_empty(&mut self) {
        let is_over = |owner: &Owner| matches!(owner, Owner::Port { .. } | Owner::Vacant { .. });
        if self.owners.values().all(is_over) {
            let vacant = |owner: &Owner| matches!(owner, Owner::Vacant { .. });
            let over: Vec<_> =
                self.owners.iter().filter(|(_, kind)| vacant(kind)).map(|(id, _)| *id).collect();
            for owner in over {
                self.owners.remove(&owner);
                self.loaded.remove_place(owner);
            }
            self.group = None;
            self.config.members = 1;
        }
    }

    /// Returns a descriptor that becomes readable with an error when the interface goes down or
    /// away; `None` while no owner has a packet socket.
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.group.as_ref().map(Group::sink)
    }

    /// Returns a number that no owner had. The map stores the next number in the sink's place, for
    /// a server that takes over.
    fn next_owner(&mut self) -> Result<OwnerId, OwnerError> {
        let owner = OwnerId(self.next_owner);
        self.next_owner = self.next_owner.checked_add(1).ok_or(OwnerError::Full)?;
        self.loaded.set_place(
            OwnerId(0),
            SocketSlots { xsk: self.next_owner, ..SocketSlots::default() },
        )?;
        Ok(owner)
    }
}

/// Returns the inodes of this name space's packet sockets (proc(5)).
fn packet_sockets() -> io::Result<HashSet<SocketInode>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/packet")?;
    let inode = |line: &str| line.split_whitespace().next_back()?.parse().ok().map(SocketInode);
    Ok(text.lines().skip(1).filter_map(inode).collect())
}
