//! Two words as doorbells and shared memory for the bytes: an IPC written by hand for one trusted
//! peer, without lengths, deadlines or any care for the death of the peer.
//!
//! With futexes, this is a rival. Spinning, it makes no system call and uses no futex; then it is
//! the floor for a message of its size: two copies and two cache lines.

use anyhow::Result;

use super::super::turn::Turn;
use crate::ipc::row::{
    Client, Kind, Mode, Row, SIZE_MAX, Server, Sides, Sink, Source, receive_buffer,
};
use crate::os::Shared;

/// Offset of the message, beyond both words.
const DATA: usize = 256;

/// The row that sleeps: a rival.
pub(super) struct Futex;

/// The row that spins: a floor.
pub(crate) struct FutexWord;

impl Row for Futex {
    fn name(&self) -> &str {
        "futex + shared memory"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn supports(&self, mode: Mode, _: usize) -> bool {
        !mode.spins()
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        link(mode)
    }
}

impl Row for FutexWord {
    fn name(&self) -> &str {
        "floor: line + two copies"
    }

    fn kind(&self) -> Kind {
        Kind::Floor
    }

    fn supports(&self, mode: Mode, size: usize) -> bool {
        mode.spins() && size > 0
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        link(mode)
    }
}

fn link(mode: Mode) -> Result<Sides> {
    let memory = Shared::new(DATA + SIZE_MAX)?;
    Ok(Sides::new(
        move || {
            let (turn, sink) = (Turn::new(memory, mode), Sink::default());
            Ok(Answerer { turn, memory, sink, buffer: receive_buffer() })
        },
        move || Ok(Caller { turn: Turn::new(memory, mode), memory, source: Source::new() }),
    ))
}

struct Answerer {
    turn: Turn,
    memory: Shared,
    sink: Sink,
    buffer: Vec<u8>,
}

impl Server for Answerer {
    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.turn.await_request();
            self.memory.read(DATA, &mut self.buffer[..size]);
            self.sink.take(&self.buffer[..size], size)?;
            self.turn.reply();
        }
        Ok(())
    }
}

struct Caller {
    turn: Turn,
    memory: Shared,
    source: Source,
}

impl Client for Caller {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.memory.write(DATA, self.source.next(size));
            self.turn.request();
            self.turn.await_reply();
        }
        Ok(())
    }
}
