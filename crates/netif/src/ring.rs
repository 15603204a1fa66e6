//! A packet socket with a mapped receive ring: frames are received without a system call. Read
//! packet(7).
//!
//! Not here: the slots (`slot`), and sending, which is one gathered message per frame as in
//! `message`.
//!
//! # Theory of operation
//! The ring has version 2. A slot of version 2 shows its frame as soon as the frame has arrived,
//! while version 3 shows a block of frames when the block is full or after a timer of at least a
//! millisecond. Version 2 has slots of one size, and slots of 64 KB, as merged segments need, would
//! cost a megabyte for every sixteen slots. So slots are small, and `PACKET_COPY_THRESH` is set:
//! for a frame that does not fit, the slot has the start and a mark (`TP_STATUS_COPY`), and the
//! whole frame waits in the socket's ordinary queue for one recvmsg(2). The kernel fills both under
//! one lock, so they are in the same order. Such a frame is also copied later, by its reader
//! instead of by the processor that received it from the link, which is better with two processors.

use crate::interface::{
    Accept, Interface, LinkError, OpenError, Properties, Received, SendError, Statistics,
};
use crate::map::Map;
use crate::message::{Inbox, Taken};
use crate::packet::{self, PacketOptions, ReceiveCounts, Socket};
use crate::pass_on::pass_on;
use crate::raw;
use crate::slot::{Filled, SlotFrame, Slots};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// The size of a page; slots lie in blocks of whole pages.
const PAGE: u32 = 4096;
/// The least size of a slot: its header and the start of a frame.
const SLOT_LEN_MIN: u32 = 256;
/// The largest size of a slot, more than a frame of 64 KB needs.
const SLOT_LEN_MAX: u32 = 128 << 10;
/// `TPACKET_V2` of `linux/if_packet.h`.
const VERSION: i32 = 1;

/// The shape of a receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Bytes of a slot: a power of two of at least 256, or whole pages. About 100 of them are
    /// headers.
    pub slot_len: u32,
    /// The number of slots. Slots smaller than a page must fill whole pages.
    pub slots: u32,
}

impl Default for RingLayout {
    /// Two megabytes: a thousand frames of a link with the usual MTU.
    fn default() -> Self {
        Self { slot_len: 2048, slots: 1024 }
    }
}

impl RingLayout {
    /// Checks the layout and returns the kernel's `struct tpacket_req`.
    fn request(self) -> Result<libc::tpacket_req, OpenError> {
        let Self { slot_len, slots } = self;
        if !(SLOT_LEN_MIN..=SLOT_LEN_MAX).contains(&slot_len) {
            return Err(OpenError::BadLayout("slots of 256 bytes to 128 KB"));
        }
        let is_small = slot_len < PAGE && slot_len.is_power_of_two();
        if !is_small && !slot_len.is_multiple_of(PAGE) {
            return Err(OpenError::BadLayout("a slot is a power of two or whole pages"));
        }
        let block_len = slot_len.max(PAGE);
        let bytes = u64::from(slot_len) * u64::from(slots);
        if slots == 0 || !bytes.is_multiple_of(u64::from(block_len)) || bytes > 1 << 30 {
            return Err(OpenError::BadLayout("whole pages of slots, a gigabyte at most"));
        }
        Ok(libc::tpacket_req {
            tp_block_size: block_len,
            tp_block_nr: (bytes / u64::from(block_len)) as u32,
            tp_frame_size: slot_len,
            tp_frame_nr: slots,
        })
    }

    /// Returns the number of bytes to map.
    const fn len(self) -> usize {
        self.slot_len as usize * self.slots as usize
    }
}

/// A packet socket with a mapped receive ring.
#[derive(Debug)]
pub struct Ring {
    // Declared before the socket, so that the ring is unmapped before the socket is closed.
    slots: Slots,
    socket: Socket,
    inbox: Inbox,
    counts: ReceiveCounts,
}

impl Ring {
    /// Opens a socket with a ring on the interface called `name`. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`OpenError::NotPermitted`], [`OpenError::NoDevice`], [`OpenError::UnknownLink`],
    /// [`OpenError::BadLayout`], and [`OpenError::Failed`] with the kernel's error.
    pub fn open(
        name: &str,
        options: &PacketOptions,
        layout: RingLayout,
    ) -> Result<Self, OpenError> {
        let fd = packet::open(options)?;
        Self::prepare(fd.as_fd(), layout)?;
        packet::bind(fd.as_fd(), packet::index_of(fd.as_fd(), name)?)?;
        Self::map(fd, layout)
    }

