//! The slots of a mapped receive ring (`TPACKET_V2`): their owners and contents. Read packet(7),
//! `linux/if_packet.h`.
//!
//! Not here: the socket. No field of a slot's header is trusted: each is loaded once and checked
//! against the slot's size, so that no contents can cause a read outside the slot.
//!
//! # Theory of operation
//! A slot belongs to the kernel while its status is 0. The kernel fills it and then sets
//! `TP_STATUS_USER`; from then on the kernel does not touch the slot until the status is 0 again.
//! Slots are filled in order, so one index is enough. While the slot belongs to this process, its
//! frame is lent as plain bytes: other writers could only be processes with the same descriptor,
//! which only the session server has had, before it handed the descriptor to the program.

use crate::interface::Received;
use crate::map::Map;
use crate::message::tag_of;
use core::sync::atomic::Ordering;
use sojourn_wire::vnet::{self, HEADER_BYTES};

const STATUS_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_status);
const LEN_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_len);
const HELD_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_snaplen);
const FRAME_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_mac);
const SECONDS_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_sec);
const NANOSECONDS_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_nsec);
const TAG_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_vlan_tci);
const TAG_PROTOCOL_AT: usize = core::mem::offset_of!(libc::tpacket2_hdr, tp_vlan_tpid);

/// A frame, as a slot describes it.
#[derive(Debug)]
pub(crate) struct SlotFrame<'a> {
    /// The part of it in the slot.
    pub(crate) start: Received<'a>,
    /// The length of the whole frame.
    pub(crate) len: usize,
}

/// The contents of the next slot.
#[derive(Debug)]
pub(crate) enum Filled<'a> {
    /// No frame yet.
    Nothing,
    /// A frame.
    Frame(Received<'a>),
    /// A frame that waits in the socket's queue, or `None` if the slot's fields are impossible.
    Queued(Option<SlotFrame<'a>>),
    /// The start of a frame whose rest is lost.
    Truncated,
    /// The slot's lengths are impossible.
    Damaged,
}

/// The slots, with the index of the next one.
#[derive(Debug)]
pub(crate) struct Slots {
    map: Map,
    slot_len: usize,
    count: usize,
    next: usize,
}

impl Slots {
    /// Creates the view of `count` slots of `slot_len` bytes, one after the other in `map`.
    pub(crate) const fn new(map: Map, slot_len: usize, count: usize) -> Self {
        Self { map, slot_len, count, next: 0 }
    }

    /// Returns the number of slots.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Returns the contents of the next slot, which stays the next one until [`Slots::release`].
    #[inline]
    pub(crate) fn peek(&self, has_vnet: bool) -> Filled<'_> {
        let slot = self.next * self.slot_len;
        let Some(word) = self.map.word(slot + STATUS_AT) else { return Filled::Damaged };
        // SYNC: acquire; the kernel stores the status last, after a barrier (tpacket_rcv).
        let status = word.load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return Filled::Nothing;
        }
        let found = self.read(slot, status, has_vnet);
        match found {
            _ if status & libc::TP_STATUS_COPY != 0 => Filled::Queued(found),
            Some(found) if found.len == found.start.frame.len() => Filled::Frame(found.start),
            Some(_) => Filled::Truncated,
            None => Filled::Damaged,
        }
    }

    /// Returns true if the next slot is filled, so that [`Slots::peek`] will return its contents.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        let status = self.map.word(self.next * self.slot_len + STATUS_AT);
        status.is_none_or(|status| status.load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0)
    }

    #[inline]
    fn read(&self, slot: usize, status: u32, has_vnet: bool) -> Option<SlotFrame<'_>> {
        let long = |at| self.map.load::<u32>(slot + at);
        let short = |at| self.map.load::<u16>(slot + at);
        let (len, held, at) = (long(LEN_AT)?, long(HELD_AT)? as usize, short(FRAME_AT)? as usize);
        if at.checked_add(held)? > self.slot_len {
            return None;
        }
        // SAFETY: the slot is ours until it is released, which needs `&mut self`.
        let frame = unsafe { self.map.bytes(slot + at, held)? };
        let vnet = if has_vnet {
            let header_at = at.checked_sub(HEADER_BYTES)?;
            // SAFETY: the slot is ours until it is released, which needs `&mut self`.
            vnet::Header::parse(unsafe { self.map.bytes(slot + header_at, HEADER_BYTES)? }).ok()?
        } else {
            told_by(status)
        };
        let tag = tag_of(status, short(TAG_AT)?, short(TAG_PROTOCOL_AT)?);
        let seconds = u64::from(long(SECONDS_AT)?);
        let time_ns = Some(seconds * 1_000_000_000 + u64::from(long(NANOSECONDS_AT)?));
        let start = Received { vnet, frame, tag, time_ns };
        Some(SlotFrame { start, len: len as usize })
    }

    /// Gives the slot back to the kernel, and goes on to the next.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some(word) = self.map.word(self.next * self.slot_len + STATUS_AT) {
            // SYNC: release; what was read of the slot is read before the kernel sees that it may
            // write (packet_current_rx_frame).
            word.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next += 1;
        if self.next == self.count {
            self.next = 0;
        }
    }
}

