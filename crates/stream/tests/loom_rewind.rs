//! Model of a ring whose writer begins at its first cell again whenever it finds the ring empty,
//! and turns to the ring's far part when it finds the near one full: the reader takes every message
//! from the place where it was put, and the leftover of a frozen ring lies where the ring says.
//!
//! Changes seen to fail here: the place taken before the tail is looked at; a rewind without a look
//! at the head; `publish` relaxed.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loom_common;

use loom::sync::Arc;
use loom::thread;
use loom_common::check;
use sojourn_shm::{AtomicU64, Ordering};
use sojourn_stream::ring::{Geometry, Positions, Ring, Stop, used};

/// Cells of the ring, and of its near part.
const CELLS: u32 = 4;
const NEAR: u32 = 2;
/// Numbers written. More than the near part has cells.
const NUMBERS: u64 = 4;

struct World {
    ring: Ring,
    cells: [AtomicU64; CELLS as usize],
}

impl World {
    fn new() -> Self {
        Self { ring: Ring::new(), cells: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn cell(&self, position: u64, place: Geometry) -> &AtomicU64 {
        &self.cells[place.of(position, CELLS).offset]
    }

    /// Writes one number; `place` is the writer's memory of where bytes lie.
    fn write(&self, tail: u64, place: &mut Geometry, number: u64) -> Result<(), Stop> {
        let head = self.ring.head()?;
        let used = used(tail, head, CELLS)?;
        if used == 0 {
            let skew = (tail as u32).wrapping_neg() & (NEAR - 1);
            *place = Geometry { skew, near: NEAR, turn: None };
            self.ring.set_near(NEAR, skew);
        } else if used == NEAR as usize && place.turn.is_none() {
            place.turn = Some(tail);
            self.ring.set_turn(tail);
        }
        let far = place.turn.map_or(0, |turn| tail - head.max(turn));
        if far == u64::from(CELLS - NEAR) {
            return Err(Stop::Full);
        }
        self.cell(tail, *place).store(number, Ordering::Relaxed);
        self.ring.publish(tail, tail + 1)
    }

    fn read(&self, head: u64) -> Result<u64, Stop> {
        if used(self.ring.tail()?, head, CELLS)? == 0 {
            return Err(Stop::Empty);
        }
        let number = self.cell(head, self.ring.place(CELLS)).load(Ordering::Relaxed);
        self.ring.consume(head, head + 1)?;
        Ok(number)
    }
}

fn write_all(world: &World) -> u64 {
    world.ring.start(NEAR);
    let mut place = world.ring.place(CELLS);
    let mut written = 0;
    while written < NUMBERS {
        match world.write(written, &mut place, written + 10) {
            Ok(()) => written += 1,
            Err(Stop::Full | Stop::Frozen) => break,
            Err(stop) => panic!("{stop}"),
        }
    }
    written
}

fn read_some(world: &World) -> Vec<u64> {
    let mut numbers = vec![];
    while numbers.len() < NUMBERS as usize {
        match world.read(numbers.len() as u64) {
            Ok(number) => numbers.push(number),
            Err(Stop::Empty | Stop::Frozen) => break,
            Err(stop) => panic!("{stop}"),
        }
    }
    numbers
}

fn leftover(world: &World) -> Vec<u64> {
    let Positions { tail, head } = world.ring.positions().unwrap();
    assert!((head..=head + u64::from(CELLS)).contains(&tail));
    let at = |position| world.cell(position, world.ring.place(CELLS)).load(Ordering::Relaxed);
    (head..tail).map(at).collect()
}

#[test]
fn every_message_is_found_where_it_was_put() {
    check(3, || {
        let world = Arc::new(World::new());
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || read_some(&world))
        };
        let written = write_all(&world);
        let mut all = reader.join().unwrap();
        world.ring.freeze();
        all.extend(leftover(&world));
        assert_eq!(all, (10..10 + written).collect::<Vec<u64>>());
    });
}

#[test]
fn so_is_what_is_left_over() {
    check(3, || {
        let world = Arc::new(World::new());
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || write_all(&world))
        };
        let mut all = read_some(&world);
        world.ring.freeze();
        all.extend(leftover(&world));
        let written = writer.join().unwrap();
        assert_eq!(all, (10..10 + written).collect::<Vec<u64>>());
    });
}
