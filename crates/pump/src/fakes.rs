//! For tests: a session between two ends in this process, and an interface of which both sides are
//! in the test's hands.

use crate::{Carried, LinkHop};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::BorrowedFd;
use sojourn_netif::{
    Accept, Interface, LinkError, Outgoing, Properties, Received, SendError, Statistics,
};
use sojourn_proto::record::{IpOptions, Kind, SessionRecord, TcpRecord};
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::Instant;
use sojourn_shm::{Access, NewSegment, Segment};
use sojourn_stream::{Inbox, Layout, SlotNumber, Stream};
use sojourn_wire::frame::{Fields, HEADERS_BYTES_MAX, Header, LinkType, Offload, PacketFields};
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp::{self, Flags, Options, SeqNum};
use sojourn_wire::{FlowKey, Protocol, vnet};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Returns the flow of a session whose own port is this, as its frames show it.
pub(crate) fn flow(port: u16) -> FlowKey {
    let (source, target) = (([192, 0, 2, 1], port).into(), ([192, 0, 2, 2], 80).into());
    FlowKey { protocol: Protocol::Tcp, source, target }
}

/// A segment from the IP header on, with that sequence number; it acknowledges nothing new.
pub(crate) fn packet(flow: FlowKey, seq: u32, payload: &[u8], offload: Offload) -> Vec<u8> {
    acknowledging(flow, 0, seq, payload, offload)
}

/// Makes a frame that also acknowledges all bytes before `ack`.
pub(crate) fn acknowledging(
    flow: FlowKey,
    ack: u32,
    seq: u32,
    payload: &[u8],
    offload: Offload,
) -> Vec<u8> {
    flagged(flow, (Flags::ACK, ack), seq, payload, offload)
}

/// The same, with flags of the caller's choice.
pub(crate) fn flagged(
    flow: FlowKey,
    (flags, ack): (Flags, u32),
    seq: u32,
    payload: &[u8],
    offload: Offload,
) -> Vec<u8> {
    let tcp = tcp::Header {
        source_port: 0,
        target_port: 0,
        seq: SeqNum(seq),
        ack: SeqNum(ack),
        flags,
        window: 65_535,
        urgent: 0,
        options: Options::NONE,
    };
    let header = Header::new(None, flow, Fields::default()).unwrap();
    let mut bytes = vec![0; HEADERS_BYTES_MAX];
    let emitted = header.emit_tcp(
        &tcp,
        &[payload],
        PacketFields { ecn: Ecn::Capable0, identification: 0, offload },
        &mut bytes,
    );
    bytes.truncate(emitted.unwrap().len);
    bytes.extend_from_slice(payload);
    bytes
}

fn inbox() -> Arc<Inbox> {
    let NewSegment { mapping: memory, .. } =
        Segment::create("test", Inbox::LEN, Access::ReadWrite).unwrap();
    let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    Arc::new(Inbox::new(memory, event(), event()).unwrap())
}

/// Both sides of a stream that has switched: the program's, and the carrying one.
pub(crate) fn streams() -> [Stream; 2] {
    let layout = Layout::new([4096; 2]).unwrap();
    let NewSegment { segment, .. } =
        Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
    let both = [0, 1].map(|side| {
        let mapping = segment.map(Access::ReadWrite).unwrap();
        Stream::new(mapping, layout, side, inbox(), SlotNumber(0)).unwrap()
    });
    for stream in &both {
        stream.consent();
        stream.use_ring();
    }
    both
}

/// A session of which nothing has been sent or received, and its program's side.
pub(crate) fn session(port: u16) -> (Stream, Carried) {
    let [program, carrying] = streams();
    let FlowKey { source, target, .. } = flow(port);
    let record = SessionRecord {
        local: source,
        remote: Some(target),
        ip: IpOptions::default(),
        kind: Kind::Tcp(TcpRecord::default()),
    };
    let hop = LinkHop { link: None, mtu: 1500, is_cut: false };
    // Each segment is a frame.
    let limits = Limits { gso_max_segments: 1, ..Limits::default() };
    let carried = Carried::new(carrying, &record, &hop, &limits, Instant::ZERO);
    (program, carried.unwrap())
}

/// The action of an interface for the bytes of a frame that is sent.
type Sent = Box<dyn FnMut(&[u8]) + Send>;

/// See the head of this file.
pub(crate) struct Wire {
    pub(crate) arriving: Arc<Mutex<VecDeque<Vec<u8>>>>,
    pub(crate) sent: Sent,
    /// The bytes of a longer frame that its taker sees first, as with a mapped ring.
    pub(crate) slot_len: usize,
    /// Frames of which something has gone to a place of its own.
    pub(crate) placed: Arc<Mutex<usize>>,
    /// The interface does not exist any more.
    pub(crate) is_gone: Arc<AtomicBool>,
    properties: Properties,
}

impl Wire {
    /// One on which nothing arrives, whatever is sent.
    pub(crate) fn new() -> Self {
        let (index, mtu, link) = (0, 1500, LinkType::Raw);
        let properties =
            Properties { index, mtu, link, address: None, checksum_offload: false, gso_max: 0 };
        let (slot_len, placed) = (usize::MAX, Arc::default());
        let (arriving, is_gone) = Default::default();
        Self { arriving, sent: Box::new(|_| {}), slot_len, placed, is_gone, properties }
    }

    /// As [`Interface::receive_to`] of one frame.
    fn hand(&mut self, frame: &[u8], accept: &mut dyn Accept) {
        let vnet = vnet::Header { checksum: vnet::Checksum::Valid, ..vnet::Header::NONE };
        let received = Received { vnet, frame, tag: None, time_ns: None };
        if frame.len() <= self.slot_len {
            return accept.accept(received);
        }
        let start = Received { frame: &frame[..self.slot_len], ..received };
        let Some(place) = accept.place(&start, frame.len()) else {
            return accept.accept(received);
        };
        let mut rest = &frame[place.at..];
        for part in place.parts {
            let (here, behind) = rest.split_at(part.len());
            part.copy_from_slice(here);
            rest = behind;
        }
        assert!(rest.is_empty(), "the parts are too short");
        accept.placed();
        *self.placed.lock().unwrap() += 1;
    }
}

impl Interface for Wire {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        struct Plain<'a>(&'a mut dyn FnMut(Received<'_>));
        impl Accept for Plain<'_> {
            fn accept(&mut self, received: Received<'_>) {
                (self.0)(received);
            }
        }
        self.receive_to(budget, &mut Plain(accept))
    }

    fn receive_to(&mut self, budget: usize, accept: &mut dyn Accept) -> Result<usize, LinkError> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(LinkError::Gone);
        }
        let mut count = 0;
        while count < budget && !accept.has_enough() {
            let Some(frame) = self.arriving.lock().unwrap().pop_front() else { break };
            self.hand(&frame, accept);
            count += 1;
        }
        Ok(count)
    }

    fn has_nothing(&self) -> bool {
        self.arriving.lock().unwrap().is_empty()
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        (self.sent)(&frame.parts.concat());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }
}
