//! Rings that ask for attention: a side's protocol thread hears of each arrival, or of room,
//! although no thread of the program sleeps.
//!
//! Programs that have signals sent for what arrives (`O_ASYNC`, fcntl(2)) need that. The reader's
//! protocol thread must hear of *each* publication, because the kernel queues a signal for each. So
//! the writer counts those that it tells of. Its count is believed only as far as bytes have come.
//! Not here: the signals; the flag ([`crate::bell`]).

use crate::bell::{Bell, BellWord};
use crate::stream::Stream;
use core::sync::atomic::Ordering;

/// The most arrivals that one look reports. A writer that is so far ahead has filled the queue of
/// most programs' signals, too.
const HEARD_MAX: u64 = 1024;

impl Stream {
    /// Begins to have the peer ask for attention at each publication, or ends that. Reader lock.
    pub fn hear_arrivals(&self, is_on: bool) {
        let ring = self.in_ring();
        if !is_on {
            return self.reading.sleepers.end_attention(&ring.reader.bell);
        }
        let there = self.available().unwrap_or(0) as u64;
        let tail = self.reading.own.load(Ordering::Relaxed) + there;
        self.reading.told.store(tail, Ordering::Relaxed);
        self.reading.heard.store(ring.tail.arrivals.load(Ordering::Relaxed), Ordering::Relaxed);
        self.announce_reader(Bell::OnAttention);
    }

    /// Takes the number of publications that have been told of since the last call. No more are
    /// reported, in all, than bytes have come; of a frozen stream at most one. Reader lock.
    pub fn take_arrivals(&self) -> u32 {
        let seen = &self.reading;
        // SYNC: acquire: the bytes that were counted are seen below; pairs with the release in
        // `must_tell`.
        let count = self.in_ring().tail.arrivals.load(Ordering::Acquire);
        let new = count.wrapping_sub(seen.heard.swap(count, Ordering::Relaxed));
        let Ok(there) = self.available() else { return new.min(1) };
        let tail = seen.own.load(Ordering::Relaxed) + there as u64;
        let told = seen.told.load(Ordering::Relaxed);
        let heard = u64::from(new).min(tail.saturating_sub(told)).min(HEARD_MAX);
        seen.told.store(told + heard, Ordering::Relaxed);
        heard as u32
    }

    /// Begins to have the peer ask for attention when there are `room` bytes of room; it does so
    /// until [`Stream::forget_room`]. The caller looks once more after this. Writer lock.
    pub fn hear_of_room(&self, room: usize) {
        self.announce_writer(Bell::OnAttention, room);
    }

    /// Ends what [`Stream::hear_of_room`] has begun. Writer lock.
    pub fn forget_room(&self) {
        self.writing.sleepers.end_attention(&self.out_ring().writer.bell);
    }

    /// Returns true if the peer, whose bell that is, is to be told of something new.
    pub(crate) fn must_tell(&self, bell: &BellWord) -> bool {
        let ring = self.out_ring();
        if !core::ptr::eq(bell, &ring.reader.bell) {
            return true;
        }
        // A message may ring more than once.
        let tail = self.writing.own.load(Ordering::Relaxed);
        let is_new = self.writing.told.swap(tail, Ordering::Relaxed) != tail;
        if is_new {
            // SYNC: release: the bytes are published; pairs with the acquire in `take_arrivals`.
            ring.tail.arrivals.fetch_add(1, Ordering::Release);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::{Inbox, Layout, SlotNumber};
    use rustix::event::{EventfdFlags, eventfd};
    use sojourn_shm::{Access, NewSegment, Segment};
    use std::io::IoSlice;
    use std::sync::Arc;

    fn inbox() -> Arc<Inbox> {
        let NewSegment { mapping, .. } =
            Segment::create("test", Inbox::LEN, Access::ReadWrite).unwrap();
        let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        Arc::new(Inbox::new(mapping, event(), event()).unwrap())
    }

    #[test]
    fn a_peer_has_no_more_arrivals_heard_than_bytes_have_come() {
        let layout = Layout::new([8192, 0]).unwrap();
        let NewSegment { mapping, .. } =
            Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
        let peer = Stream::new(mapping, layout, 0, inbox(), SlotNumber(1)).unwrap();
        let own = peer.other_side(inbox(), SlotNumber(1)).unwrap();
        own.consent();
        peer.use_ring();
        own.hear_arrivals(true);
        let arrivals = &peer.out_ring().tail.arrivals;
        arrivals.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(own.take_arrivals(), 0, "no byte has come");
        peer.write(&[IoSlice::new(&[1; 3])], 0).unwrap();
        arrivals.store(7, Ordering::Relaxed);
        assert_eq!(own.take_arrivals(), 3);
        peer.write(&[IoSlice::new(&[1; 4000])], 0).unwrap();
        arrivals.store(u32::MAX / 2, Ordering::Relaxed);
        assert_eq!(u64::from(own.take_arrivals()), HEARD_MAX);
    }
}
