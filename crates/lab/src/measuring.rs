//! Measurements of one connection: question and answer, bytes to the server, bytes from the server
//! ([`flow`]), over any pair of a reader and a writer ([`End`]). `lab-bench` uses the kernel's
//! sockets; rivals use a protocol implementation of their own.
//!
//! Not here: any part of Sojourn, and any check of the transferred bytes (`lab-peer` has that).

mod client;
pub mod flow;
mod frames;
mod histogram;
mod options;
mod paced;

use std::io::{Read, Write};
use std::process::Child;

pub use histogram::Histogram;
pub use options::{Options, pin};

/// One end of a connection. Dropping it closes the connection. `lab-bench` waits for a child that
/// it started as the server.
#[allow(missing_debug_implementations, reason = "what reads and writes has none")]
pub struct End {
    /// Reads the bytes that the other end sends.
    pub input: Box<dyn Read + Send>,
    /// Writes to the other end.
    pub output: Box<dyn Write + Send>,
    /// The server, if it was started for this connection.
    pub child: Option<Child>,
    /// True if every write is a message of its own and a read returns one message. Then nothing but
    /// frames may be sent, not even the sizes at the beginning of a stream.
    pub is_datagrams: bool,
}

impl End {
    /// Makes an end of a stream, without a child.
    pub fn of(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        let (input, output) = (Box::new(input), Box::new(output));
        Self { input, output, child: None, is_datagrams: false }
    }
}
