//! The inbox: where the peers of many streams leave word for one waiter.
//!
//! A bitmap of *ready* slots with the time at which each was posted, a bitmap of slots that want
//! *attention*, and for each bitmap an event descriptor. The owner's threads take the bits; peers
//! post them. One type for both, as both map the same region.
//!
//! # Contract of the owner's threads
//! Any number of them may sleep. [`Inbox::take_ready`] and [`Inbox::clear_event`] are for one
//! thread at a time, under the lock of the set, which also guards the list of what was taken and
//! not yet dealt with. A thread that waits:
//!
//! 1. locks; takes the bits to the list; if the list has something for it, takes that and is done;
//! 2. else calls [`Inbox::clear_event`], unlocks, and calls [`Inbox::announce`];
//! 3. looks once more: [`Inbox::has_ready`], and under the lock at the list, as another thread may
//!    have taken the bits there meanwhile;
//! 4. if there is nothing, sleeps in the kernel on [`Inbox::ready_fd`] and whatever else;
//! 5. calls [`Inbox::withdraw`] and starts again.
//!
//! The event descriptor stays readable, and so wakes one sleeper after another, until a thread that
//! has found neither bit nor entry clears it. It must be waited for level-triggered, never
//! edge-triggered.

use crate::arrivals::Arrivals;
use crate::bits::{Bits, SLOTS};
use crate::doorbell::{Doorbell, Within};
use core::ptr::NonNull;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};
use sojourn_shm::deadline::now_ns;
use sojourn_shm::{Access, Held, Mapping, fault};

/// The region.
#[repr(C)]
#[derive(Debug)]
struct Region {
    doorbell: Doorbell,
    ready: Bits,
    attention: Bits,
    /// Of ready slots. Pages of slots that are never used are never touched.
    arrivals: Arrivals,
}

/// One view of an inbox.
#[derive(Debug)]
pub struct Inbox {
    _mapping: Mapping,
    region: NonNull<Region>,
    within: Within,
    ready: Held,
    attention: Held,
}

// SAFETY: `region` points into the mapping, which the inbox owns and which any thread may use; it
// is only ever made a reference to atomics.
unsafe impl Send for Inbox {}
// SAFETY: as above.
unsafe impl Sync for Inbox {}

impl Inbox {
    /// Slots of an inbox.
    pub const SLOTS: u32 = SLOTS;
    /// Bytes of its region: whole pages.
    pub const LEN: usize = size_of::<Region>().next_multiple_of(4096);

    /// A view of a region of [`Inbox::LEN`] bytes with its two event descriptors, which do not
    /// block (`EFD_NONBLOCK`). `None`: the mapping is too small or cannot be written.
    pub fn new(
        mapping: Mapping,
        ready: impl Into<Held>,
        attention: impl Into<Held>,
    ) -> Option<Self> {
        let (ready, attention) = (ready.into(), attention.into());
        if mapping.len() < Self::LEN || mapping.access() != Access::ReadWrite {
            return None;
        }
        let region = NonNull::new(mapping.span(0, size_of::<Region>())?.as_ptr())?.cast();
        Some(Self { _mapping: mapping, region, within: Within::default(), ready, attention })
    }

    fn region(&self) -> &Region {
        // SAFETY: within the mapping and page-aligned, as `new` has checked; made of atomics, for
        // which any bytes are valid; the mapping lives as long as `self`.
        unsafe { self.region.as_ref() }
    }

    /// A peer's: marks `slot` as ready and wakes the owner if it sleeps; whether it did. Slots that
    /// do not exist are ignored.
    pub fn post_ready(&self, slot: u32) -> bool {
        let (region, now_ns) = (self.region(), now_ns());
        region.arrivals.note(slot, now_ns);
        region.ready.post(slot);
        fault::point("stream.posted");
        let rings = region.doorbell.must_ring();
        if rings {
            fault::point("stream.ringing");
            region.doorbell.rings_for(now_ns);
            signal(&self.ready);
        }
        rings
    }

    /// The owner's own: as [`Inbox::post_ready`], but relies on no peer's word that the event is
    /// written. A peer can die between that word and the deed.
    pub fn post_own(&self, slot: u32) {
        self.region().arrivals.note(slot, now_ns());
        self.region().ready.post(slot);
        self.region().doorbell.force();
        signal(&self.ready);
    }

    /// A peer's: marks `slot` as wanting attention, and tells the owner if that is news.
    pub fn post_attention(&self, slot: u32) {
        if self.region().attention.post(slot) {
            fault::point("stream.attention");
            signal(&self.attention);
        }
    }

    /// The owner's: whether any slot may be ready. One load of one word.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.region().ready.has_any()
    }

    /// The owner's: calls `f` with each ready slot and when it was posted, and makes it not ready.
    /// One thread at a time.
    ///
    /// The time is nanoseconds of `CLOCK_MONOTONIC` as the peer says them, or
    /// [`crate::arrivals::NO_TIME`]. Slots come in no order that means anything. A slot that was
    /// posted before another is missing only if the other was posted while this ran: then it is
    /// there now.
    pub fn take_ready(&self, f: &mut dyn FnMut(u32, u64)) {
        let Region { ready, arrivals, .. } = self.region();
        ready.take(&mut |slot| f(slot, arrivals.take(slot)));
    }

    /// The owner's: when, as the peer says, the slot was posted for which the ready event was last
    /// written. What was posted until then came before whatever the kernel lists behind that event.
    pub fn rung_ns(&self) -> u64 {
        self.region().doorbell.rung_ns()
    }

    /// The owner's: `slot` has a new peer, which has posted nothing yet.
    pub fn forget(&self, slot: u32) {
        self.region().arrivals.take(slot);
    }

    /// The owner's: as [`Inbox::take_ready`], for attention; empties the attention event first.
    pub fn take_attention(&self, f: &mut dyn FnMut(u32)) {
        drain(&self.attention);
        self.region().attention.take(f);
    }

    /// The owner's: this thread is about to sleep. It must look once more after this.
    pub fn announce(&self) {
        self.region().doorbell.announce(&self.within);
    }

    /// The owner's: this thread is awake.
    pub fn withdraw(&self) {
        self.region().doorbell.withdraw(&self.within);
    }

    /// Readable when a bit was posted while a thread slept.
    pub fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Readable when attention was asked for.
    pub fn attention_fd(&self) -> BorrowedFd<'_> {
        self.attention.as_fd()
    }

    /// The owner's: the event is dealt with. Only by a thread that has found no ready bit, under
    /// the lock under which bits are taken; if bits came meanwhile, the event is raised again.
    pub fn clear_event(&self) {
        drain(&self.ready);
        let doorbell = &self.region().doorbell;
        doorbell.cleared();
        if self.has_ready() && doorbell.ring() {
            signal(&self.ready);
        }
    }
}

/// Adds one to an event. It does not block; if it cannot be added to, it is readable anyhow.
fn signal(event: &Held) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Whether the event blocks is a flag that everybody who has it can change: this does not.
fn drain(event: &Held) {
    let mut count = [0; 8];
    let buf = &mut [IoSliceMut::new(&mut count)];
    let done = rustix::io::preadv2(event, buf, u64::MAX, ReadWriteFlags::NOWAIT);
    // Kernels whose events do not know the flag. Only the owner reads: what a poll promises is
    // still there.
    if matches!(done, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&now)) == Ok(1) {
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }
}
