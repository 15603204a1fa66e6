//! One look at the interfaces: whose each frame is, and where its payload goes.
//!
//! Most frames are handed over whole, and their session copies what is new into its stream. Two
//! ways save copies. A frame too long for a slot of a mapped ring waits in its socket's queue, and
//! its slot shows the headers: if it is just what its session expects next, the kernel copies it to
//! where it belongs, at once. And where that is may be the memory that a call wants it in
//! ([`Placement`]), if nothing that came before is left to be read. Not here: what the protocol
//! makes of a segment (`carried`).

use crate::datagrams::Sockets;
use crate::driven::{DrivenSessions, Flows};
use crate::in_transit::Unclaimed;
use crate::placement::{Marks, Placement, Sizes};
use sojourn_netif::{Accept, LinkType, Received, Scatter};
use sojourn_proto::time::Instant;
use sojourn_proto::udp::Envelope;
use sojourn_wire::frame::{self, Frame};
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp::{self, Flags};

/// The frame for which a place was named: of which session, and what its headers say.
struct Expected {
    number: u32,
    header: tcp::Header,
    marks: Marks,
    sizes: Sizes,
}

/// See the head of this file.
pub(crate) struct Round<'p, 'l, 'b> {
    /// What the frames begin with.
    pub(crate) link: LinkType,
    flows: &'p Flows,
    entries: &'p mut DrivenSessions,
    dirty: &'p mut Vec<u32>,
    sockets: &'p mut Sockets,
    unclaimed: &'p mut Unclaimed,
    placement: Option<&'l mut Placement<'b>>,
    at: Instant,
    expected: Option<Expected>,
}

impl<'p, 'l, 'b> Round<'p, 'l, 'b> {
    pub(crate) fn new(
        flows: &'p Flows,
        entries: &'p mut DrivenSessions,
        dirty: &'p mut Vec<u32>,
        sockets: &'p mut Sockets,
        unclaimed: &'p mut Unclaimed,
        placement: Option<&'l mut Placement<'b>>,
        at: Instant,
    ) -> Self {
        let (link, expected) = (LinkType::default(), None);
        Self { link, flows, entries, dirty, sockets, unclaimed, placement, at, expected }
    }
}

impl Accept for Round<'_, '_, '_> {
    #[inline]
    fn accept(&mut self, received: Received<'_>) {
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
        let Some(&number) = self.flows.get(&frame.key.reversed()) else {
            return self.unclaimed.keep(&frame, size, self.at);
        };
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let placement =
            self.placement.as_deref_mut().filter(|placement| placement.number == number);
        entry.arrived(&frame, size, placement, self.at);
        entry.mark(number, self.dirty);
        if entry.is_ending && is_reset(&frame) {
            // The kernel is to hear it: whoever has sent it may never say it again.
            self.unclaimed.keep(&frame, size, self.at);
        }
    }

    fn place(&mut self, start: &Received<'_>, len: usize) -> Option<Scatter<'_>> {
        self.expected = None;
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
        let (parts, sizes) = entry.carried.place(&header, len, placement)?;
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

    /// So that the call can have what came, before the next segment has to be put elsewhere.
    fn has_enough(&self) -> bool {
        self.placement.as_ref().is_some_and(|placement| placement.has_little_room())
    }
}

fn is_reset(frame: &Frame<'_>) -> bool {
    frame.segment().is_some_and(|segment| segment.flags().contains(Flags::RST))
}

/// The frame that was received, if it is one of a session's.
fn parse<'f>(received: &Received<'f>, link: LinkType) -> Option<Frame<'f>> {
    let frame = frame::parse(received.frame, link).ok()?;
    let is_right = !received.vnet.must_verify() || frame.checksum_is_right();
    is_right.then_some(frame)
}
