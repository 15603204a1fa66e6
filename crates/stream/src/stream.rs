//! One side's view of a stream: what it maps, what it remembers, and its bells.
//!
//! Writing is in `write`, reading in `read`, the way home in `home`.

use crate::bell::{self, Bell, BellWord, Sleepers};
use crate::inbox::Inbox;
use crate::layout::{Control, Layout};
use crate::ledger::Ledger;
use crate::ring::{Geometry, NEAR_MAX, Ring, Stop};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use sojourn_shm::futex::{self, Woken};
use sojourn_shm::{Access, Mapping, fault};
use std::sync::{Arc, OnceLock};

/// In [`Seen::turn`].
pub(crate) const NO_TURN: u64 = u64::MAX;

/// What a side remembers of one ring, so that it need not look at the peer's line, nor trust its
/// own: the peer can write every shared word at any time. What is one's own is never read back from
/// there, and what the peer has once been seen to say it cannot unsay.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Our own position in this ring.
    pub(crate) own: AtomicU64,
    /// The peer's, as last seen under the direction's lock: possible, and never less than before.
    pub(crate) peer: AtomicU64,
    /// The peer's, as a thread of ours has seen it that waited without that lock: not looked at
    /// closely.
    pub(crate) sighted: AtomicU64,
    /// Whether this direction has switched to the ring, as far as we know.
    pub(crate) uses_ring: AtomicBool,
    /// As reader: whether we have consented.
    pub(crate) consents: AtomicBool,
    /// As writer: where our bytes lie, and from which position on to look whether the ring can be
    /// rewound.
    pub(crate) skew: AtomicU32,
    pub(crate) near: AtomicU32,
    /// [`NO_TURN`] if they lie in the near part.
    pub(crate) turn: AtomicU64,
    pub(crate) rewinds_at: AtomicU64,
    /// The processor as last told to the peer.
    pub(crate) told_cpu: AtomicU32,
    /// Our sleepers.
    pub(crate) sleepers: Sleepers,
    /// What was left over in the frozen ring, copied once.
    pub(crate) left: OnceLock<Result<Left, Stop>>,
}

/// What is left over in a frozen ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// The position of its first byte.
    pub(crate) from: u64,
    pub(crate) len: usize,
    pub(crate) place: Geometry,
    /// The writer has said what cannot be: it is not relied on to flush anything.
    pub(crate) is_broken: bool,
}

/// Values of [`Stream::end`]: the stream lives as far as we know.
pub(crate) const LIVES: u32 = 0;
/// Somebody was seen to have frozen it.
pub(crate) const SEEN: u32 = 1;
/// We have frozen it ourselves.
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
    pub(crate) writing: Seen,
    pub(crate) reading: Seen,
    pub(crate) cpu: AtomicU32,
    /// How the stream ends, as far as we know: it never comes back to life for us.
    pub(crate) end: AtomicU32,
    /// The furthest that the peer has said of its flush.
    pub(crate) said: AtomicU64,
    /// It is somebody else who reads and writes on this side: the positions are what the rings say.
    pub(crate) is_told: bool,
    /// How often the peer had to be woken, since [`Stream::has_rung`] last said yes.
    rung: AtomicU32,
    pub(crate) peer_inbox: Arc<Inbox>,
    pub(crate) peer_slot: u32,
}

