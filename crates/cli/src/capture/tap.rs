//! The packet sockets of a capture: one for each interface, for received and sent frames.
//!
//! Not here: the sessions that the frames belong to (`sessions`).

use crate::output::note;
use anyhow::{Context as _, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use sojourn_filter::netlink;
use sojourn_netif::pcapng::{InterfaceId, Writer};
use sojourn_netif::{
    Interface as _, LinkError, LinkType, Message, OpenError, PacketOptions, packet,
};
use std::io::{self, BufWriter, Write};

/// The buffer holds the frames of one round on the fastest links. Without `CAP_NET_ADMIN` it is as
/// large as the system allows.
const OPTIONS: PacketOptions = PacketOptions {
    vnet: false,
    ignore_outgoing: false,
    qdisc_bypass: false,
    timestamps: true,
    receive_buffer: Some(64 << 20),
    send_buffer: None,
};
/// The most frames that one call takes.
const BUDGET: usize = 256;

/// The writer of the capture file.
pub(super) type Out = Writer<BufWriter<Box<dyn Write>>>;

/// A frame, in bytes that are borrowed or owned.
pub(super) struct Frame<B> {
    pub(super) bytes: B,
    pub(super) link: LinkType,
    /// Nanoseconds since 1970.
    pub(super) time_ns: u64,
}

impl Frame<&[u8]> {
    pub(super) fn owned(&self) -> Frame<Vec<u8>> {
        Frame { bytes: self.bytes.to_vec(), link: self.link, time_ns: self.time_ns }
    }
}

impl Frame<Vec<u8>> {
    pub(super) fn borrowed(&self) -> Frame<&[u8]> {
        Frame { bytes: &self.bytes, link: self.link, time_ns: self.time_ns }
    }
}

/// One interface.
pub(super) struct Tap {
    name: String,
    socket: Message,
    is_gone: bool,
    pub(super) index: u32,
    /// The interface's number in the capture file.
    pub(super) id: InterfaceId,
}

impl Tap {
    /// Hands over some of the frames that have arrived. Returns true if there may be more.
    pub(super) fn receive(&mut self, accept: &mut dyn FnMut(Frame<&[u8]>)) -> bool {
        let link = self.socket.properties().link;
        let mut room = Vec::new();
        let taken = self.socket.receive(BUDGET, &mut |received| {
            let time_ns = received.time_ns.unwrap_or_else(now_ns);
            let bytes = match received.tag.zip(received.frame.split_at_checked(12)) {
                None => received.frame,
                // The kernel has taken the VLAN tag out of the frame: the tag goes back behind the
                // two addresses.
                Some((tag, (addresses, rest))) => {
                    room.clear();
                    room.extend(addresses);
                    room.extend(tag.ether_type.0.to_be_bytes());
                    room.extend(tag.control.to_be_bytes());
                    room.extend(rest);
                    &room
                }
            };
            accept(Frame { bytes, link, time_ns });
        });
        match taken {
            Ok(count) => count == BUDGET,
            // The interface may come up again, so its socket stays.
            Err(LinkError::Down) => false,
            Err(error) => {
                if !self.is_gone {
                    note(&format!("{}: {error}", self.name));
                }
                self.is_gone = true;
                false
            }
        }
    }
}

/// The sockets of all interfaces. A socket is identified by its index here, which never changes.
pub(super) struct Taps(Vec<Tap>);

impl Taps {
    /// Makes an empty set, and tests that this process may open a packet socket.
    pub(super) fn new() -> Result<Self> {
        match packet::open(&OPTIONS) {
            Ok(_) => Ok(Self(Vec::new())),
            Err(error) => Err(explained(error)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn tap(&mut self, at: usize) -> Option<&mut Tap> {
        self.0.get_mut(at)
    }

    /// Opens a packet socket on an interface.
    pub(super) fn open(&mut self, name: &str, out: &mut Out) -> Result<()> {
        let socket = Message::open(name, &OPTIONS).map_err(explained);
        let socket = socket.with_context(|| format!("cannot capture from {name}"))?;
        let properties = socket.properties();
        let (link, index) = (properties.link, properties.index);
        let id = out.interface(name, link).context("cannot write the capture")?;
        note(&format!("capturing from {name}"));
        self.0.push(Tap { name: name.into(), socket, is_gone: false, index, id });
        Ok(())
    }

    /// Opens a packet socket on an interface that has none yet. An interface that has just gone is
    /// no error.
    pub(super) fn open_new(&mut self, name: &str, out: &mut Out) -> Result<()> {
        let is_open = |tap: &Tap| tap.name == name && !tap.is_gone;
        match self.0.iter().any(is_open) || netlink::by_name(name).is_err() {
            true => Ok(()),
            false => self.open(name, out),
        }
    }

    /// Opens a packet socket on every interface that can carry sessions with other hosts.
    pub(super) fn open_all(&mut self, out: &mut Out) -> Result<()> {
        for interface in netlink::interfaces().context("cannot look at the interfaces")? {
            if interface.is_up && interface.name != "lo" && interface.alias.is_empty() {
                self.open(&interface.name, out)?;
            }
        }
        Ok(())
    }

    /// Writes the counters of each interface. Returns the number of lost frames.
    pub(super) fn finish(&mut self, out: &mut Out, time_ns: u64) -> io::Result<u64> {
        let mut lost = 0;
        for tap in &mut self.0 {
            let counted = tap.socket.statistics();
            let dropped = counted.overruns + counted.truncated + counted.damaged;
            out.statistics(tap.id, time_ns, counted.received + dropped, dropped)?;
            lost += dropped;
        }
        Ok(lost)
    }
}

/// Adds advice for the user to an error.
fn explained(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::NotPermitted => anyhow!(
            "packets may be looked at with CAP_NET_RAW only: run this as root (sudo sojourn capture ...)"
        ),
        error => error.into(),
    }
}

/// Returns the time on the clock of the frames' stamps: nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
