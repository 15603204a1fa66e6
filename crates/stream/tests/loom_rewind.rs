//! Model of a ring whose writer begins at its first cell again whenever it finds the ring empty: the reader takes every message from where it
//! was put, and what is left over in a frozen ring lies where the ring says.
//!
//! Changes seen to fail here: the skew taken before the tail is looked at; a rewind without a look at the head; `publish` relaxed.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loom_common;

use loom::sync::Arc;
use loom::thread;
use loom_common::{CELLS, check, read_three};
use sojourn_shm::{AtomicU64, Ordering};
use sojourn_stream::ring::{Ring, Stop, used};

struct World {
    ring: Ring,
    cells: [AtomicU64; CELLS as usize],
}

impl World {
    fn new() -> Self {
        Self { ring: Ring::new(), cells: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn cell(&self, position: u64, skew: u32) -> &AtomicU64 {
        &self.cells[(position.wrapping_add(skew.into()) % u64::from(CELLS)) as usize]
    }

    /// Writes one number; `skew` is what the writer remembers.
    fn write(&self, tail: u64, skew: &mut u32, number: u64) -> Result<(), Stop> {
        let used = used(tail, self.ring.head()?, CELLS)?;
        if used == CELLS as usize {
            return Err(Stop::Full);
        }
        if used == 0 {
            *skew = (tail as u32).wrapping_neg() & (CELLS - 1);
            self.ring.set_skew(*skew);
        }
        self.cell(tail, *skew).store(number, Ordering::Relaxed);
        self.ring.publish(tail, tail + 1)
    }

    fn read(&self, head: u64) -> Result<u64, Stop> {
        if used(self.ring.tail()?, head, CELLS)? == 0 {
            return Err(Stop::Empty);
        }
        let number = self.cell(head, self.ring.skew()).load(Ordering::Relaxed);
        self.ring.consume(head, head + 1)?;
        Ok(number)
    }
}

fn write_three(world: &World) -> u64 {
    let (mut written, mut skew) = (0, 0);
    while written < 3 {
        match world.write(written, &mut skew, written + 10) {
            Ok(()) => written += 1,
            Err(Stop::Full | Stop::Frozen) => break,
            Err(stop) => panic!("{stop}"),
        }
    }
    written
}

fn leftover(world: &World) -> Vec<u64> {
    let (head, len) = world.ring.leftover(CELLS).unwrap();
    let at = |position| world.cell(position, world.ring.skew()).load(Ordering::Relaxed);
    (head..head + len as u64).map(at).collect()
}

#[test]
fn every_message_is_found_where_it_was_put() {
    check(3, || {
        let world = Arc::new(World::new());
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || read_three(|at| world.read(at)))
        };
        let written = write_three(&world);
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
            thread::spawn(move || write_three(&world))
        };
        let mut all = read_three(|at| world.read(at));
        world.ring.freeze();
        all.extend(leftover(&world));
        let written = writer.join().unwrap();
        assert_eq!(all, (10..10 + written).collect::<Vec<u64>>());
    });
}
