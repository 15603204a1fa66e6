//! One side's view of a stream: its mapping, its private memory of positions, and its bells.
//!
//! Not here: writing (`write`), reading (`read`), the way home (`home`).

use crate::bell::{self, Bell, BellWord};
use crate::cache::{NO_TURN, RingCache};
use crate::inbox::Inbox;
use crate::layout::{Control, Layout};
use crate::ledger::Ledger;
use crate::ring::{Geometry, NEAR_MAX, Ring};
use crate::slot::SlotNumber;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use sojourn_shm::futex::{self, Woken};
use sojourn_shm::{Access, Mapping, fault};
use std::sync::Arc;

/// A value of [`Stream::end`]: the stream lives as far as this side knows.
pub(crate) const LIVES: u32 = 0;
/// A value of [`Stream::end`]: the stream was seen frozen.
pub(crate) const SEEN: u32 = 1;
/// A value of [`Stream::end`]: this side has frozen the stream completely.
pub(crate) const DONE: u32 = 2;

/// One side's view of a stream: it writes ring `side` and reads ring `1 - side`.
///
/// All methods take `&self`. **The caller keeps its writers apart with one lock and its readers
/// with another**: methods under "writing" need the first, those under "reading" the second, for as
/// long as they run. Everything else may be called from any thread at any time.
#[derive(Debug)]
pub struct Stream {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) layout: Layout,
    control: NonNull<Control>,
    pub(crate) side: usize,
    pub(crate) writing: RingCache,
    pub(crate) reading: RingCache,
    pub(crate) cpu: AtomicU32,
    /// The end of the stream, as far as this side knows: it never comes back to life here.
    pub(crate) end: AtomicU32,
    /// The furthest state of its flush that the peer has written.
    pub(crate) peer_flush: AtomicU64,
    /// Not zero: this side ends in the kernel when it has gone home.
    pub(crate) ends: AtomicU32,
    /// Another process reads and writes on this side: the positions are those in the rings.
    pub(crate) is_observer: bool,
    /// Wake-ups of the peer since [`Stream::has_rung`] last returned true.
    rung: AtomicU32,
    /// The state of the writer's cork (`cork`); 0: none is in.
    pub(crate) cork: AtomicU32,
    pub(crate) peer_inbox: Arc<Inbox>,
    pub(crate) peer_slot: SlotNumber,
    /// Memory that is not needed for now goes back to the kernel.
    pub(crate) gives_back: bool,
}

// SAFETY: `control` points into `mapping`, which lives as long as the stream and which any thread
// may use; it is only ever made a reference to atomics.
unsafe impl Send for Stream {}
// SAFETY: `control` is only ever made a reference to atomics.
unsafe impl Sync for Stream {}

/// The bytes that one side of a session has sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

impl Stream {
    /// Makes the view of side `side` (0 or 1) on a region of that layout. The peer wakes this
    /// side's sleepers that are [`Bell::OnInbox`]; this side wakes the peer's through `peer_slot`
    /// of `peer_inbox`.
    ///
    /// The region counts as fresh: nothing has been read or written on this side, whatever the peer
    /// may have put there. Returns `None` for another side, or if the mapping is too small or
    /// cannot be written.
    pub fn new(
        mapping: Mapping,
        layout: Layout,
        side: usize,
        peer_inbox: Arc<Inbox>,
        peer_slot: SlotNumber,
    ) -> Option<Self> {
        Self::on(Arc::new(mapping), layout, side, peer_inbox, peer_slot)
    }

    /// Makes the view of the side on which another process reads and writes, of a region that may
    /// be in use. Its positions are those in the rings, which both ends can write.
    pub fn observer(
        mapping: Mapping,
        layout: Layout,
        side: usize,
        peer_inbox: Arc<Inbox>,
        peer_slot: SlotNumber,
    ) -> Option<Self> {
        let mut stream = Self::new(mapping, layout, side, peer_inbox, peer_slot)?;
        stream.is_observer = true;
        // The other process may be another user's: see `keeping_memory`.
        stream.gives_back = false;
        stream.take_over();
        Some(stream)
    }

