//! One look at the interfaces: the session of each frame, and the place of its payload.
//!
//! Not here: the protocol's reaction to a segment (`carried`).
//!
//! # Theory of operation
//! Most frames are handed over whole, and their session copies new bytes into its stream. Two ways
//! save copies. A frame too long for a slot of a mapped ring waits in its socket's queue, and its
//! slot shows the headers: if the frame is the one that its session expects next, the kernel copies
//! it straight to its place. And that place may be the buffer of a call ([`Placement`]), if nothing
//! older is left to be read.

use crate::datagrams::Sockets;
use crate::driven::{DrivenSessions, Flows};
use crate::in_transit::Unclaimed;
use crate::placement::{Marks, Placement, Places, Sizes};
use crate::session_number::SessionNumber;
use crate::timing::IncomingPacket;
use sojourn_netif::{Accept, LinkType, Received, Scatter};
use sojourn_proto::time::Instant;
use sojourn_proto::udp::Envelope;
use sojourn_wire::frame::{self, Frame};
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp::{self, Flags};

/// A frame for which a place was given: its session, its headers' values, and the parts.
struct Expected {
    number: SessionNumber,
    header: tcp::Header,
    marks: Marks,
    sizes: Sizes,
}

/// The pump's tables that a look changes.
pub(crate) struct Tables<'p> {
    pub(crate) flows: &'p Flows,
    pub(crate) entries: &'p mut DrivenSessions,
    pub(crate) dirty: &'p mut Vec<SessionNumber>,
    pub(crate) sockets: &'p mut Sockets,
    pub(crate) unclaimed: &'p mut Unclaimed,
}

/// One look at the interfaces.
pub(crate) struct Round<'p, 'l, 'b> {
    /// The link type of the current interface's frames.
    pub(crate) link: LinkType,
    /// Packets are stamped, because times of a session's layers are wanted.
    pub(crate) is_timed: bool,
    flows: &'p Flows,
    entries: &'p mut DrivenSessions,
    dirty: &'p mut Vec<SessionNumber>,
    sockets: &'p mut Sockets,
    unclaimed: &'p mut Unclaimed,
    placement: Option<&'l mut Placement<'b>>,
    at: Instant,
    expected: Option<Expected>,
}

impl<'p, 'l, 'b> Round<'p, 'l, 'b> {
    pub(crate) fn new(
        tables: Tables<'p>,
        placement: Option<&'l mut Placement<'b>>,
        at: Instant,
    ) -> Self {
        let Tables { flows, entries, dirty, sockets, unclaimed } = tables;
        let (link, is_timed, expected) = (LinkType::default(), false, None);
        Self { link, is_timed, flows, entries, dirty, sockets, unclaimed, placement, at, expected }
    }
}

impl Accept for Round<'_, '_, '_> {
    #[inline]
    fn accept(&mut self, received: Received<'_>) {
        let mut coming = self.is_timed.then(|| IncomingPacket::begin(received.time_ns));
        let Some(frame) = parse(&received, self.link) else { return };
        let size = received.vnet.segments.map_or(0, |segments| segments.size);
        if let Some(datagram) = frame.datagram() {
            let envelope = Envelope {
                target: frame.key.target.ip(),
                traffic_class: frame.traffic_class.0,
                hop_limit: frame.hop_limit,
                time_ns: received.time_ns.unwrap_or(0),
            };
            let payload = datagram.payload();
            return self.sockets.arrived(frame.key, &envelope, payload, size, self.at);
        }
        // A frame that no session has, and that is TCP's, may be for a session on its way here or
        // home.
        let Some(&number) = self.flows.get(&frame.key.reversed()) else {
            return self.unclaimed.keep(&frame, size, self.at);
        };
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let placement =
            self.placement.as_deref_mut().filter(|placement| placement.number == number);
        if let Some(coming) = &mut coming {
            coming.parsed();
        }
        entry.arrived(&frame, size, placement, self.at);
        // What brings no bytes only acknowledges.
        if let Some(coming) = coming.filter(|_| !frame.payload().is_empty()) {
            coming.finish(entry.carried.stream());
        }
        entry.mark(number, self.dirty);
        if entry.is_ending && is_reset(&frame) {
            // The kernel has to hear of a reset, and the peer may never send it again.
            self.unclaimed.keep(&frame, size, self.at);
        }
    }

    fn place(&mut self, start: &Received<'_>, len: usize) -> Option<Scatter<'_>> {
        self.expected = None;
        // A checksum over bytes that are still in the kernel cannot be verified here.
        if start.vnet.must_verify() {
            return None;
        }
        let missing = len.checked_sub(start.frame.len())?;
        let frame = frame::parse_start(start.frame, self.link, missing).ok()?;
        let header = frame.segment()?.header();
        let number = *self.flows.get(&frame.key.reversed())?;
        let entry = self.entries.get_mut(&number).filter(|entry| !entry.is_ending)?;
        let placement =
            self.placement.as_deref_mut().filter(|placement| placement.number == number);
        let len = frame.payload().len() + missing;
        let Places { parts, sizes } = entry.carried.place(&header, len, placement)?;
        let segment_size = start.vnet.segments.map_or(0, |segments| segments.size);
        let congestion = frame.traffic_class.ecn() == Ecn::Congestion;
        let marks = Marks { segment_size, congestion };
        self.expected = Some(Expected { number, header, marks, sizes });
        Some(Scatter { at: frame.payload_at, parts })
    }

    fn placed(&mut self) {
        let Some(expected) = self.expected.take() else { return };
        let Expected { number, header, marks, sizes } = expected;
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let placement =
            self.placement.as_deref_mut().filter(|placement| placement.number == number);
        entry.carried.placed(&header, marks, sizes, placement, self.at);
        entry.mark(number, self.dirty);
    }

    /// Ends the look early, so that the call gets its bytes before the next segment would have to
    /// go elsewhere.
    fn has_enough(&self) -> bool {
        self.placement.as_ref().is_some_and(|placement| placement.has_little_room())
    }
}

fn is_reset(frame: &Frame<'_>) -> bool {
    frame.segment().is_some_and(|segment| segment.flags().contains(Flags::RST))
}

/// Parses a received frame; `None` if it is damaged or of another protocol.
fn parse<'f>(received: &Received<'f>, link: LinkType) -> Option<Frame<'f>> {
    let frame = frame::parse(received.frame, link).ok()?;
    let is_right = !received.vnet.must_verify() || frame.checksum_is_right();
    is_right.then_some(frame)
}
