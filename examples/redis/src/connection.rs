//! The two ways to use a connection: in place, and by `read` and `write`.
//!
//! Not here: what is in a request (`request`).

use crate::request::{Look, look};
use anyhow::{Result, bail};
use sojourn_buffers::{Deadline, Receiver, Sender};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Bytes that are asked for at a time.
const MANY: usize = 64 << 10;

/// A client's connection.
pub(crate) trait Connection {
    /// Waits for a request; `None` at the end.
    fn request(&mut self) -> Result<Option<Vec<Vec<u8>>>>;
    /// Sends the parts of a reply.
    fn reply(&mut self, parts: &[&[u8]]) -> Result<()>;
}

/// Requests are read, and replies made, where the session has them.
#[derive(Debug)]
pub(crate) struct InPlace<'s> {
    sender: Sender<&'s TcpStream>,
    receiver: Receiver<&'s TcpStream>,
}

impl<'s> InPlace<'s> {
    pub(crate) fn new(stream: &'s TcpStream) -> Result<Self> {
        Ok(Self { sender: Sender::new(stream)?, receiver: Receiver::new(stream)? })
    }
}

impl Connection for InPlace<'_> {
    fn request(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let mut at_least = 1;
        loop {
            let loan = self.receiver.loan(at_least, at_least.max(MANY), Deadline::NEVER)?;
            if loan.len() < at_least {
                return Ok(None);
            }
            match look(&loan) {
                Look::Whole(words, used) => {
                    loan.give_back(used);
                    return Ok(Some(words));
                }
                Look::Needs(more) => at_least = more,
                Look::Wrong => bail!("no request of the Redis protocol"),
            }
        }
    }

    fn reply(&mut self, parts: &[&[u8]]) -> Result<()> {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        let mut parts = parts.iter().copied();
        let mut part = parts.next().unwrap_or_default();
        while left > 0 {
            let mut space = self.sender.reserve(1, left, Deadline::NEVER)?;
            let (mut filled, room) = (0, space.len());
            while filled < room {
                let put = space.put(filled, part);
                (filled, part) = (filled + put, &part[put..]);
                if part.is_empty() {
                    match parts.next() {
                        Some(next) => part = next,
                        None => break,
                    }
                }
            }
            space.commit(filled, Deadline::NEVER)?;
            left -= filled;
        }
        Ok(())
    }
}

/// Requests are received into a buffer, and replies sent from one.
#[derive(Debug)]
pub(crate) struct Copying<'s> {
    stream: &'s TcpStream,
    received: Vec<u8>,
    used: usize,
    reply: Vec<u8>,
    block: Vec<u8>,
}

impl<'s> Copying<'s> {
    pub(crate) fn new(stream: &'s TcpStream) -> Self {
        let (received, reply, block) = (Vec::new(), Vec::new(), vec![0; MANY]);
        Self { stream, received, used: 0, reply, block }
    }
}

impl Connection for Copying<'_> {
    fn request(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        loop {
            match look(&self.received[self.used..]) {
                Look::Whole(words, used) => {
                    self.used += used;
                    return Ok(Some(words));
                }
                Look::Needs(_) => {}
                Look::Wrong => bail!("no request of the Redis protocol"),
            }
            self.received.drain(..std::mem::take(&mut self.used));
            match self.stream.read(&mut self.block)? {
                0 => return Ok(None),
                got => self.received.extend_from_slice(&self.block[..got]),
            }
        }
    }

    fn reply(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.reply.clear();
        parts.iter().for_each(|part| self.reply.extend_from_slice(part));
        Ok(self.stream.write_all(&self.reply)?)
    }
}
