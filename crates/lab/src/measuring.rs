//! What programs do that measure one connection: question and answer, bytes to the server, bytes
//! from it ([`flow`]), over whatever reads and writes ([`End`]). `lab-bench` does it with the
//! kernel's sockets; rivals with a protocol implementation of their own.
//!
//! Nothing of Sojourn, and no check of what was transferred (that is `lab-peer`'s).

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

/// One end of a connection. Closing it closes the connection; a child that was started for it is
/// waited for.
#[allow(missing_debug_implementations, reason = "what reads and writes has none")]
pub struct End {
    /// What comes.
    pub input: Box<dyn Read + Send>,
    /// What goes.
    pub output: Box<dyn Write + Send>,
    /// The server, if it was started for this.
    pub child: Option<Child>,
    /// Every write is a message of its own, and a read gives one message: nothing else may be sent
    /// but frames.
    pub is_datagrams: bool,
}

impl End {
    /// A stream's, without a child.
    pub fn of(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        let (input, output) = (Box::new(input), Box::new(output));
        Self { input, output, child: None, is_datagrams: false }
    }
}
