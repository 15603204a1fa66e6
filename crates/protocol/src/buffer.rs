//! Where data lie between a session and the message that they are answered with: bytes, and what
//! comes with a datagram. Pure.
//!
//! Not here: who fills it (`calls`, `datagrams`), and who is answered with it (`queue`).

use sojourn_session::protocol::server::{AddressT, CONTROL_MAX};

/// The most bytes of control messages.
pub(crate) const CONTROL_LEN: usize = CONTROL_MAX as usize;

/// What comes with a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) from: AddressT,
    /// The length of the datagram (bytes), of which the buffer may have had less.
    pub(crate) whole: u32,
    pub(crate) control: [u8; CONTROL_LEN],
    pub(crate) control_len: usize,
}

impl Envelope {
    /// That of what is no datagram.
    pub(crate) const NONE: Self = Self {
        from: AddressT { ip: [0; 16], scope: 0, flow: 0, port: 0, version: 0 },
        whole: 0,
        control: [0; CONTROL_LEN],
        control_len: 0,
    };

    /// Returns the control messages.
    pub(crate) fn control(&self) -> &[u8] {
        &self.control[..self.control_len]
    }
}

/// Where data lie between a session and the message that they are answered with.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    envelope: Envelope,
}

/// The places for data, and for the envelope of a datagram.
pub(crate) struct BufferRoom<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) envelope: &'a mut Envelope,
}

/// Data, and the envelope of a datagram.
pub(crate) struct FilledBuffer<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) envelope: &'a Envelope,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len].into(), envelope: Envelope::NONE }
    }

    /// Returns the first `len` bytes of room.
    pub(crate) fn room(&mut self, len: usize) -> BufferRoom<'_> {
        let len = len.min(self.bytes.len());
        BufferRoom { bytes: &mut self.bytes[..len], envelope: &mut self.envelope }
    }

    /// Returns the first `len` bytes.
    pub(crate) fn filled(&self, len: usize) -> FilledBuffer<'_> {
        FilledBuffer { bytes: &self.bytes[..len.min(self.bytes.len())], envelope: &self.envelope }
    }

    /// Takes in a datagram. Returns the length of what there was room for.
    pub(crate) fn fill(&mut self, bytes: &[u8], envelope: &Envelope) -> usize {
        let len = bytes.len().min(self.bytes.len());
        self.bytes[..len].copy_from_slice(&bytes[..len]);
        self.envelope = *envelope;
        len
    }
}