    /// Makes the view of the other side, on the same mapping, for a process that is both sides:
    /// memory that one side has touched is then warm for the other, too. As in [`Stream::new`],
    /// `inbox` and `slot` are those of the new view's peer.
    pub fn other_side(&self, inbox: Arc<Inbox>, slot: SlotNumber) -> Option<Self> {
        Self::on(Arc::clone(&self.mapping), self.layout, 1 - self.side, inbox, slot)
    }

    fn on(
        mapping: Arc<Mapping>,
        layout: Layout,
        side: usize,
        peer_inbox: Arc<Inbox>,
        peer_slot: SlotNumber,
    ) -> Option<Self> {
        if side > 1 || mapping.len() < layout.len() || mapping.access() != Access::ReadWrite {
            return None;
        }
        let control = NonNull::new(mapping.span(0, size_of::<Control>())?.as_ptr())?.cast();
        let stream = Self {
            mapping,
            layout,
            control,
            side,
            writing: RingCache::default(),
            reading: RingCache::default(),
            cpu: AtomicU32::new(0),
            end: AtomicU32::new(LIVES),
            peer_flush: AtomicU64::new(0),
            ends: AtomicU32::new(0),
            is_observer: false,
            rung: AtomicU32::new(0),
            cork: AtomicU32::new(0),
            peer_inbox,
            peer_slot,
            gives_back: true,
        };
        let near = stream.out_bytes().min(NEAR_MAX);
        stream.remember(Geometry { skew: 0, near, turn: None });
        Some(stream)
    }

    /// Keeps the region's memory as long as the stream, for a peer of another user: giving memory
    /// back waits for the file's lock, which that user can hold as long as it likes. (It writes to
    /// the file itself, from a page that does not come.)
    #[must_use]
    pub fn keeping_memory(self) -> Self {
        Self { gives_back: false, ..self }
    }

    fn take_over(&self) {
        use crate::ring::FROZEN;
        let (out, into) = (self.out_ring(), self.in_ring());
        let tail = out.tail.tail.load(Ordering::Acquire) & !FROZEN;
        let head = into.head.head.load(Ordering::Acquire) & !FROZEN;
        self.writing.own.store(tail, Ordering::Relaxed);
        self.reading.own.store(head, Ordering::Relaxed);
        // The ring counts as full and as empty, so that the first look goes to the peer's line.
        let full = tail.saturating_sub(u64::from(self.layout.ring_bytes(self.side)));
        self.writing.peer.store(full, Ordering::Relaxed);
        self.reading.peer.store(head, Ordering::Relaxed);
        self.writing.uses_ring.store(out.is_used(), Ordering::Relaxed);
        self.reading.consents.store(into.has_consent(), Ordering::Relaxed);
        self.remember(out.place(self.out_bytes()));
        self.writing.rewinds_at.store(tail, Ordering::Relaxed);
    }

    /// Remembers where this side's bytes lie.
    pub(crate) fn remember(&self, place: Geometry) {
        self.writing.skew.store(place.skew, Ordering::Relaxed);
        self.writing.near.store(place.near, Ordering::Relaxed);
        self.writing.turn.store(place.turn.unwrap_or(NO_TURN), Ordering::Relaxed);
    }

    fn control(&self) -> &Control {
        // SAFETY: within the mapping and page-aligned, as `new` has checked; made of atomics, for
        // which any bytes are valid; the mapping lives as long as `self`.
        unsafe { self.control.as_ref() }
    }

    /// Returns the ring that this side writes.
    pub(crate) fn out_ring(&self) -> &Ring {
        &self.control().rings[self.side]
    }

    /// Returns the ring that this side reads.
    pub(crate) fn in_ring(&self) -> &Ring {
        &self.control().rings[1 - self.side]
    }

    /// Returns the ledger of a session that is carried to another host.
    pub fn ledger(&self) -> &Ledger {
        &self.control().ledger
    }

    /// Returns the bytes of the ring that this side writes; 0 if it has none.
    pub fn out_bytes(&self) -> u32 {
        self.layout.ring_bytes(self.side)
    }

