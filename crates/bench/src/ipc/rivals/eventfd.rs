//! Two event descriptors (eventfd(2)) as doorbells, and shared memory for the bytes: the sender
//! copies in, the receiver copies out.

use std::fs::File;

use anyhow::Result;

use super::stream_io::{read_exact, write_all};
use crate::ipc::row::{
    Client, Kind, Mode, Row, SIZE_MAX, Server, Sides, Sink, Source, receive_buffer,
};
use crate::os::{self, Shared};

/// The row.
pub(super) struct EventFd;

impl Row for EventFd {
    fn name(&self) -> &str {
        "eventfd + shared memory"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let memory = Shared::new(SIZE_MAX)?;
        let (request, reply) = (os::eventfd()?, os::eventfd()?);
        if mode.spins() {
            os::set_nonblocking(&request)?;
            os::set_nonblocking(&reply)?;
        }
        let (far_request, far_reply) = (request.try_clone()?, reply.try_clone()?);
        Ok(Sides::new(
            move || {
                let (sink, buffer) = (Sink::default(), receive_buffer());
                Ok(Answerer { memory, request, reply, sink, buffer })
            },
            move || {
                let source = Source::new();
                Ok(Caller { memory, request: far_request, reply: far_reply, source })
            },
        ))
    }
}

struct Answerer {
    memory: Shared,
    request: File,
    reply: File,
    sink: Sink,
    buffer: Vec<u8>,
}

impl Server for Answerer {
    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            read_exact(&mut self.request, &mut [0; 8])?;
            self.memory.read(0, &mut self.buffer[..size]);
            self.sink.take(&self.buffer[..size], size)?;
            write_all(&mut self.reply, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }
}

struct Caller {
    memory: Shared,
    request: File,
    reply: File,
    source: Source,
}

impl Client for Caller {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.memory.write(0, self.source.next(size));
            write_all(&mut self.request, &1_u64.to_ne_bytes())?;
            read_exact(&mut self.reply, &mut [0; 8])?;
        }
        Ok(())
    }
}
