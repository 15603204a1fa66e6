//! Whole messages over byte streams: reads and writes of an exact number of bytes, polling or
//! blocking.
//!
//! There is no framing, as both sides know the size; this favours the streams a little.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Result, bail};

use crate::ipc::row::{Client, Server, Sink, Source, receive_buffer};

/// Writes all of `bytes`; polls on a descriptor that does not block.
#[inline]
pub(super) fn write_all(to: &mut impl Write, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_transient(error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills `bytes`; polls on a descriptor that does not block.
#[inline]
pub(super) fn read_exact(from: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => bail!("the other side closed"),
            Ok(read) => filled += read,
            Err(error) if is_transient(error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// One side of a pair of byte streams, or of a single stream that goes both ways.
pub(super) struct Side<R, W> {
    pub(super) reader: R,
    pub(super) writer: W,
    source: Source,
    sink: Sink,
    buffer: Vec<u8>,
}

impl<R: Read, W: Write> Side<R, W> {
    pub(super) fn new(reader: R, writer: W) -> Self {
        let (source, sink) = (Source::new(), Sink::default());
        Self { reader, writer, source, sink, buffer: receive_buffer() }
    }

    fn take(&mut self, size: usize) -> Result<()> {
        // A stream cannot carry an empty message, so one byte stands for it.
        let carried = size.max(1);
        read_exact(&mut self.reader, &mut self.buffer[..carried])?;
        self.sink.take(&self.buffer[..size], size)
    }

    fn give(&mut self, size: usize) -> Result<()> {
        let message = self.source.next(size);
        write_all(&mut self.writer, if message.is_empty() { &[0] } else { message })
    }
}

impl<R: Read, W: Write> Server for Side<R, W> {
    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.take(size)?;
            write_all(&mut self.writer, &[1])?;
        }
        Ok(())
    }

    fn absorb(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.take(size)?;
        }
        write_all(&mut self.writer, &[1])
    }
}

impl<R: Read, W: Write> Client for Side<R, W> {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.give(size)?;
            read_exact(&mut self.reader, &mut [0])?;
        }
        Ok(())
    }

    fn stream(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.give(size)?;
        }
        read_exact(&mut self.reader, &mut [0])
    }
}