/// Returns the offload header for a frame without one, by the checksum flags of the status.
fn told_by(status: u32) -> vnet::Header {
    const NO_LOOK: u32 = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID;
    let mut header = vnet::Header::NONE;
    if status & NO_LOOK != 0 {
        header.checksum = vnet::Checksum::Valid;
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEN: usize = 512;
    const COUNT: usize = 8;

    fn slots(contents: &[u8]) -> Slots {
        let mut map = Map::anonymous(LEN * COUNT).unwrap();
        // SAFETY: nobody else knows the memory.
        unsafe { map.bytes_mut(0, contents.len()).unwrap().copy_from_slice(contents) };
        Slots::new(map, LEN, COUNT)
    }

    /// A slot's header as the kernel writes it.
    fn header(status: u32, len: u32, held: u32, at: u16) -> Vec<u8> {
        let mut bytes = [status, len, held].map(u32::to_ne_bytes).concat();
        bytes.extend([at, at + 14].map(u16::to_ne_bytes).concat());
        bytes.extend([5u32, 6].map(u32::to_ne_bytes).concat());
        bytes.extend([0x2003u16, 0x8100].map(u16::to_ne_bytes).concat());
        bytes
    }

    fn with_frame(status: u32, len: u32, held: u32, at: u16) -> Vec<u8> {
        let mut bytes = header(status, len, held, at);
        bytes.resize(LEN, 0);
        let header = vnet::Header { header_len: 66, ..vnet::Header::NONE };
        bytes[70..80].copy_from_slice(&header.to_bytes());
        bytes[80..84].copy_from_slice(b"abcd");
        bytes
    }

    const USER: u32 = libc::TP_STATUS_USER;

    #[test]
    fn a_frame_is_lent_and_its_slot_given_back() {
        let tagged = USER | libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let mut slots = slots(&with_frame(tagged, 4, 4, 80));
        let Filled::Frame(received) = slots.peek(true) else { panic!("no frame") };
        assert_eq!(received.frame, b"abcd");
        assert_eq!(received.vnet.header_len, 66);
        assert_eq!(received.time_ns, Some(5_000_000_006));
        assert_eq!(received.tag.map(|tag| tag.id()), Some(3));
        assert!(slots.is_filled());
        slots.release();
        assert!(matches!(slots.peek(true), Filled::Nothing), "the second slot is empty");
        assert!(!slots.is_filled());
        for _ in 1..COUNT {
            slots.release();
        }
        assert!(matches!(slots.peek(true), Filled::Nothing), "the first was given back");
    }

    #[test]
    fn what_does_not_fit_is_told_apart() {
        let look = |status, len, held, at, has_vnet| {
            let slots = slots(&with_frame(status, len, held, at));
            match slots.peek(has_vnet) {
                Filled::Nothing => "nothing",
                Filled::Frame(_) => "frame",
                Filled::Queued(Some(found))
                    if (found.len, found.start.frame.len()) == (9000, 432) =>
                {
                    "queued"
                }
                Filled::Queued(_) => "queued, whatever it is",
                Filled::Truncated => "truncated",
                Filled::Damaged => "damaged",
            }
        };
        assert_eq!(look(0, 4, 4, 80, true), "nothing");
        assert_eq!(look(USER, 4, 4, 80, true), "frame");
        assert_eq!(look(USER, 9000, 432, 80, true), "truncated");
        assert_eq!(look(USER | libc::TP_STATUS_COPY, 9000, 432, 80, true), "queued");
        let beyond = look(USER | libc::TP_STATUS_COPY, 9000, 433, 80, true);
        assert_eq!(beyond, "queued, whatever it is", "the queue has one all the same");
        assert_eq!(look(USER, 433, 433, 80, true), "damaged", "one byte beyond the slot");
        assert_eq!(look(USER, 432, 432, 80, true), "frame", "the slot's last byte");
        assert_eq!(look(USER, u32::MAX, u32::MAX, 80, true), "damaged");
        assert_eq!(look(USER, 4, 4, 9, true), "damaged", "no room for the offload header");
        assert_eq!(look(USER, 4, 4, 9, false), "frame");
        assert_eq!(look(USER, 4, 4, u16::MAX - 14, true), "damaged");
    }

    #[test]
    fn without_an_offload_header_the_status_tells() {
        let look = |status| {
            let slots = slots(&with_frame(status, 4, 4, 80));
            let Filled::Frame(received) = slots.peek(false) else { panic!("no frame") };
            received.vnet.must_verify()
        };
        assert!(look(USER));
        assert!(!look(USER | libc::TP_STATUS_CSUMNOTREADY));
        assert!(!look(USER | libc::TP_STATUS_CSUM_VALID));
    }

    proptest! {
        /// With any contents of the ring, a lent frame lies within its slot.
        #[test]
        fn hostile_contents_lead_nowhere(
            contents in proptest::collection::vec(any::<u8>(), LEN * COUNT),
            headers in proptest::collection::vec(
                (any::<u32>(), proptest::option::of(0u32..1200), 0u32..1200, 0u16..1200),
                COUNT,
            ),
            is_plausible in any::<bool>(),
            has_vnet in any::<bool>(),
        ) {
            let mut contents = contents;
            if is_plausible {
                // Mostly frames that claim to be whole.
                for (slot, (noise, len, held, at)) in headers.into_iter().enumerate() {
                    let status = USER | noise & !libc::TP_STATUS_COPY;
                    let bytes = header(status, len.unwrap_or(held), held, at);
                    contents[slot * LEN..slot * LEN + bytes.len()].copy_from_slice(&bytes);
                }
            }
            let mut slots = slots(&contents);
            for turn in 0..2 * COUNT {
                let slot = slots.map.address() as usize + (turn % COUNT) * LEN;
                if let Filled::Frame(received)
                | Filled::Queued(Some(SlotFrame { start: received, .. })) =
                    slots.peek(has_vnet)
                {
                    let range = received.frame.as_ptr_range();
                    prop_assert!(range.start as usize >= slot);
                    prop_assert!(range.end as usize <= slot + LEN);
                    // Every byte can be read.
                    std::hint::black_box(received.frame.iter().map(|b| u64::from(*b)).sum::<u64>());
                }
                slots.release();
            }
        }
    }
}