    /// Returns the bytes of the ring that this side reads; 0 if it has none.
    pub fn in_bytes(&self) -> u32 {
        self.layout.ring_bytes(1 - self.side)
    }

    /// Announces that a thread which reads is about to sleep in that way. The thread calls
    /// [`Stream::may_read`] once more *after* this and before it sleeps. Returns the bell's value,
    /// which a futex wait on [`Stream::reader_bell`] expects ([`Stream::sleep_reader`]).
    pub fn announce_reader(&self, how: Bell) -> u32 {
        self.reading.sleepers.announce(&self.in_ring().reader.bell, how)
    }

    /// Takes back an announcement of [`Bell::OnFutex`] as reader, once for each. [`Bell::OnInbox`]
    /// stays until the bell rings, and is not taken back.
    pub fn withdraw_reader(&self) {
        self.reading.sleepers.withdraw(&self.in_ring().reader.bell);
    }

    /// Returns the own bell as reader.
    pub fn reader_bell(&self) -> &AtomicU32 {
        self.in_ring().reader.bell.word()
    }

    /// Sleeps as reader, after [`Stream::announce_reader`] has returned `expected` and a further
    /// look has found nothing: waits on the bell by `wait`, which is [`futex::wait`] or like it.
    /// Returns for any reason.
    pub fn sleep_reader(
        &self,
        expected: u32,
        timeout: Option<Duration>,
        wait: impl FnOnce(&AtomicU32, u32, Option<Duration>) -> Woken,
    ) -> Woken {
        fault::point("stream.sleeps");
        wait(self.reader_bell(), expected, timeout)
    }

    /// Announces that a thread which writes is about to sleep in that way, until there are `room`
    /// bytes of room. The thread calls [`Stream::may_write`] once more *after* this and before it
    /// sleeps. Returns the bell's value.
    pub fn announce_writer(&self, how: Bell, room: usize) -> u32 {
        let ring = self.out_ring();
        let bytes = u64::from(self.part_bytes());
        let room = (room.max(1) as u64).min(bytes);
        let tail = self.writing.own.load(Ordering::Relaxed);
        let want = (tail + room).saturating_sub(bytes);
        self.writing.sleepers.announce_want(&ring.writer.bell, how, &ring.writer.want, want)
    }

    /// Takes back an announcement of [`Bell::OnFutex`] as writer, like [`Stream::withdraw_reader`].
    pub fn withdraw_writer(&self) {
        self.writing.sleepers.withdraw(&self.out_ring().writer.bell);
    }

    /// Returns the own bell as writer.
    pub fn writer_bell(&self) -> &AtomicU32 {
        self.out_ring().writer.bell.word()
    }

    /// Sleeps as writer, like [`Stream::sleep_reader`].
    pub fn sleep_writer(
        &self,
        expected: u32,
        timeout: Option<Duration>,
        wait: impl FnOnce(&AtomicU32, u32, Option<Duration>) -> Woken,
    ) -> Woken {
        fault::point("stream.full");
        wait(self.writer_bell(), expected, timeout)
    }

    /// Wakes this side's own readers, for something that happened elsewhere (the kernel's
    /// descriptor had an event, the stream went home), also if the peer has taken their flags and
    /// has died. Returns true if some sleep [`Bell::OnInbox`], or have done so since the last call:
    /// then the caller posts this session's slot to its own inbox ([`Inbox::post_own`]).
    pub fn wake_reader(&self) -> bool {
        wake_own(&self.reading, &self.in_ring().reader.bell)
    }

    /// Wakes this side's own writers, like [`Stream::wake_reader`].
    pub fn wake_writer(&self) -> bool {
        wake_own(&self.writing, &self.out_ring().writer.bell)
    }

    /// Wakes the peer's sleepers, readers and writers.
    pub fn notify_peer(&self) {
        for bell in [&self.out_ring().reader.bell, &self.in_ring().writer.bell] {
            if bell.has_sleepers_after_store() {
                self.wake_peer(bell);
            }
        }
    }

