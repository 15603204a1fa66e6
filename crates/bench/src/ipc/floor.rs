//! The hardware's floor: the time that the machine itself needs to bring a cache line, a wake-up or
//! a block of bytes from one side to the other. These rows have none of the duties of an IPC: no
//! lengths, no checks, no deadlines.

use std::hint::black_box;

use anyhow::Result;

use super::row::{Client, Kind, Mode, Row, SIZE_MAX, Server, Sides, receive_buffer};
use super::turn::Turn;
use crate::os::Shared;

/// A message without bytes: a cache line to the other processor and back (spinning), or a bare
/// futex hand-over and back (blocking).
pub(crate) struct PingPong;

impl Row for PingPong {
    fn name(&self) -> &str {
        "floor: ping-pong"
    }

    fn kind(&self) -> Kind {
        Kind::Floor
    }

    fn supports(&self, _: Mode, size: usize) -> bool {
        size == 0
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let memory = Shared::new(4096)?;
        let side = move || Ok(Side(Turn::new(memory, mode)));
        Ok(Sides::new(side, side))
    }
}

struct Side(Turn);

impl Server for Side {
    fn serve(&mut self, _: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.0.await_request();
            self.0.reply();
        }
        Ok(())
    }
}

impl Client for Side {
    fn call(&mut self, _: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.0.request();
            self.0.await_reply();
        }
        Ok(())
    }
}

/// One copy between two private buffers that both stay in the caches.
pub(crate) struct Memcpy;

impl Row for Memcpy {
    fn name(&self) -> &str {
        "floor: memcpy"
    }

    fn kind(&self) -> Kind {
        Kind::Floor
    }

    fn supports(&self, _: Mode, size: usize) -> bool {
        size > 0
    }

    fn link(&self, _: Mode) -> Result<Sides> {
        Ok(Sides::new(
            || Ok(Absent),
            || Ok(Copier { from: vec![7; SIZE_MAX], to: receive_buffer() }),
        ))
    }
}

struct Absent;

impl Server for Absent {
    fn serve(&mut self, _: usize, _: u64) -> Result<()> {
        Ok(())
    }
}

struct Copier {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Client for Copier {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            let from = black_box(&self.from[..black_box(size)]);
            black_box(&mut self.to[..size]).copy_from_slice(from);
        }
        Ok(())
    }
}
