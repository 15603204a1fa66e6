//! Two pipes, one each way.

use anyhow::Result;

use super::stream_io::Side;
use crate::ipc::row::{Kind, Mode, Row, Sides};
use crate::os;

/// The row of a pair of pipes.
pub(crate) struct Pipe {
    /// Bytes that a pipe holds; the kernel's default (64 KiB) if `None`.
    pub(crate) capacity: Option<usize>,
}

impl Row for Pipe {
    fn name(&self) -> &str {
        if self.capacity.is_some() { "pipe (1 MiB)" } else { "pipe" }
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (server_reader, client_writer) = std::io::pipe()?;
        let (client_reader, server_writer) = std::io::pipe()?;
        if let Some(bytes) = self.capacity {
            os::set_pipe_capacity(&server_reader, bytes)?;
        }
        if mode.spins() {
            os::set_nonblocking(&server_reader)?;
            os::set_nonblocking(&client_reader)?;
            os::set_nonblocking(&client_writer)?;
            os::set_nonblocking(&server_writer)?;
        }
        Ok(Sides::new(
            move || Ok(Side::new(server_reader, server_writer)),
            move || Ok(Side::new(client_reader, client_writer)),
        ))
    }
}