    /// Wakes the peer's sleepers on that bell.
    #[cold]
    pub(crate) fn wake_peer(&self, bell: &BellWord) {
        let flags = bell.take();
        fault::point("stream.taken");
        let asks = flags & bell::ATTENTION != 0 && self.must_tell(bell);
        let is_asked = asks && self.peer_inbox.post_attention(self.peer_slot);
        if flags & bell::FUTEX != 0 {
            futex::wake_all(bell.word());
        }
        let is_inbox = flags & bell::INBOX != 0;
        let is_posted = is_inbox && self.peer_inbox.post_ready(self.peer_slot);
        if is_posted || is_asked || flags & bell::FUTEX != 0 {
            // A count lost between threads does no harm.
            self.rung.store(self.rung.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Returns true if the peer had to be woken `times` times since this last returned true.
    #[inline]
    pub fn has_rung(&self, times: u32) -> bool {
        let has = self.rung.load(Ordering::Relaxed) >= times;
        if has {
            self.rung.store(0, Ordering::Relaxed);
        }
        has
    }

    /// Returns true for side 0.
    pub fn is_first(&self) -> bool {
        self.side == 0
    }

    /// Asks the peer's protocol thread to look at this stream.
    pub fn attention(&self) {
        self.peer_inbox.post_attention(self.peer_slot);
    }

    /// Sets the processor on which this side runs, plus one (`wait::Policy::cpu`); the next read or
    /// write tells the peer.
    pub fn set_cpu(&self, cpu: u16) {
        if self.cpu.load(Ordering::Relaxed) != u32::from(cpu) {
            self.cpu.store(u32::from(cpu), Ordering::Relaxed);
        }
    }

    /// Returns the processor from which the peer last wrote, plus one; 0 if it is unknown.
    pub fn peer_cpu_writing(&self) -> u16 {
        self.in_ring().tail.cpu.load(Ordering::Relaxed) as u16
    }

    /// Returns the processor from which the peer last read, plus one; 0 if it is unknown.
    pub fn peer_cpu_reading(&self) -> u16 {
        self.out_ring().reader.cpu.load(Ordering::Relaxed) as u16
    }

    /// Returns true if the peer last wrote from the processor of this thread: then the peer does
    /// not run while this thread does.
    pub fn writer_is_near(&self) -> bool {
        self.is_here(self.peer_cpu_writing())
    }

    /// Returns true if the peer last read on the processor of this thread.
    pub fn reader_is_near(&self) -> bool {
        self.is_here(self.peer_cpu_reading())
    }

    fn is_here(&self, cpu: u16) -> bool {
        cpu != 0 && self.cpu.load(Ordering::Relaxed) == u32::from(cpu)
    }

    /// Tells the peer this side's processor, if it has changed.
    #[inline]
    pub(crate) fn publish_cpu(&self, seen: &RingCache, word: &AtomicU32) {
        let cpu = self.cpu.load(Ordering::Relaxed);
        if cpu != seen.published_cpu.load(Ordering::Relaxed) {
            seen.published_cpu.store(cpu, Ordering::Relaxed);
            word.store(cpu, Ordering::Relaxed);
        }
    }

    /// Returns the bytes that both sides have written so far, by the words in the rings: for a
    /// process that has not written itself.
    pub fn published_totals(&self) -> Traffic {
        let published = |ring: &Ring| ring.tail.tail.load(Ordering::Relaxed) & !crate::ring::FROZEN;
        Traffic { sent: published(self.out_ring()), received: published(self.in_ring()) }
    }

    /// Returns the bytes so far, through the rings and past them.
    pub fn totals(&self) -> Traffic {
        let beside = self.in_ring().head.beside.load(Ordering::Relaxed);
        let received = self.reading.own.load(Ordering::Relaxed).saturating_add(beside);
        Traffic { sent: self.writing.own.load(Ordering::Relaxed), received }
    }
}

fn wake_own(seen: &RingCache, bell: &BellWord) -> bool {
    let flags = seen.sleepers.take(bell);
    if flags & bell::FUTEX != 0 {
        futex::wake_all(bell.word());
    }
    flags & bell::INBOX != 0
}
