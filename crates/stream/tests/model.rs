//! Random operations on both sides of a stream against a model of plain queues: two rings and the
//! kernel path beside them. Whatever is done, each direction's bytes come out once and in order.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::pair;
use proptest::prelude::*;
use sojourn_stream::{Stop, Stream};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

#[derive(Clone, Debug)]
enum Op {
    Write { side: usize, lens: Vec<usize>, at_least: usize },
    Fill { side: usize, max: usize, len: usize },
    Read { side: usize, lens: Vec<usize>, peek: bool },
    Consent { side: usize },
    Switch { side: usize },
    Freeze { side: usize },
    Flush { side: usize, len: usize },
}

/// Lengths from nothing over short messages to beyond a piece of a long one.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..3, 0usize..50, 0usize..5000, 0usize..40_000]
}

fn op() -> impl Strategy<Value = Op> {
    let side = || 0usize..2;
    let lens = || prop::collection::vec(len(), 0..4);
    prop_oneof![
        8 => (side(), lens(), 0usize..4097)
            .prop_map(|(side, lens, at_least)| Op::Write { side, lens, at_least }),
        2 => (side(), len(), len()).prop_map(|(side, max, len)| Op::Fill { side, max, len }),
        12 => (side(), lens(), prop::bool::weighted(0.2))
            .prop_map(|(side, lens, peek)| Op::Read { side, lens, peek }),
        2 => side().prop_map(|side| Op::Consent { side }),
        2 => side().prop_map(|side| Op::Switch { side }),
        1 => side().prop_map(|side| Op::Freeze { side }),
        2 => (side(), len()).prop_map(|(side, len)| Op::Flush { side, len }),
    ]
}

/// One direction, as it should be.
#[derive(Default)]
struct Direction {
    /// The next byte to be written, and to be read, as its number.
    written: u64,
    read: u64,
    kernel: VecDeque<u8>,
    ring: VecDeque<u8>,
    consents: bool,
    rings: bool,
    /// Once home: bytes of the leftover that are in the kernel.
    flushed: usize,
}

fn byte(number: u64) -> u8 {
    (number ^ (number >> 8) ^ (number >> 16)) as u8
}

struct World {
    sides: [Stream; 2],
    /// Direction d is written by side d.
    ways: [Direction; 2],
    ring_bytes: usize,
    frozen: bool,
}

impl World {
    fn fresh(&self, side: usize, len: usize) -> Vec<u8> {
        let from = self.ways[side].written;
        (from..from + len as u64).map(byte).collect()
    }

    fn write(&mut self, side: usize, lens: &[usize], at_least: usize) {
        let total: usize = lens.iter().sum();
        let bytes = self.fresh(side, total);
        let mut rest = &bytes[..];
        let bufs: Vec<IoSlice<'_>> = lens
            .iter()
            .map(|len| {
                let (buf, more) = rest.split_at(*len);
                rest = more;
                IoSlice::new(buf)
            })
            .collect();
        let done = self.sides[side].write(&bufs, at_least);
        self.wrote(side, &bytes, at_least, done);
    }

    fn fill(&mut self, side: usize, max: usize, len: usize) {
        let bytes = self.fresh(side, max);
        let done = self.sides[side].write_with(max, |span| {
            assert!(span.len() <= max);
            if len % 7 == 6 { Err("source") } else { Ok(span.copy_from(&bytes[..len.min(max)])) }
        });
        match done {
            Ok(Err(_)) => assert!(!self.frozen && self.ways[side].rings),
            Ok(Ok(0)) => {}
            Ok(Ok(done)) => self.wrote(side, &bytes[..done], 0, Ok(done)),
            Err(stop) => self.wrote(side, &bytes, 0, Err(stop)),
        }
    }

    /// Checks the result of a write and puts the bytes to where they should be.
    fn wrote(&mut self, side: usize, bytes: &[u8], at_least: usize, done: Result<usize, Stop>) {
        let (frozen, ring_bytes) = (self.frozen, self.ring_bytes);
        let way = &mut self.ways[side];
        let room = ring_bytes - way.ring.len();
        match done {
            Ok(done) => {
                assert!(way.rings && (!frozen || bytes.is_empty()));
                assert_eq!(done, bytes.len().min(room), "a write takes all there is room for");
                assert!(done >= at_least.min(bytes.len()), "a write that must not be torn was");
                way.ring.extend(&bytes[..done]);
                way.written += done as u64;
            }
            Err(Stop::Full) => assert!(room < at_least.min(bytes.len()) || room == 0),
            Err(Stop::Frozen) => assert!(frozen),
            Err(Stop::NotOnRing) => {
                assert!(!way.rings);
                way.kernel.extend(bytes);
                way.written += bytes.len() as u64;
            }
            Err(stop) => panic!("{stop}"),
        }
        // Home: bytes go to the kernel once the leftover is there.
        let way = &mut self.ways[side];
        if frozen && way.rings && way.flushed == way.ring.len() && done == Err(Stop::Frozen) {
            way.kernel.extend(bytes);
            way.written += bytes.len() as u64;
        }
    }

