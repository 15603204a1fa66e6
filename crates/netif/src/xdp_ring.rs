//! The rings of an AF_XDP socket: fill, completion, receive, transmit. `linux/if_xdp.h`, the
//! kernel's `Documentation/networking/af_xdp.rst`.
//!
//! Not here: the meaning of the entries' addresses (`umem`). Each ring has one producer and one
//! consumer; this process is one of them and the kernel the other. The kernel's index is loaded
//! once and limited to the number of the ring's entries.

use crate::map::Map;
use core::sync::atomic::Ordering;
use rustix::fd::BorrowedFd;
use rustix::io;
use rustix::net::xdp::XdpRingOffset;

/// `XDP_RING_NEED_WAKEUP`.
const NEED_WAKEUP: u32 = 1;

/// One mapped ring.
#[derive(Debug)]
pub(crate) struct Shared {
    map: Map,
    producer_at: usize,
    consumer_at: usize,
    flags_at: Option<usize>,
    entries_at: usize,
    entry_len: usize,
    len: u32,
}

impl Shared {
    /// Maps a ring of `len` entries, a power of two, of [`ADDRESS_BYTES`] or [`DESCRIPTOR_BYTES`]
    /// each.
    pub(crate) fn map(
        fd: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        page_offset: u64,
        entry_len: usize,
        len: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + len as usize * entry_len;
        let map = Map::of(fd, bytes, page_offset)?;
        Ok(Self::new(map, offsets, entry_len, len))
    }

    fn new(map: Map, offsets: &XdpRingOffset, entry_len: usize, len: u32) -> Self {
        Self {
            map,
            producer_at: offsets.producer as usize,
            consumer_at: offsets.consumer as usize,
            flags_at: offsets.flags.map(|at| at as usize),
            entries_at: offsets.desc as usize,
            entry_len,
            len,
        }
    }

    #[inline]
    fn entry_at(&self, index: u32) -> usize {
        self.entries_at + (index & (self.len - 1)) as usize * self.entry_len
    }

    /// Loads the index that the kernel moves. The callers explain the acquire ordering.
    #[inline]
    fn load(&self, at: usize) -> u32 {
        self.map.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, at: usize, value: u32) {
        if let Some(word) = self.map.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        let word = self.flags_at.and_then(|at| self.map.word(at));
        word.is_none_or(|word| word.load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }
}

/// An entry of the receive and transmit rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Offset in the memory area.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) len: u32,
}

/// Bytes of an entry of the receive and transmit rings.
pub(crate) const DESCRIPTOR_BYTES: usize = size_of::<libc::xdp_desc>();
/// Bytes of an entry of the fill and completion rings.
pub(crate) const ADDRESS_BYTES: usize = size_of::<u64>();

/// A ring into which this process puts entries: fill (addresses) or transmit (descriptors).
#[derive(Debug)]
pub(crate) struct Producer {
    shared: Shared,
    /// The index of the next entry; [`Producer::publish`] publishes it.
    next: u32,
}

impl Producer {
    pub(crate) const fn new(shared: Shared) -> Self {
        Self { shared, next: 0 }
    }

    /// Returns the number of entries that the kernel has not taken yet.
    #[inline]
    pub(crate) fn pending(&self) -> u32 {
        // SYNC: acquire; the kernel has read an entry before it stores the index with release
        // (__xskq_cons_release).
        let consumer = self.shared.load(self.shared.consumer_at);
        self.next.wrapping_sub(consumer).min(self.shared.len)
    }

    /// Adds an entry without options; returns false if there was no room.
    #[inline]
    pub(crate) fn push(&mut self, entry: Descriptor) -> bool {
        self.push_with(entry, 0)
    }

    /// Adds an entry; returns false if there was no room. `options` (`XDP_TX_*`) are a transmit
    /// ring's.
    #[inline]
    pub(crate) fn push_with(&mut self, entry: Descriptor, options: u32) -> bool {
        if self.pending() == self.shared.len {
            return false;
        }
        let at = self.shared.entry_at(self.next);
        let mut is_in = self.shared.map.store(at, entry.address);
        if self.shared.entry_len == DESCRIPTOR_BYTES {
            is_in &= self.shared.map.store(at + 8, entry.len);
            is_in &= self.shared.map.store(at + 12, options);
        }
        self.next = self.next.wrapping_add(1);
        is_in
    }

