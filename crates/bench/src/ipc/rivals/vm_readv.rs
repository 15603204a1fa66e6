//! `process_vm_readv`(2), which copies from the client's private memory to the server's, and futex
//! words as doorbells. There is one copy and no shared region for the bytes, at the price of a
//! system call per message.

use anyhow::Result;

use super::super::turn::Turn;
use crate::ipc::row::{Client, Kind, Mode, Row, Server, Sides, Sink, Source, receive_buffer};
use crate::os::{self, Shared};

/// Offset at which the client writes the address of its message and its process number.
const WHERE: usize = 256;

/// The row.
pub(super) struct ProcessVmReadv;

impl Row for ProcessVmReadv {
    fn name(&self) -> &str {
        "process_vm_readv + futex"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn supports(&self, _: Mode, size: usize) -> bool {
        size > 0
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let memory = Shared::new(4096)?;
        Ok(Sides::new(
            move || {
                let (turn, sink) = (Turn::new(memory, mode), Sink::default());
                Ok(Answerer { turn, memory, sink, buffer: receive_buffer() })
            },
            move || {
                os::allow_reading_us();
                Ok(Caller { turn: Turn::new(memory, mode), memory, source: Source::new() })
            },
        ))
    }
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
            let (mut address, mut pid) = ([0; 8], [0; 4]);
            self.memory.read(WHERE, &mut address);
            self.memory.read(WHERE + 8, &mut pid);
            let to = &mut self.buffer[..size];
            os::read_process(i32::from_ne_bytes(pid), u64::from_ne_bytes(address), to)?;
            self.sink.take(to, size)?;
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
        let pid = std::process::id();
        for _ in 0..count {
            let address = self.source.next(size).as_ptr() as u64;
            self.memory.write(WHERE, &address.to_ne_bytes());
            self.memory.write(WHERE + 8, &pid.to_ne_bytes());
            self.turn.request();
            self.turn.await_reply();
        }
        Ok(())
    }
}
