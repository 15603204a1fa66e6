//! NewReno's congestion avoidance (RFC 5681, 3.1; RFC 6582): one segment more for every window that
//! was acknowledged.

use super::window::Window;

/// What is left over of an acknowledged window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno {
    acked: u64,
}

impl Reno {
    /// Congestion avoidance by counting acknowledged bytes (RFC 3465, 2.1).
    pub fn avoid(&mut self, window: &mut Window, bytes: u64) {
        self.acked += bytes;
        while self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.set(window.cwnd + window.mss);
        }
    }
}
