//! What names a session, or a group of connections, to those that were told of it.

/// Names a session to every process that has the token; a `fork` child has its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) [u64; 2]);

impl Token {
    /// Returns the token as bytes, to hand it on.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_ne_bytes());
        bytes
    }

    /// Returns the token of those bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let half = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
        Self([half(0), half(8)])
    }
}