    /// Publishes the added entries to the kernel.
    #[inline]
    pub(crate) fn publish(&self) {
        // SYNC: release; the kernel reads the entries after it has loaded the index with acquire
        // (__xskq_cons_peek).
        self.shared.store(self.shared.producer_at, self.next);
    }

    /// Returns true if the kernel needs a system call before it looks at the ring.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// A ring from which this process takes entries: receive (descriptors) or completion (addresses).
#[derive(Debug)]
pub(crate) struct Consumer {
    shared: Shared,
    next: u32,
}

impl Consumer {
    pub(crate) const fn new(shared: Shared) -> Self {
        Self { shared, next: 0 }
    }

    /// Returns the number of entries that can be taken.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        // SYNC: acquire; the kernel stores the index with release after the entries and what they
        // name (__xskq_prod_submit).
        let producer = self.shared.load(self.shared.producer_at);
        producer.wrapping_sub(self.next).min(self.shared.len)
    }

    /// Takes the next entry. [`Consumer::available`] must have counted it.
    #[inline]
    pub(crate) fn take(&mut self) -> Descriptor {
        let at = self.shared.entry_at(self.next);
        let address = self.shared.map.load(at).unwrap_or(u64::MAX);
        let has_len = self.shared.entry_len == DESCRIPTOR_BYTES;
        let len = if has_len { self.shared.map.load(at + 8).unwrap_or(u32::MAX) } else { 0 };
        self.next = self.next.wrapping_add(1);
        Descriptor { address, len }
    }

    /// Gives the places of the taken entries back to the kernel.
    #[inline]
    pub(crate) fn release(&self) {
        // SYNC: release; the entries are read before the kernel sees that it may overwrite them
        // (xskq_prod_is_full).
        self.shared.store(self.shared.consumer_at, self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OFFSETS: XdpRingOffset =
        XdpRingOffset { producer: 0, consumer: 64, desc: 192, flags: Some(128) };

    fn shared(entry_len: usize, len: u32) -> Shared {
        let map = Map::anonymous(192 + entry_len * len as usize).unwrap();
        Shared::new(map, &OFFSETS, entry_len, len)
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let mut ring = Producer { shared: shared(DESCRIPTOR_BYTES, 4), next: u32::MAX - 1 };
        ring.shared.store(64, u32::MAX - 1);
        for n in 0..4 {
            assert!(ring.push(Descriptor { address: n, len: 9 }));
        }
        assert!(!ring.push(Descriptor { address: 4, len: 9 }));
        ring.publish();
        assert_eq!(ring.shared.load(0), 2, "indices wrap");
        ring.shared.store(64, 0);
        assert_eq!(ring.pending(), 2);
        assert!(ring.push(Descriptor { address: 4, len: 9 }));
    }

    #[test]
    fn what_is_put_in_comes_out_in_order() {
        let mut producer = Producer { shared: shared(DESCRIPTOR_BYTES, 4), next: 0 };
        for n in 0..3 {
            assert!(producer.push(Descriptor { address: n * 2048, len: n as u32 }));
        }
        producer.publish();
        let mut consumer = Consumer { shared: producer.shared, next: 0 };
        assert_eq!(consumer.available(), 3);
        for n in 0..3 {
            assert_eq!(consumer.take(), Descriptor { address: n * 2048, len: n as u32 });
        }
        consumer.release();
        assert_eq!((consumer.available(), consumer.shared.load(64)), (0, 3));
    }

    proptest! {
        /// Invalid indices give no more entries than the ring has, and none outside it.
        #[test]
        fn hostile_indices_lead_nowhere(producer: u32, consumer: u32, next: u32) {
            let mut ring = Consumer { shared: shared(DESCRIPTOR_BYTES, 8), next };
            ring.shared.store(0, producer);
            prop_assert!(ring.available() <= 8);
            for _ in 0..ring.available() {
                ring.take();
            }
            let mut ring = Producer { shared: shared(ADDRESS_BYTES, 8), next };
            ring.shared.store(64, consumer);
            prop_assert!(ring.pending() <= 8);
            for n in 0..20 {
                ring.push(Descriptor { address: n, len: 0 });
            }
        }
    }
}
