//! The crate `shmem-ipc`: a byte ring each way in sealed shared memory, with event descriptors as
//! doorbells. When spinning, the row uses the crate's low-level interface, which rings no doorbell.
#![allow(unsafe_code, reason = "the ring hands out raw pointers into the shared memory")]

use std::fs::File;

use anyhow::{Result, anyhow};
use shmem_ipc::sharedring::{Receiver, Sender};

use crate::ipc::row::{
    Client, Kind, Mode, Row, SIZE_MAX, Server, Sides, Sink, Source, receive_buffer,
};

/// Bytes that a ring holds: more than the largest message, so that no message has to be sent in
/// parts.
const CAPACITY: usize = 2 * SIZE_MAX;

/// The row.
pub(super) struct ShmemIpc;

impl Row for ShmemIpc {
    fn name(&self) -> &str {
        "shmem-ipc"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (request_sender, reply_sender) = (sender()?, sender()?);
        let (request, reply) = (parts_of(&request_sender)?, parts_of(&reply_sender)?);
        let spins = mode.spins();
        Ok(Sides::new(
            move || Side::new(reply_sender, request, spins),
            move || Side::new(request_sender, reply, spins),
        ))
    }
}

/// The files that the receiving side opens.
struct Parts {
    memory: File,
    /// The doorbell for "no longer empty".
    empty: File,
    /// The doorbell for "no longer full".
    full: File,
}

fn sender() -> Result<Sender<u8>> {
    Sender::new(CAPACITY).map_err(|e| anyhow!("{e}"))
}

/// Returns what the other side needs for receiving.
fn parts_of(sender: &Sender<u8>) -> Result<Parts> {
    let memory = sender.memfd().as_file().try_clone()?;
    let (empty, full) = (sender.empty_signal().try_clone()?, sender.full_signal().try_clone()?);
    Ok(Parts { memory, empty, full })
}

struct Side {
    sender: Sender<u8>,
    receiver: Receiver<u8>,
    spins: bool,
    source: Source,
    sink: Sink,
    buffer: Vec<u8>,
}

impl Side {
    fn new(sender: Sender<u8>, parts: Parts, spins: bool) -> Result<Self> {
        let Parts { memory, empty, full } = parts;
        let receiver = Receiver::open(CAPACITY, memory, empty, full).map_err(|e| anyhow!("{e}"))?;
        let (source, sink) = (Source::new(), Sink::default());
        Ok(Self { sender, receiver, spins, source, sink, buffer: receive_buffer() })
    }

    fn give(sender: &mut Sender<u8>, spins: bool, bytes: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let copy = |to: *mut u8, room: usize| {
                let count = room.min(bytes.len() - sent);
                // SAFETY: the ring gives `room` writable bytes at `to`; the source is private.
                unsafe { std::ptr::copy_nonoverlapping(bytes[sent..].as_ptr(), to, count) };
                sent += count;
                count
            };
            if spins {
                sender.sender_mut().send(copy).map_err(|e| anyhow!("{e}"))?;
            } else {
                sender.block_until_writable().map_err(|e| anyhow!("{e}"))?;
                sender.send_raw(copy).map_err(|e| anyhow!("{e}"))?;
            }
        }
        Ok(())
    }

    fn take(&mut self, size: usize) -> Result<()> {
        let (mut read, buffer) = (0, &mut self.buffer);
        while read < size {
            let copy = |from: *const u8, ready: usize| {
                let count = ready.min(size - read);
                // SAFETY: the ring gives `ready` readable bytes at `from`; the target is private.
                unsafe { std::ptr::copy_nonoverlapping(from, buffer[read..].as_mut_ptr(), count) };
                read += count;
                count
            };
            if self.spins {
                self.receiver.receiver_mut().recv(copy).map_err(|e| anyhow!("{e}"))?;
            } else {
                self.receiver.block_until_readable().map_err(|e| anyhow!("{e}"))?;
                self.receiver.receive_raw(copy).map_err(|e| anyhow!("{e}"))?;
            }
        }
        Ok(())
    }
}

impl Server for Side {
    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.take(size.max(1))?;
            self.sink.take(&self.buffer[..size], size)?;
            Self::give(&mut self.sender, self.spins, &[1])?;
        }
        Ok(())
    }
}

impl Client for Side {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            let message = self.source.next(size);
            let message = if message.is_empty() { &[0] } else { message };
            Self::give(&mut self.sender, self.spins, message)?;
            self.take(1)?;
        }
        Ok(())
    }
}
