//! The inbox: the place where the peers of many streams post for one waiter.
//!
//! It has a bitmap of *ready* slots with the time of each post, a bitmap of slots that want
//! *attention*, and an event descriptor for each bitmap. The owner's threads take the bits; peers
//! post them. One type serves both, as both map the same region. Not here: the steps on the bitmaps
//! (`bits`) and on the words of an event (`doorbell`), and the descriptors (`event`).
//!
//! # Contract of the owner's threads
//! Any number of them may sleep. [`Inbox::take_ready`] and [`Inbox::clear_event`] are for one
//! thread at a time, under the lock of the set, which also guards the list of slots taken and not
//! yet dealt with. A thread that waits:
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
use crate::doorbell::{Doorbell, LocalSleepers};
use crate::event::Event;
use crate::slot::SlotNumber;
use core::ptr::NonNull;
use rustix::fd::{AsFd as _, BorrowedFd};
use sojourn_shm::deadline::now_ns;
use sojourn_shm::{Access, Mapping, MovableFd, fault};
use std::sync::Arc;

/// The shared memory of an inbox.
#[repr(C)]
#[derive(Debug)]
struct Region {
    doorbell: Doorbell,
    ready: Bits,
    attention: Bits,
    /// The times of ready slots. Pages of slots that are never used are never touched.
    arrivals: Arrivals,
}

/// One view of an inbox.
#[derive(Debug)]
pub struct Inbox {
    _mapping: Mapping,
    region: NonNull<Region>,
    within: LocalSleepers,
    ready: Event,
    attention: Event,
}

// SAFETY: `region` points into the mapping, which the inbox owns and which any thread may use; it
// is only ever made a reference to atomics.
unsafe impl Send for Inbox {}
// SAFETY: `region` is only ever made a reference to atomics.
unsafe impl Sync for Inbox {}

impl Inbox {
    /// Slots of an inbox.
    pub const SLOTS: u32 = SLOTS;
    /// Bytes of its region, in whole pages.
    pub const LEN: usize = size_of::<Region>().next_multiple_of(4096);

    /// Makes a view of a region of [`Inbox::LEN`] bytes with its two event descriptors, which do
    /// not block (`EFD_NONBLOCK`, eventfd(2)), or, for an owner of another user than the peers,
    /// with epoll sets that watch them. Returns `None` if the mapping is too small or cannot be
    /// written.
    pub fn new(
        mapping: Mapping,
        ready: impl Into<MovableFd>,
        attention: impl Into<MovableFd>,
    ) -> Option<Self> {
        let (ready, attention) = (ready.into(), attention.into());
        let is_set = Event::is_set(&ready, &attention);
        let (ready, attention) = (Event::new(ready, is_set), Event::new(attention, is_set));
        if mapping.len() < Self::LEN || mapping.access() != Access::ReadWrite {
            return None;
        }
        let region = NonNull::new(mapping.span(0, size_of::<Region>())?.as_ptr())?.cast();
        Some(Self { _mapping: mapping, region, within: LocalSleepers::default(), ready, attention })
    }

    /// Returns true if the peers are another user's: the events are epoll sets, and the owner can
    /// post only after [`Inbox::posts_by`].
    pub fn is_apart(&self) -> bool {
        self.ready.is_watch()
    }

