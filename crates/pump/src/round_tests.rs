//! Where payload is placed: in the ring, in a call's memory, or nowhere. The interface shows the
//! beginnings of long frames first.

use crate::fakes::{Wire, flow, packet, session};
use crate::{LinkId, Placement, Pump, SessionNumber};
use proptest::prelude::*;
use sojourn_proto::record::Kind;
use sojourn_proto::time::Instant;
use sojourn_stream::Stream;
use sojourn_wire::frame::Offload;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::{Arc, Mutex};

const LINK: LinkId = LinkId(1);
/// The number of the session in the pump.
const NUMBER: SessionNumber = SessionNumber::new(7);
const AT: Instant = Instant::ZERO;
/// Headers are 40 bytes here.
const SLOT: usize = 200;
/// Of the streams that `fakes` makes.
const RING: usize = 4096;

struct World {
    pump: Pump,
    program: Stream,
    arriving: Arc<Mutex<VecDeque<Vec<u8>>>>,
    placed: Arc<Mutex<usize>>,
}

/// The `len` bytes of the peer's stream from `seq` on.
fn bytes(seq: usize, len: usize) -> Vec<u8> {
    (seq..seq + len).map(|at| (at ^ at >> 8) as u8).collect()
}

impl World {
    fn new() -> Self {
        let mut wire = Wire::new();
        wire.slot_len = SLOT;
        let (arriving, placed) = (Arc::clone(&wire.arriving), Arc::clone(&wire.placed));
        let mut pump = Pump::default();
        pump.add_link(LINK, Box::new(wire), AT);
        let (program, carried) = session(1);
        pump.insert(NUMBER, LINK, carried, AT);
        pump.turn(false, AT);
        Self { pump, program, arriving, placed }
    }

    fn arrive(&self, seq: usize, len: usize) {
        let packet = packet(flow(1).reversed(), seq as u32, &bytes(seq, len), Offload::Nothing);
        self.arriving.lock().unwrap().push_back(packet);
    }

    /// Returns the bytes that a call with room for `len` bytes gets by turning the pump.
    fn place(&mut self, len: usize) -> Vec<u8> {
        let mut room = vec![0xee; len];
        let mut placement = Placement::new(NUMBER, &mut room);
        self.pump.turn_for(Some(&mut placement), false, AT);
        let done = placement.done();
        self.program.got_beside(done);
        room.truncate(done);
        room
    }

    /// Returns the bytes in the ring.
    fn read(&self, len: usize) -> Vec<u8> {
        let mut room = vec![0; len];
        let len = self.program.read(&mut [IoSliceMut::new(&mut room)], false).unwrap_or(0);
        room.truncate(len);
        room
    }

    fn placed(&self) -> usize {
        *self.placed.lock().unwrap()
    }
}

#[test]
fn a_long_segment_lands_in_the_ring_beyond_its_end_as_well() {
    let mut world = World::new();
    for (count, seq) in [0, 1500, 3000].into_iter().enumerate() {
        world.arrive(seq, 1500);
        assert!(world.pump.turn(false, AT));
        assert_eq!(world.placed(), count + 1);
        assert_eq!(world.read(RING), bytes(seq, 1500));
    }
}

#[test]
fn a_call_gets_what_comes_next_and_the_ring_what_is_beyond_its_room() {
    let mut world = World::new();
    world.arrive(0, 1000);
    world.arrive(1000, 100);
    world.arrive(1100, 1000);
    assert_eq!(world.place(2000), bytes(0, 2000), "copied by whoever, and by us");
    assert_eq!(world.read(RING), bytes(2000, 100));
    assert_eq!(world.placed(), 2);
    assert_eq!(world.program.totals().received, 2100);
}

#[test]
fn a_call_that_has_enough_leaves_the_next_segment_where_it_is() {
    let mut world = World::new();
    (0..4).for_each(|number| world.arrive(number * 1000, 1000));
    assert_eq!(world.place(2500), bytes(0, 2000));
    assert_eq!(world.arriving.lock().unwrap().len(), 2);
    assert_eq!(world.place(2500), bytes(2000, 2000));
}

