//! NewReno's congestion avoidance (RFC 5681, 3.1; RFC 6582): the window grows by one segment for
//! every acknowledged window.

use super::window::Window;

/// The acknowledged bytes that have not yet made a whole window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno {
    acked: u64,
}

impl Reno {
    /// Grows the window in congestion avoidance, by counting acknowledged bytes (RFC 3465, 2.1).
    pub fn avoid(&mut self, window: &mut Window, bytes: u64) {
        self.acked += bytes;
        while self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.set(window.cwnd + window.mss);
        }
    }
}
