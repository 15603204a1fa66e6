//! The interfaces that carried sessions go over: for each one a packet filter and a packet socket.

use crate::metastate::Way;
use rustix::fd::AsFd;
use sojourn_filter::{AttachError, Filter, FlowError, Key, Options, OwnerError, OwnerId};
use sojourn_netif::{Interface, Message, OpenError, PacketOptions, packet};
use std::collections::HashMap;
use std::io;

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error(transparent)]
    Filter(#[from] AttachError),
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error(transparent)]
    Socket(#[from] OpenError),
}

/// One interface.
pub(crate) struct Link {
    filter: Filter,
    owner: OwnerId,
    pub(crate) packets: Box<dyn Interface>,
}

impl Link {
    fn open(way: &Way) -> Result<Self, LinkError> {
        let mut filter = Filter::attach(&way.name, Options::default())?;
        let prepare = |socket: rustix::fd::BorrowedFd<'_>| {
            packet::configure(socket.as_fd(), &PacketOptions::default()).map_err(io::Error::other)
        };
        let (owner, socket) = filter.add_owner(prepare)?;
        let packets = Box::new(Message::from_descriptor(socket)?);
        Ok(Self { filter, owner, packets })
    }

    /// From now on the session's packets come here, and the kernel does not see them.
    pub(crate) fn take(&mut self, key: Key) -> Result<(), FlowError> {
        self.filter.add_flow(key, self.owner)
    }

    /// From now on they are the kernel's.
    pub(crate) fn give_back(&mut self, key: &Key) {
        // Not being there is what is wanted.
        let _ = self.filter.remove_flow(key);
    }

    /// Looks at the interface again.
    pub(crate) fn refresh(&mut self) {
        let _ = self.filter.refresh();
        let _ = self.packets.refresh();
    }
}

/// All of them, by the interfaces' numbers.
#[derive(Default)]
pub(crate) struct Links(HashMap<u32, Link>);

impl Links {
    /// The interface of a way. Whether it is new, too: then it is to be watched.
    pub(crate) fn open(&mut self, way: &Way) -> Result<(&mut Link, bool), LinkError> {
        let is_new = !self.0.contains_key(&way.interface);
        if is_new {
            self.0.insert(way.interface, Link::open(way)?);
        }
        let link = self.0.get_mut(&way.interface);
        Ok((link.ok_or(OpenError::NoDevice)?, is_new))
    }

    pub(crate) fn link(&mut self, interface: u32) -> Option<&mut Link> {
        self.0.get_mut(&interface)
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Link> {
        self.0.values_mut()
    }
}