    fn read(&mut self, side: usize, lens: &[usize], peek: bool) {
        let mut memory: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
        let mut bufs: Vec<IoSliceMut<'_>> = memory.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let total: usize = lens.iter().sum();
        let from_kernel = {
            let way = &self.ways[1 - side];
            !way.rings || !way.kernel.is_empty() || self.frozen
        };
        let (done, stream) = (self.ways[1 - side].read, &self.sides[side]);
        if from_kernel {
            // A side that writes to its ring is not read from it before the kernel is empty.
            if !self.ways[1 - side].rings {
                assert_eq!(stream.read(&mut bufs, peek), Err(Stop::NotOnRing));
            } else if self.frozen {
                assert_eq!(stream.read(&mut bufs, peek), Err(Stop::Frozen));
            }
            let way = &mut self.ways[1 - side];
            let count = total.min(way.kernel.len());
            for (at, byte_got) in way.kernel.drain(..if peek { 0 } else { count }).enumerate() {
                assert_eq!(byte_got, byte(done + at as u64));
            }
            way.read += if peek { 0 } else { count as u64 };
            return;
        }
        let (available, result) = (stream.available().unwrap(), stream.read(&mut bufs, peek));
        let way = &mut self.ways[1 - side];
        assert_eq!(available, way.ring.len());
        match result {
            Ok(read) => {
                assert_eq!(read, total.min(available));
                let got: Vec<u8> = memory.concat();
                (0..read).for_each(|at| assert_eq!(got[at], byte(done + at as u64), "byte {at}"));
                if !peek {
                    way.ring.drain(..read);
                    way.read += read as u64;
                }
            }
            Err(stop) => assert!(stop == Stop::Empty && available == 0),
        }
    }

    fn flush(&mut self, side: usize, len: usize) {
        let stream = &self.sides[side];
        let way = &mut self.ways[side];
        if !self.frozen {
            assert_eq!(stream.own_leftover(), Err(Stop::NotFrozen));
            assert_eq!(self.sides[1 - side].peer_flushed(), None);
            return;
        }
        assert_eq!(stream.own_leftover(), Ok(way.ring.len()));
        assert_eq!(self.sides[1 - side].peer_leftover(), Ok(way.ring.len()));
        let mut buf = vec![0; len];
        let got = stream.copy_own_leftover(way.flushed, &mut buf);
        assert_eq!(got, len.min(way.ring.len() - way.flushed));
        let expected: Vec<u8> = way.ring.iter().skip(way.flushed).take(got).copied().collect();
        assert_eq!(buf[..got], expected);
        way.kernel.extend(&buf[..got]);
        way.flushed += got;
        stream.set_flushed(way.flushed);
        let peer = &self.sides[1 - side];
        assert_eq!(peer.peer_flushed(), Some(way.flushed));
        // Were the writer to die now, the reader would find the rest.
        let mut rest = vec![0; way.ring.len()];
        let len = peer.copy_unflushed(way.flushed, &mut rest);
        assert_eq!(rest[..len], way.ring.iter().skip(way.flushed).copied().collect::<Vec<u8>>());
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Write { side, lens, at_least } => self.write(*side, lens, *at_least),
            Op::Fill { side, max, len } => self.fill(*side, *max, *len),
            Op::Read { side, lens, peek } => self.read(*side, lens, *peek),
            Op::Consent { side } => {
                self.sides[*side].consent();
                self.ways[1 - side].consents = true;
            }
            Op::Switch { side } => {
                assert_eq!(self.sides[*side].has_consent(), self.ways[*side].consents);
                if self.ways[*side].consents && !self.frozen {
                    self.sides[*side].use_ring();
                    self.ways[*side].rings = true;
                }
            }
            Op::Freeze { side } => {
                self.sides[*side].freeze();
                self.frozen = true;
            }
            Op::Flush { side, len } => self.flush(*side, *len),
        }
        for (side, stream) in self.sides.iter().enumerate() {
            assert_eq!(stream.is_frozen(), self.frozen);
            assert_eq!(stream.pending(), self.ways[side].ring.len());
        }
    }
}

proptest! {
    #[test]
    fn two_rings_and_a_kernel_are_two_queues(
        shift in 0u32..5,
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let ring_bytes = 4096 << shift;
        let mut world = World {
            sides: pair([ring_bytes; 2]),
            ways: Default::default(),
            ring_bytes: ring_bytes as usize,
            frozen: false,
        };
        for op in &ops {
            world.run(op);
        }
    }
}
