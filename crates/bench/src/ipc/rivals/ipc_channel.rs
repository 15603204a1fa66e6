//! The crate `ipc-channel`: one byte channel each way.

use anyhow::{Result, anyhow};
use ipc_channel::TryRecvError;
use ipc_channel::ipc::{IpcBytesReceiver, IpcBytesSender, bytes_channel};

use crate::ipc::row::{Client, Kind, Mode, Row, Server, Sides, Sink, Source};

/// The row.
pub(super) struct IpcChannel;

impl Row for IpcChannel {
    fn name(&self) -> &str {
        "ipc-channel"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (request_sender, request_receiver) = bytes_channel()?;
        let (reply_sender, reply_receiver) = bytes_channel()?;
        let spins = mode.spins();
        Ok(Sides::new(
            move || Ok(Side::new(reply_sender, request_receiver, spins)),
            move || Ok(Side::new(request_sender, reply_receiver, spins)),
        ))
    }
}

struct Side {
    sender: IpcBytesSender,
    receiver: IpcBytesReceiver,
    spins: bool,
    source: Source,
    sink: Sink,
}

impl Side {
    fn new(sender: IpcBytesSender, receiver: IpcBytesReceiver, spins: bool) -> Self {
        Self { sender, receiver, spins, source: Source::new(), sink: Sink::default() }
    }

    fn receive(&self) -> Result<Vec<u8>> {
        if !self.spins {
            return self.receiver.recv().map_err(|e| anyhow!("{e:?}"));
        }
        loop {
            match self.receiver.try_recv() {
                Ok(bytes) => return Ok(bytes),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::IpcError(error)) => return Err(anyhow!("{error:?}")),
            }
        }
    }
}

impl Server for Side {
    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            let message = self.receive()?;
            self.sink.take(&message, size)?;
            self.sender.send(&[1])?;
        }
        Ok(())
    }
}

impl Client for Side {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.sender.send(self.source.next(size))?;
            self.receive()?;
        }
        Ok(())
    }
}