// SAFETY: `control` points into `mapping`, which lives as long as the stream and which any thread
// may use; it is only ever made a reference to atomics.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// The view of side `side` (0 or 1) on a region of that layout. Its sleepers that are
    /// [`Bell::OnInbox`] are woken by the peer; those of the peer through `peer_slot` of
    /// `peer_inbox`.
    ///
    /// The region is fresh: nothing has been read or written on this side, whatever the peer may
    /// have put there. `None`: no such side, or the mapping is too small or cannot be written.
    pub fn new(
        mapping: Mapping,
        layout: Layout,
        side: usize,
        peer_inbox: Arc<Inbox>,
        peer_slot: u32,
    ) -> Option<Self> {
        Self::on(Arc::new(mapping), layout, side, (peer_inbox, peer_slot))
    }

    /// The view of the side on which another process reads and writes, of a region that may be in
    /// use. Its positions are what the rings say, which both ends can write.
    pub fn told(
        mapping: Mapping,
        layout: Layout,
        side: usize,
        peer_inbox: Arc<Inbox>,
        peer_slot: u32,
    ) -> Option<Self> {
        let mut stream = Self::new(mapping, layout, side, peer_inbox, peer_slot)?;
        stream.is_told = true;
        stream.take_over();
        Some(stream)
    }

    /// The view of the other side, of somebody who is both, on the same mapping: what one side has
    /// touched is then warm for the other, too. As in [`Stream::new`], `inbox` and `slot` are of
    /// the side that is the new one's peer.
    pub fn other_side(&self, inbox: Arc<Inbox>, slot: u32) -> Option<Self> {
        Self::on(Arc::clone(&self.mapping), self.layout, 1 - self.side, (inbox, slot))
    }

    fn on(
        mapping: Arc<Mapping>,
        layout: Layout,
        side: usize,
        (peer_inbox, peer_slot): (Arc<Inbox>, u32),
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
            writing: Seen::default(),
            reading: Seen::default(),
            cpu: AtomicU32::new(0),
            end: AtomicU32::new(LIVES),
            said: AtomicU64::new(0),
            is_told: false,
            rung: AtomicU32::new(0),
            peer_inbox,
            peer_slot,
        };
        let near = stream.out_bytes().min(NEAR_MAX);
        stream.remember(Geometry { skew: 0, near, turn: None });
        Some(stream)
    }

    fn take_over(&self) {
        use crate::ring::FROZEN;
        let (out, into) = (self.out_ring(), self.in_ring());
        let tail = out.tail.tail.load(Ordering::Acquire) & !FROZEN;
        let head = into.head.head.load(Ordering::Acquire) & !FROZEN;
        self.writing.own.store(tail, Ordering::Relaxed);
        self.reading.own.store(head, Ordering::Relaxed);
        // Full and empty as far as we know: the first look goes to the peer's line.
        let full = tail.saturating_sub(u64::from(self.layout.ring_bytes(self.side)));
        self.writing.peer.store(full, Ordering::Relaxed);
        self.reading.peer.store(head, Ordering::Relaxed);
        self.writing.uses_ring.store(out.is_used(), Ordering::Relaxed);
        self.reading.consents.store(into.has_consent(), Ordering::Relaxed);
        self.remember(out.place(self.out_bytes()));
        self.writing.rewinds_at.store(tail, Ordering::Relaxed);
    }

    /// Where our bytes lie.
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

    /// The ring this side writes.
    pub(crate) fn out_ring(&self) -> &Ring {
        &self.control().rings[self.side]
    }

    /// The ring this side reads.
    pub(crate) fn in_ring(&self) -> &Ring {
        &self.control().rings[1 - self.side]
    }

    /// What is told of a session that is carried to another host.
    pub fn ledger(&self) -> &Ledger {
        &self.control().ledger
    }

    /// Bytes of the ring this side writes; 0 if it has none.
    pub fn out_bytes(&self) -> u32 {
        self.layout.ring_bytes(self.side)
    }

    /// Bytes of the ring this side reads; 0 if it has none.
    pub fn in_bytes(&self) -> u32 {
        self.layout.ring_bytes(1 - self.side)
    }

    /// A thread that reads is about to sleep that way. It must call [`Stream::may_read`] once more
    /// *after* this and before it sleeps. Answers what the bell says now: a futex wait on
    /// [`Stream::reader_bell`] expects that ([`Stream::sleep_reader`]).
    pub fn announce_reader(&self, how: Bell) -> u32 {
        self.reading.sleepers.announce(&self.in_ring().reader.bell, how)
    }

    /// A thread that had announced [`Bell::OnFutex`] as reader is awake. To be called once for each
    /// such announcement; [`Bell::OnInbox`] stays until it is rung and is not withdrawn.
    pub fn withdraw_reader(&self) {
        self.reading.sleepers.withdraw(&self.in_ring().reader.bell);
    }

    /// The own bell as reader.
    pub fn reader_bell(&self) -> &AtomicU32 {
        self.in_ring().reader.bell.word()
    }

    /// Sleeps as reader, after [`Stream::announce_reader`] has answered `said` and a further look
    /// has found nothing. Returns for any reason, as [`futex::wait`].
    pub fn sleep_reader(&self, said: u32, timeout: Option<Duration>) -> Woken {
        fault::point("stream.sleeps");
        futex::wait(self.reader_bell(), said, timeout)
    }

    /// A thread that writes is about to sleep that way, until there are `room` bytes of room. It
    /// must call [`Stream::may_write`] once more *after* this and before it sleeps. Answers as
    /// [`Stream::announce_reader`].
    pub fn announce_writer(&self, how: Bell, room: usize) -> u32 {
        let ring = self.out_ring();
        let bytes = u64::from(self.part_bytes());
        let room = (room.max(1) as u64).min(bytes);
        let tail = self.writing.own.load(Ordering::Relaxed);
        let want = (tail + room).saturating_sub(bytes);
        self.writing.sleepers.announce_want(&ring.writer.bell, how, &ring.writer.want, want)
    }

    /// A thread that had announced [`Bell::OnFutex`] as writer is awake; as
    /// [`Stream::withdraw_reader`].
    pub fn withdraw_writer(&self) {
        self.writing.sleepers.withdraw(&self.out_ring().writer.bell);
    }

    /// The own bell as writer.
    pub fn writer_bell(&self) -> &AtomicU32 {
        self.out_ring().writer.bell.word()
    }

    /// Sleeps as writer; as [`Stream::sleep_reader`].
    pub fn sleep_writer(&self, said: u32, timeout: Option<Duration>) -> Woken {
        fault::point("stream.full");
        futex::wait(self.writer_bell(), said, timeout)
    }

    /// Wakes this side's own readers, for something that happened elsewhere (the kernel's
    /// descriptor had an event, the stream went home), also if the peer has taken their flags and
    /// died. Answers whether some sleep [`Bell::OnInbox`], or have done so since this was last
    /// called: then the caller posts this session's slot to its own inbox ([`Inbox::post_own`]).
    pub fn wake_reader(&self) -> bool {
        wake_own(&self.reading, &self.in_ring().reader.bell)
    }

    /// Wakes this side's own writers; as [`Stream::wake_reader`].
    pub fn wake_writer(&self) -> bool {
        wake_own(&self.writing, &self.out_ring().writer.bell)
    }

    /// Wakes whoever sleeps on the peer's side, readers and writers.
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
        if flags & bell::FUTEX != 0 {
            futex::wake_all(bell.word());
        }
        let is_inbox = flags & bell::INBOX != 0;
        if (is_inbox && self.peer_inbox.post_ready(self.peer_slot)) || flags & bell::FUTEX != 0 {
            // A count lost between threads does no harm.
            self.rung.store(self.rung.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Whether the peer had to be woken that often since this last said yes.
    #[inline]
    pub fn has_rung(&self, times: u32) -> bool {
        let has = self.rung.load(Ordering::Relaxed) >= times;
        if has {
            self.rung.store(0, Ordering::Relaxed);
        }
        has
    }

    /// Whether this is side 0.
    pub fn is_first(&self) -> bool {
        self.side == 0
    }

    /// Asks the peer's protocol thread to look at this stream.
    pub fn attention(&self) {
        self.peer_inbox.post_attention(self.peer_slot);
    }

    /// The processor this side runs on, plus one (`wait::Policy::cpu`): told to the peer with the
    /// next read or write.
    pub fn set_cpu(&self, cpu: u16) {
        if self.cpu.load(Ordering::Relaxed) != u32::from(cpu) {
            self.cpu.store(u32::from(cpu), Ordering::Relaxed);
        }
    }

    /// The processor the peer last wrote from, plus one; 0: unknown.
    pub fn peer_cpu_writing(&self) -> u16 {
        self.in_ring().tail.cpu.load(Ordering::Relaxed) as u16
    }

    /// The processor the peer last read from, plus one; 0: unknown.
    pub fn peer_cpu_reading(&self) -> u16 {
        self.out_ring().reader.cpu.load(Ordering::Relaxed) as u16
    }

    /// Whether the peer last wrote from the processor that we run on: then it does not run while we
    /// do.
    pub fn writer_is_near(&self) -> bool {
        self.is_here(self.peer_cpu_writing())
    }

    /// Whether the peer last read on the processor that we run on.
    pub fn reader_is_near(&self) -> bool {
        self.is_here(self.peer_cpu_reading())
    }

    fn is_here(&self, cpu: u16) -> bool {
        cpu != 0 && self.cpu.load(Ordering::Relaxed) == u32::from(cpu)
    }

    /// Tells the peer our processor, if that changed.
    #[inline]
    pub(crate) fn tell_cpu(&self, seen: &Seen, word: &AtomicU32) {
        let cpu = self.cpu.load(Ordering::Relaxed);
        if cpu != seen.told_cpu.load(Ordering::Relaxed) {
            seen.told_cpu.store(cpu, Ordering::Relaxed);
            word.store(cpu, Ordering::Relaxed);
        }
    }

    /// Bytes that both sides have written so far, this one's first, as the rings say: for somebody
    /// who has not written himself.
    pub fn totals_told(&self) -> (u64, u64) {
        let told = |ring: &Ring| ring.tail.tail.load(Ordering::Relaxed) & !crate::ring::FROZEN;
        (told(self.out_ring()), told(self.in_ring()))
    }

    /// Bytes sent and received through the rings so far, and past them.
    pub fn totals(&self) -> (u64, u64) {
        let beside = self.in_ring().head.beside.load(Ordering::Relaxed);
        let received = self.reading.own.load(Ordering::Relaxed).saturating_add(beside);
        (self.writing.own.load(Ordering::Relaxed), received)
    }
}

fn wake_own(seen: &Seen, bell: &BellWord) -> bool {
    let flags = seen.sleepers.take(bell);
    if flags & bell::FUTEX != 0 {
        futex::wake_all(bell.word());
    }
    flags & bell::INBOX != 0
}
