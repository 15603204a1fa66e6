//! Streams and inboxes for tests, both ends in this process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test uses its part")]

use rustix::event::{EventfdFlags, eventfd};
use sojourn_shm::{Access, NewSegment, Segment};
use sojourn_stream::{Inbox, Layout, SlotNumber, Stream};
use std::sync::Arc;

/// An inbox as seen by two parties: the owner and a peer.
pub(crate) fn inbox() -> [Arc<Inbox>; 2] {
    let NewSegment { segment, mapping: ours } =
        Segment::create("test", Inbox::LEN, Access::ReadWrite).unwrap();
    let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let (ready, attention) = (event(), event());
    let peer = Inbox::new(
        segment.map(Access::ReadWrite).unwrap(),
        ready.try_clone().unwrap(),
        attention.try_clone().unwrap(),
    );
    let owner = Inbox::new(ours, ready, attention);
    [Arc::new(owner.unwrap()), Arc::new(peer.unwrap())]
}

/// The two sides of a fresh stream, with inboxes nobody looks at.
pub(crate) fn pair(ring_bytes: [u32; 2]) -> [Stream; 2] {
    let (one, two) = (inbox(), inbox());
    pair_with(
        ring_bytes,
        [(Arc::clone(&two[1]), SlotNumber(7)), (Arc::clone(&one[1]), SlotNumber(7))],
    )
}

/// The two sides of a fresh stream; each with the inbox and slot of its peer.
pub(crate) fn pair_with(ring_bytes: [u32; 2], peers: [(Arc<Inbox>, SlotNumber); 2]) -> [Stream; 2] {
    let layout = Layout::new(ring_bytes).unwrap();
    let NewSegment { segment, .. } =
        Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
    let mut side = 0;
    peers.map(|(inbox, slot)| {
        side += 1;
        let mapping = segment.map(Access::ReadWrite).unwrap();
        Stream::new(mapping, layout, side - 1, inbox, slot).unwrap()
    })
}

/// Numbers that look random, the same for the same seed (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end.max(1)
    }
}

/// Ends the process if `what` takes longer: a lost wake-up must not hang the tests.
pub(crate) fn watchdog(what: &'static str, seconds: u64) -> impl Drop {
    struct Guard(std::sync::mpsc::Sender<()>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let limit = std::time::Duration::from_secs(seconds);
        if receiver.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("watchdog: {what} has not ended after {seconds} s");
            std::process::abort();
        }
    });
    Guard(sender)
}
