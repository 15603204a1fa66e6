//! Where the bytes of a ring lie: its near part, skewed, and its far part.
//!
//! Not here: who decides about that, and when (`ring`, `write`). Read the head of `ring` first.

/// The place of a ring's bytes: see the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The skew of the near part.
    pub skew: u32,
    /// The bytes of the near part: a power of two, or the whole ring if it has no far part.
    pub near: u32,
    /// The position from which on bytes lie in the far part.
    pub turn: Option<u64>,
}

/// Bytes that follow one another in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingRun {
    /// The offset of the first one.
    pub offset: usize,
    /// Their number.
    pub len: usize,
}

impl Geometry {
    /// Returns the bytes from that position on, in a ring of `bytes` bytes.
    #[inline]
    pub fn of(&self, position: u64, bytes: u32) -> RingRun {
        let far = u64::from(bytes.saturating_sub(self.near));
        match self.turn {
            Some(turn) if position >= turn && far > 0 => {
                let at = (position - turn) % far;
                RingRun { offset: self.near as usize + at as usize, len: (far - at) as usize }
            }
            turn => {
                let at = (position as u32).wrapping_add(self.skew) & self.near.wrapping_sub(1);
                let rest = u64::from(self.near.saturating_sub(at));
                let until = turn.map_or(u64::MAX, |turn| turn.saturating_sub(position).max(1));
                RingRun { offset: at as usize, len: rest.min(until) as usize }
            }
        }
    }
}