#[test]
fn nothing_overtakes_what_is_left_to_be_read() {
    let mut world = World::new();
    world.arrive(0, 10);
    world.pump.turn(false, AT);
    world.arrive(10, 1000);
    world.arrive(1010, 20);
    assert_eq!(world.place(5000), b"");
    assert_eq!(world.read(RING), bytes(0, 1030));
    assert_eq!(world.placed(), 1, "in the ring");
}

#[test]
fn beyond_a_gap_nothing_lands() {
    let mut world = World::new();
    world.arrive(1000, 1000);
    assert_eq!(world.place(5000), b"");
    world.arrive(0, 1000);
    assert_eq!((world.place(5000), world.placed()), (vec![], 0));
    assert_eq!(world.read(RING), bytes(0, 2000));
}

#[test]
fn a_session_that_goes_home_takes_along_what_has_not_landed() {
    let mut world = World::new();
    world.arrive(0, 1000);
    assert_eq!(world.place(5000), bytes(0, 1000));
    world.arrive(1000, 1000);
    world.program.freeze();
    assert_eq!(world.place(5000), b"");
    let record = world.pump.remove(NUMBER, AT).unwrap().leave(AT).unwrap();
    let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
    assert_eq!((tcp.rcv_nxt, &tcp.receive_queue), (2000, &bytes(1000, 1000)));
}

#[test]
fn a_segment_longer_than_the_ring_has_room_waits_with_the_connection() {
    let mut world = World::new();
    world.arrive(0, 3000);
    world.arrive(3000, 3000);
    world.pump.turn(false, AT);
    assert_eq!(world.placed(), 1);
    assert_eq!(world.read(RING), bytes(0, RING));
    world.pump.mark(NUMBER);
    world.pump.turn(false, AT);
    assert_eq!(world.read(RING), bytes(RING, 6000 - RING));
}

/// A step of a peer or a program.
#[derive(Clone, Debug)]
enum Step {
    /// A segment of that many bytes, so far behind or beyond what comes next.
    Arrive(i32, usize),
    Place(usize),
    Turn,
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let away = prop_oneof![4 => Just(0), 1 => -1500..1500i32];
    prop_oneof![
        4 => (away, 1..2000usize).prop_map(|(away, len)| Step::Arrive(away, len)),
        3 => (0..3000usize).prop_map(Step::Place),
        1 => Just(Step::Turn),
        2 => (0..5000usize).prop_map(Step::Read),
    ]
}

proptest! {
    /// Whatever comes in whatever order, and wherever it is placed, the program gets the peer's
    /// bytes, each once.
    #[test]
    fn the_stream_is_whole(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        let (mut got, mut sent): (Vec<u8>, usize) = Default::default();
        let finish = [Step::Arrive(0, 1), Step::Place(9000), Step::Turn, Step::Read(RING)];
        for step in steps.into_iter().chain(finish.iter().cycle().take(40).cloned()) {
            match step {
                Step::Arrive(away, len) => {
                    let from = (sent as i32 + away).max(0) as usize;
                    world.arrive(from, len);
                    if from <= sent {
                        sent = sent.max(from + len);
                    }
                }
                // As a call does: it is placed only when the ring has nothing.
                Step::Place(len) if world.program.available() == Ok(0) => {
                    let placed = world.place(len);
                    prop_assert!(placed.len() <= len);
                    got.extend(placed);
                }
                Step::Place(_) | Step::Turn => {
                    world.pump.mark(NUMBER);
                    world.pump.turn(false, AT);
                }
                Step::Read(len) => got.extend(world.read(len)),
            }
            prop_assert!(got == bytes(0, got.len()), "wrong bytes among {}", got.len());
            // Beyond the window nothing is taken: it is sent again from where the program is.
            if world.arriving.lock().unwrap().is_empty() {
                sent = world.pump.session(NUMBER).unwrap().connection().position(AT).rcv_nxt as usize;
            }
        }
        prop_assert!(world.program.available() == Ok(0), "all was read");
        prop_assert_eq!(got.len(), world.program.totals().received as usize);
    }
}
