//! Taking a filter over from a server that has died or is leaving: the filter's descriptors by
//! name, and the reverse.
//!
//! The process that holds the descriptors keeps the filter working; see the crate's head.

use crate::error::{AttachError, Failed};
use crate::filter::{Filter, Options};
use crate::group::Group;
use crate::holding_numbers::HoldingNumbers;
use crate::hook::Hook;
use crate::loader::{INGRESS, Loaded};
use crate::netlink;
use crate::owner::Owner;
use crate::port::{self, PortMarks};
use crate::rule::OwnerId;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;

const LINK: &str = "sojourn_link";
const XDP_LINK: &str = "sojourn_xdplink";
const GROUP: &str = "sojourn_group";
const MEMBER: &str = "sojourn_member";

/// A held descriptor with the number in its name.
struct Numbered {
    number: u32,
    fd: OwnedFd,
}

/// Keeps the later one of two descriptors: the server may have died between the holding of the next
/// one and the release of the one before.
fn keep_later(kept: &mut Option<Numbered>, found: Numbered) {
    if kept.as_ref().is_none_or(|kept| kept.number < found.number) {
        *kept = Some(found);
    }
}

/// Returns the name of an owner's packet socket in [`Filter::holdings`].
#[must_use]
pub fn holding_of(owner: OwnerId) -> String {
    format!("{MEMBER}{}", owner.0)
}

/// A descriptor that a filter needs.
#[derive(Debug)]
pub struct Holding<Fd> {
    /// Its name, of letters, digits and `_`.
    pub name: String,
    /// The descriptor, or a borrowed one.
    pub fd: Fd,
}

impl Filter {
    /// Returns every descriptor that the filter needs.
    ///
    /// Duplicates of these descriptors in another process keep the filter working when this process
    /// dies. A name means the same descriptor as long as the filter exists.
    pub fn holdings(&self) -> Vec<Holding<BorrowedFd<'_>>> {
        let named = |name: &str, fd| Holding { name: name.to_owned(), fd };
        let mut held: Vec<_> = self.loaded.fds().map(|held| named(held.name, held.fd)).collect();
        let numbered = |prefix: &str, number: u32, fd| named(&format!("{prefix}{number}"), fd);
        let HoldingNumbers { hook, xdp, group, .. } = self.numbers;
        held.extend(self.hook.as_ref().and_then(Hook::fd).map(|fd| numbered(LINK, hook, fd)));
        held.extend(self.xdp.as_ref().map(|fd| numbered(XDP_LINK, xdp, fd.as_fd())));
        held.extend(self.event_fd().map(|fd| numbered(GROUP, group, fd)));
        for (owner, kind) in &self.owners {
            if let Owner::Direct { socket, .. } = kind {
                held.push(named(&holding_of(*owner), socket.as_fd()));
            }
        }
        held
    }

    /// Returns the owners of packet sockets of which the filter has a copy.
    pub fn owners_with_sockets(&self) -> impl Iterator<Item = OwnerId> {
        let owners = self.owners.iter();
        owners.filter(|(_, kind)| matches!(kind, Owner::Direct { .. })).map(|(owner, _)| *owner)
    }

    /// Restores the filter from its descriptors with the names that [`Filter::holdings`] gave. Its
    /// sessions, owners and ports are as before; the interface is found by the programs'
    /// configuration.
    ///
    /// # Errors
    /// [`AttachError::Unavailable`] as [`Filter::attach`]; `ENODEV` if the interface is gone;
    /// `NotFound` if a descriptor is missing.
    pub fn adopt(holdings: Vec<Holding<OwnedFd>>, options: Options) -> Result<Self, AttachError> {
        let (mut fds, mut sockets) = (BTreeMap::new(), BTreeMap::new());
        let (mut link, mut xdp, mut sink) = (None, None, None);
        for Holding { name, fd } in holdings {
            let number_after = |prefix: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
            if let Some(known) = Loaded::known(&name) {
                fds.insert(known, fd);
            } else if let Some(member) = number_after(MEMBER) {
                sockets.insert(OwnerId(member), fd);
            } else if let Some(number) = number_after(LINK) {
                keep_later(&mut link, Numbered { number, fd });
            } else if let Some(number) = number_after(XDP_LINK) {
                keep_later(&mut xdp, Numbered { number, fd });
            } else if let Some(number) = number_after(GROUP) {
                keep_later(&mut sink, Numbered { number, fd });
            }
        }
        let loaded = Loaded::from_fds(fds)?;
        let config = loaded.config()?;
        let interface = netlink::by_index(config.interface);
        let interface = interface.map_err(Failed::at("finding the interface"))?;
        let mut filter = Self::new(interface, options, loaded, config.members)?;
        if let Some(Numbered { number, fd }) = xdp {
            filter.numbers.xdp = filter.numbers.adopted(number);
            filter.xdp = Some(fd);
        }
        if let Some(Numbered { number, fd }) = sink {
            filter.numbers.group = filter.numbers.adopted(number);
            filter.group = Some(Group::adopt(filter.interface.index, fd)?);
        }
        filter.adopt_owners(sockets)?;
        filter.take_over_sessions();
        filter.adopt_hook(link)?;
        filter.refresh()?;
        Ok(filter)
    }

    fn adopt_owners(&mut self, sockets: BTreeMap<OwnerId, OwnedFd>) -> Result<(), Failed> {
        // The sink's place in the map stores the next owner's number.
        self.next_owner = self.loaded.place(OwnerId(0)).map_or(1, |place| place.xsk);
        for (owner, socket) in sockets {
            let has_xsks = self.loaded.place(owner).is_some_and(|place| place.queues > 0);
            self.owners.insert(owner, Owner::Direct { socket, has_xsks });
        }
        let interfaces = netlink::interfaces().map_err(Failed::at("finding ports"))?;
        for found in &interfaces {
            match port::recognise(found) {
                Some(PortMarks { owner, real }) if real == self.interface.index => {
                    self.owners.insert(owner, Owner::Port { interface: found.index });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Restores the hook. If there are sessions and no link was held, the program was attached to a
    /// queueing discipline, and it is attached there again.
    fn adopt_hook(&mut self, link: Option<Numbered>) -> Result<(), Failed> {
        if let Some(Numbered { number, fd }) = link {
            self.numbers.hook = self.numbers.adopted(number);
            self.hook = Some(Hook::Link(fd));
        }
        if self.hook.is_none() && self.flows().next().is_some() {
            let program = self.loaded.program(INGRESS)?;
            let (index, method) = (self.interface.index, self.options.method);
            self.hook = Some(Hook::new(program, INGRESS, index, method)?);
            self.numbers.hook = self.numbers.fresh();
        }
        Ok(())
    }
}

/// Removes the ports of a server that died without a successor, whose sessions are lost. Returns
/// the number of ports.
///
/// # Errors
/// The kernel's error.
pub fn remove_ports(interface: u32) -> Result<usize, Failed> {
    let interfaces = netlink::interfaces().map_err(Failed::at("finding ports"))?;
    let ours = |found: &&netlink::Interface| {
        port::recognise(found).is_some_and(|port| port.real == interface)
    };
    let mut removed = 0;
    for found in interfaces.iter().filter(ours) {
        netlink::delete(found.index).map_err(Failed::at("removing a port"))?;
        removed += 1;
    }
    Ok(removed)
}
