//! The row of a whole call whose argument is copied byte by byte, as by the stubs of a compiler
//! without block copies. Corresponds to the first version of the paper's figure 5.
//!
//! `black_box` keeps the compiler from turning the loops into block copies. The bytes go through a
//! buffer, since a message takes whole slices: the time of that block copy is part of the figure.

use std::hint::black_box;

use anyhow::{Context as _, Result};
use sojourn_ipc::{Connection, Deadline, Endpoint, Event, ReadyReply, Server as Serving};

use super::link::{bind, connect, waiting};
use crate::ipc::ours::unique_name;
use crate::ipc::row::{Client, Kind, Mode, Row, SIZE_MAX, Server, Sides, Sink, Source};

/// The name of the row.
pub(crate) const LOOPED: &str = "copied (byte loop)";

/// A row whose client and server are two processes.
pub(super) struct Looped;

impl Row for Looped {
    fn name(&self) -> &str {
        LOOPED
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (name, wait) = (unique_name(), waiting(mode));
        let far = name.clone();
        Ok(Sides::new(
            move || {
                let endpoint = bind(&name, wait)?;
                let (server, sink) = (endpoint.server(), Sink::default());
                Ok(Receiver { server, sink, bytes: vec![0; SIZE_MAX], _endpoint: endpoint })
            },
            move || {
                let connection = connect(&far, wait)?;
                Ok(Sender { connection, source: Source::new(), bytes: vec![0; SIZE_MAX] })
            },
        ))
    }
}

fn copy(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = black_box(*from);
    }
}

struct Sender {
    connection: Connection,
    source: Source,
    bytes: Vec<u8>,
}

impl Client for Sender {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            copy(self.source.next(size), &mut self.bytes);
            let mut draft = self.connection.start(1, size);
            draft.encoder().put_bytes(&self.bytes[..size])?;
            draft.call(Deadline::NEVER)?;
        }
        Ok(())
    }
}

struct Receiver {
    server: Serving,
    sink: Sink,
    bytes: Vec<u8>,
    _endpoint: Endpoint,
}

impl Server for Receiver {
    fn admit(&mut self, clients: usize) -> Result<()> {
        let mut here = 0;
        while here < clients {
            if let Event::Connected { .. } = self.server.recv(Deadline::NEVER)? {
                here += 1;
            }
        }
        Ok(())
    }

    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        let (mut left, mut ready) = (count, None::<ReadyReply>);
        while left > 0 {
            if let Event::Call(request) = self.server.reply_wait(ready.take(), Deadline::NEVER)? {
                let body = request.body();
                copy(body, &mut self.bytes);
                self.sink.take(&self.bytes[..body.len()], size)?;
                ready = Some(request.into_token().start(0).finish());
                left -= 1;
            }
        }
        ready.context("no reply to send")?.send()?;
        Ok(())
    }
}