    /// Gives a packet socket a ring. Must be called before the socket is bound or joins a fanout
    /// group: the kernel unhooks the socket from its interface and its group meanwhile
    /// (`packet_set_ring`), and the socket then rejoins the group at the end, with another index.
    ///
    /// # Errors
    /// [`OpenError::BadLayout`]; [`OpenError::Failed`] if the socket already has a ring.
    pub fn prepare(fd: BorrowedFd<'_>, layout: RingLayout) -> Result<(), OpenError> {
        let request = layout.request()?;
        packet::set_number(fd, libc::PACKET_VERSION, VERSION, "PACKET_VERSION")?;
        packet::set_number(fd, libc::PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH")?;
        raw::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(OpenError::at("PACKET_RX_RING"))
    }

    /// Takes a packet socket that the caller has opened, given a ring of `layout`
    /// ([`Ring::prepare`]), bound, and perhaps filtered and locked.
    ///
    /// # Errors
    /// [`OpenError::WrongDescriptor`] if the descriptor is not such a socket;
    /// [`OpenError::NoDevice`] if the interface is gone meanwhile.
    pub fn map(fd: OwnedFd, layout: RingLayout) -> Result<Self, OpenError> {
        layout.request()?;
        let socket = Socket::take(fd)?;
        let version: i32 = raw::option(socket.fd(), libc::SOL_PACKET, libc::PACKET_VERSION)
            .map_err(OpenError::at("PACKET_VERSION"))?;
        if version != VERSION {
            return Err(OpenError::WrongDescriptor("no ring of version 2"));
        }
        let map = Map::of(socket.fd(), layout.len(), 0)
            .map_err(|_| OpenError::WrongDescriptor("no ring of that size"))?;
        let slots = Slots::new(map, layout.slot_len as usize, layout.slots as usize);
        let inbox = Inbox::new();
        Ok(Self { slots, socket, inbox, counts: ReceiveCounts::default() })
    }
}

/// A receiver without destinations for long frames.
struct Plain<'a>(&'a mut dyn FnMut(Received<'_>));

impl Accept for Plain<'_> {
    fn accept(&mut self, received: Received<'_>) {
        (self.0)(received);
    }
}

/// The reason why a frame is lost.
enum Lost {
    Truncated,
    Damaged,
}

/// Receives the frame at the head of the socket's queue; `queued` is what its slot says.
fn take_queued(
    inbox: &mut Inbox,
    socket: &Socket,
    queued: Option<SlotFrame<'_>>,
    accept: &mut dyn Accept,
) -> Result<Option<Lost>, Errno> {
    let (fd, has_vnet) = (socket.fd(), socket.has_vnet);
    if let Some(SlotFrame { start, len }) = queued
        && let Some(place) = accept.place(&start, len)
        && place.holds(len)
    {
        let is_there = inbox.take_to(fd, has_vnet, start.frame, len, place)?;
        if is_there {
            accept.placed();
        }
        return Ok((!is_there).then_some(Lost::Damaged));
    }
    match inbox.take(fd, has_vnet) {
        Taken::Frame(received) => accept.accept(received),
        Taken::Truncated => return Ok(Some(Lost::Truncated)),
        Taken::Damaged | Taken::Nothing => return Ok(Some(Lost::Damaged)),
        Taken::Failed(error) => return Err(error),
    }
    Ok(None)
}

impl Interface for Ring {
    #[inline]
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        self.receive_to(budget, &mut Plain(accept))
    }

    #[inline]
    fn receive_to(&mut self, budget: usize, accept: &mut dyn Accept) -> Result<usize, LinkError> {
        let mut count = 0;
        // Each turn gives one slot back, so one round of the ring bounds the slots without a usable
        // frame.
        for _ in 0..budget.saturating_add(self.slots.count()) {
            if count == budget || accept.has_enough() {
                break;
            }
            match self.slots.peek(self.socket.has_vnet) {
                Filled::Nothing => break,
                Filled::Frame(received) => {
                    accept.accept(received);
                    count += 1;
                }
                Filled::Queued(start) => {
                    let taken = take_queued(&mut self.inbox, &self.socket, start, accept);
                    match taken {
                        Ok(None) => count += 1,
                        Ok(Some(Lost::Truncated)) => self.counts.truncated += 1,
                        Ok(Some(Lost::Damaged)) => self.counts.damaged += 1,
                        // The error is the link's, and the frame still waits, so the slot is kept:
                        // slots and queue stay in step.
                        Err(error) => {
                            self.counts.received += count as u64;
                            return Err(error.into());
                        }
                    }
                }
                Filled::Truncated => self.counts.truncated += 1,
                Filled::Damaged => self.counts.damaged += 1,
            }
            self.slots.release();
        }
        self.counts.received += count as u64;
        Ok(count)
    }

    #[inline]
    fn has_nothing(&self) -> bool {
        !self.slots.is_filled()
    }

    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }

    fn properties(&self) -> &Properties {
        &self.socket.properties
    }

    fn statistics(&mut self) -> Statistics {
        self.socket.statistics(self.counts)
    }

    pass_on!(self.socket: send, take_error, refresh);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        let request = |slot_len, slots| RingLayout { slot_len, slots }.request();
        for (slot_len, slots) in
            [(0, 8), (128, 32), (3000, 8), (2048, 0), (2048, 3), (5000, 4), (1 << 18, 2)]
        {
            assert!(request(slot_len, slots).is_err(), "{slot_len} {slots}");
        }
        assert!(request(65536, 1 << 20).is_err(), "too much");
        let plain = request(2048, 6).unwrap();
        assert_eq!((plain.tp_block_size, plain.tp_block_nr), (4096, 3));
        let large = request(17 * 4096, 5).unwrap();
        assert_eq!((large.tp_block_size, large.tp_block_nr), (17 * 4096, 5));
    }
}
