//! Two words as bells and shared memory for the bytes: what one would write by hand for one trusted
//! peer, without lengths, deadlines or a thought of the peer's death. With futexes it is a rival;
//! spinning, no system call is made at all, no futex is involved, and it is the floor for a message
//! of that size: its copies and two cache lines.

use anyhow::Result;

use super::super::turn::Turn;
use crate::ipc::row::{
    Client, Kind, Mode, Row, SIZE_MAX, Server, Sides, Sink, Source, receive_buffer,
};
use crate::os::Shared;

/// Where the message starts, beyond both words.
const DATA: usize = 256;

/// The row, sleeping.
pub(super) struct Futex;

/// The row, spinning.
pub(crate) struct Word;

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

impl Row for Word {
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