    /// Gives an inbox that [`Inbox::is_apart`] the descriptor by which its owner posts: an event
    /// with a count, of which nothing is ever taken.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn posts_by(mut self, waker: impl Into<MovableFd>) -> rustix::io::Result<Self> {
        let waker = Arc::new(waker.into());
        self.ready.ring_by(Arc::clone(&waker))?;
        self.attention.ring_by(waker)?;
        Ok(self)
    }

    fn region(&self) -> &Region {
        // SAFETY: within the mapping and page-aligned, as `new` has checked; made of atomics, for
        // which any bytes are valid; the mapping lives as long as `self`.
        unsafe { self.region.as_ref() }
    }

    /// Marks `slot` as ready and wakes the owner if it sleeps; called by a peer. Returns true if it
    /// had to wake the owner. Slots that do not exist are ignored.
    pub fn post_ready(&self, slot: SlotNumber) -> bool {
        let (region, now_ns) = (self.region(), now_ns());
        region.arrivals.note(slot.0, now_ns);
        region.ready.post(slot.0);
        fault::point("stream.posted");
        let rings = region.doorbell.must_ring();
        if rings {
            fault::point("stream.ringing");
            region.doorbell.rings_for(now_ns);
            self.ready.ring();
        }
        rings
    }

    /// Marks `slot` as ready, like [`Inbox::post_ready`]; called by the owner. It does not rely on
    /// a peer's word that the event is written: the peer can die between that word and the write.
    pub fn post_own(&self, slot: SlotNumber) {
        self.region().arrivals.note(slot.0, now_ns());
        self.region().ready.post(slot.0);
        self.region().doorbell.force();
        self.ready.ring();
    }

    /// Marks `slot` as wanting attention, and tells the owner if that is news; called by a peer or
    /// by the owner. Returns true if it was news.
    pub fn post_attention(&self, slot: SlotNumber) -> bool {
        let is_news = self.region().attention.post(slot.0);
        if is_news {
            fault::point("stream.attention");
            self.attention.ring();
        }
        is_news
    }

    /// Returns true if a slot may be ready, by one load of one word; called by the owner.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.region().ready.has_any()
    }

    /// Calls `f` with each ready slot and the time of its post, and makes it not ready; called by
    /// the owner, by one thread at a time.
    ///
    /// The time is nanoseconds of `CLOCK_MONOTONIC` by the peer's word, or
    /// [`crate::arrivals::NO_TIME`]. The order of slots means nothing. A slot that was posted
    /// before another is missing only if the other was posted while this ran: then it is there now.
    pub fn take_ready(&self, f: &mut dyn FnMut(SlotNumber, u64)) {
        let Region { ready, arrivals, .. } = self.region();
        ready.take(&mut |slot| f(SlotNumber(slot), arrivals.take(slot)));
    }

    /// Returns the time, by the peer's word, of the post for which the ready event was last
    /// written; called by the owner. Posts until then are older than events that the kernel lists
    /// behind that event.
    pub fn rung_ns(&self) -> u64 {
        self.region().doorbell.rung_ns()
    }

    /// Forgets the time of `slot`, which has a new peer that has posted nothing yet; called by the
    /// owner.
    pub fn forget(&self, slot: SlotNumber) {
        self.region().arrivals.take(slot.0);
    }

    /// Takes the slots that want attention, after emptying the attention event; called by the
    /// owner.
    pub fn take_attention(&self, f: &mut dyn FnMut(SlotNumber)) {
        self.attention.clear();
        self.region().attention.take(&mut |slot| f(SlotNumber(slot)));
    }

    /// Announces that this thread is about to sleep; called by the owner. The thread looks once
    /// more after this.
    pub fn announce(&self) {
        self.region().doorbell.announce(&self.within);
    }

    /// Takes back the announcement of this thread, which is awake; called by the owner.
    pub fn withdraw(&self) {
        self.region().doorbell.withdraw(&self.within);
    }

    /// Returns the event that is readable when a bit was posted while a thread slept.
    pub fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Returns the event that is readable when attention was asked for.
    pub fn attention_fd(&self) -> BorrowedFd<'_> {
        self.attention.as_fd()
    }

    /// Clears the ready event; called by a thread of the owner that has found no ready bit, under
    /// the lock under which bits are taken. If bits came meanwhile, the event is written again.
    pub fn clear_event(&self) {
        self.ready.clear();
        let doorbell = &self.region().doorbell;
        doorbell.cleared();
        if self.has_ready() && doorbell.ring() {
            self.ready.ring();
        }
    }
}
