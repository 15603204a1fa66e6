//! A received datagram, and what is told with it.
//!
//! Not here: the calls that receive (`io::datagrams`, `remote::channel`).

use rustix::io::IoSliceMut;
use sojourn_pump::ancillary::{ControlMessages, DatagramAncillary, Written};
use std::net::SocketAddr;

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// The sender, in the form of the socket's own address family.
    pub source: SocketAddr,
    /// The length of the datagram (bytes).
    pub len: usize,
    /// The bytes that fitted the buffers.
    pub copied: usize,
    /// The control data that the program wants.
    pub told: Told,
}

/// The control data with a datagram.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// The values for the messages.
    Values(DatagramAncillary),
    /// The messages are in the call's [`Attempt`](crate::Attempt), as the protocol server has them.
    InAttempt,
}

impl Told {
    /// Returns true if there may be a message to write.
    #[must_use]
    pub fn is_any(&self) -> bool {
        match self {
            Self::Values(values) => values.is_any(),
            Self::InAttempt => true,
        }
    }

    /// Writes the messages: see [`DatagramAncillary::write`]. `messages` are those of the attempt.
    pub fn write(
        &self,
        messages: Option<&ControlMessages>,
        room: usize,
        put: impl FnMut(usize, &[u8]),
    ) -> Written {
        match (self, messages) {
            (Self::Values(values), _) => values.write(room, put),
            (Self::InAttempt, Some(messages)) => messages.write(room, put),
            (Self::InAttempt, None) => Written::default(),
        }
    }
}

/// The memory for a datagram of the protocol server: its bytes and its control messages.
#[derive(Debug)]
pub(crate) struct MessageRoom<'p, 'b> {
    pub(crate) bufs: &'p mut [IoSliceMut<'b>],
    pub(crate) messages: &'p mut Option<ControlMessages>,
}
