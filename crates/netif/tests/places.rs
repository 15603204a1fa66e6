//! Long frames of a mapped ring whose payload is copied by the kernel straight to the receiver's
//! destination, over a veth pair.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::frames::{self, Front, NOBODY, pattern, probe, send_now};
use common::{FAR_DEVICE, LIMIT, Lab, NEAR_DEVICE, wait};
use sojourn_netif::{
    Accept, Interface, LinkType, Message, Outgoing, PacketOptions, Received, Ring, RingLayout,
    Scatter,
};
use sojourn_wire::Protocol;
use sojourn_wire::frame::{self, Offload};
use sojourn_wire::tcp::Flags;
use std::time::Instant;

const PAYLOAD: usize = 60_000;

/// The receiver's reaction to a long frame.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    /// Gives a destination of three parts, one of them empty.
    Parts,
    /// Gives a destination that is a byte too short.
    TooShort,
    /// Gives no destination.
    Nowhere,
}

struct Taker {
    choice: Choice,
    rooms: [Vec<u8>; 2],
    /// The frames that were accepted whole; `placed` counts those copied to their destination.
    whole: Vec<Vec<u8>>,
    placed: usize,
    enough: usize,
}

impl Taker {
    fn new(choice: Choice) -> Self {
        Self { choice, rooms: [vec![], vec![]], whole: vec![], placed: 0, enough: usize::MAX }
    }

    fn count(&self) -> usize {
        self.whole.len() + self.placed
    }
}

impl Accept for Taker {
    fn accept(&mut self, received: Received<'_>) {
        self.whole.push(received.frame.to_vec());
    }

    fn place(&mut self, start: &Received<'_>, len: usize) -> Option<Scatter<'_>> {
        assert!(!start.vnet.must_verify() && start.vnet.segments.is_some());
        let missing = len - start.frame.len();
        let frame = frame::parse_start(start.frame, LinkType::Ethernet, missing).unwrap();
        assert_eq!(len - frame.payload_at, PAYLOAD);
        let short = match self.choice {
            Choice::Parts => 0,
            Choice::TooShort => 1,
            Choice::Nowhere => return None,
        };
        let [one, two] = &mut self.rooms;
        one.resize(33_333, 0);
        two.resize(PAYLOAD - 33_333 - short, 0);
        Some(Scatter { at: frame.payload_at, parts: [one, &mut [], two] })
    }

    fn placed(&mut self) {
        self.placed += 1;
    }

    fn has_enough(&self) -> bool {
        self.count() >= self.enough
    }
}

struct World {
    near: Ring,
    far: Message,
    payload: Vec<u8>,
    _lab: Lab,
}

impl World {
    fn new() -> Option<Self> {
        let lab = Lab::new()?;
        let (options, layout) = (PacketOptions::default(), RingLayout { slot_len: 256, slots: 64 });
        let near = lab.near(|| Ring::open(NEAR_DEVICE, &options, layout).unwrap());
        let far = lab.far(|| Message::open(FAR_DEVICE, &options).unwrap());
        let mut world = Self { near, far, payload: pattern(PAYLOAD, 3), _lab: lab };
        while world.near.receive(64, &mut |_| ()).unwrap() > 0 {}
        world.send_long();
        // Frames that the two kernels exchanged come first.
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut is_there = false;
            world
                .near
                .receive(64, &mut |received| is_there |= received.frame.len() > PAYLOAD)
                .unwrap();
            if is_there {
                return Some(world);
            }
            assert!(wait(&world.near, deadline), "the link does not carry");
        }
    }

    fn send_long(&mut self) {
        let flow = frames::flow(Protocol::Tcp, 1000, 2000);
        let headers = frames::headers(LinkType::Ethernet, NOBODY, NOBODY, flow);
        let tcp = frames::tcp_header(1, 2, Flags::ACK | Flags::PSH);
        let front = Front::tcp(&headers, &tcp, &[&self.payload], Offload::Segments(1448));
        send_now(&mut self.far, &front.with(&self.payload, &[])).unwrap();
    }

    fn send_short(&mut self) {
        send_now(&mut self.far, &Outgoing::plain(&probe(LinkType::Ethernet, 100, 1))).unwrap();
    }

    /// Receives until `count` frames have been taken.
    fn take(&mut self, taker: &mut Taker, count: usize) {
        let deadline = Instant::now() + LIMIT;
        while taker.count() < count {
            self.near.receive_to(64, taker).unwrap();
            assert!(wait(&self.near, deadline), "{count} frames");
        }
    }
}

#[test]
fn a_long_frame_goes_where_it_belongs_and_short_ones_as_ever() {
    let Some(mut world) = World::new() else { return };
    world.send_short();
    world.send_long();
    world.send_short();
    let mut taker = Taker::new(Choice::Parts);
    world.take(&mut taker, 3);
    assert_eq!((taker.placed, taker.whole.len()), (1, 2));
    assert!(taker.rooms.concat() == world.payload);
    let short = probe(LinkType::Ethernet, 100, 1);
    assert!(taker.whole.iter().all(|frame| *frame == short));
}

#[test]
fn a_frame_that_belongs_nowhere_or_does_not_fit_is_handed_over_whole() {
    let Some(mut world) = World::new() else { return };
    for choice in [Choice::Nowhere, Choice::TooShort, Choice::Parts] {
        world.send_long();
        world.send_short();
        let mut taker = Taker::new(choice);
        world.take(&mut taker, 2);
        let is_placed = choice == Choice::Parts;
        assert_eq!((taker.placed, taker.whole.len()), if is_placed { (1, 1) } else { (0, 2) });
        let found = if is_placed { taker.rooms.concat() } else { taker.whole.swap_remove(0) };
        assert!(found.ends_with(&world.payload));
    }
    assert_eq!(world.near.statistics().damaged, 0);
}

#[test]
fn what_is_more_than_enough_stays_where_it_is() {
    let Some(mut world) = World::new() else { return };
    (0..3).for_each(|_| world.send_long());
    let mut taker = Taker::new(Choice::Parts);
    taker.enough = 2;
    world.take(&mut taker, 2);
    assert_eq!(world.near.receive_to(64, &mut taker), Ok(0));
    assert!(!world.near.has_nothing());
    taker.enough = 3;
    world.take(&mut taker, 3);
    assert!(world.near.has_nothing());
}
