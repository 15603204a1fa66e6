//! The shared words of one ring, and the steps on them.
//!
//! Positions count bytes since the beginning and never wrap in practice (2^63 bytes). Bit 63 is
//! [`FROZEN`]: once it is set no compare-exchange succeeds, so the bytes that count are exactly
//! those between the two frozen positions. Not here: the bytes, and sleeping ([`crate::bell`]). The
//! models are `tests/loom_freeze.rs` and `tests/loom_rewind.rs`.
//!
//! # Where a position lies
//! A ring has a *near* part, at its beginning, and behind that a *far* part, which is used only
//! while the reader is far behind. In the near part a position lies at `position + skew`, taken
//! modulo that part's size. The writer may change the skew while the ring is empty, so that the
//! next bytes lie where the ring's memory begins: short messages then use the same cache lines and
//! pages again and again.
//!
//! A writer that finds the near part full may *turn*: bytes from that position on lie in the far
//! part, the first at its beginning. It does so once; when the ring is empty, and not before, the
//! next bytes lie in the near part again. So memory that holds unread bytes is where the reader
//! looks for them. The reader takes the skew and the turn after it has seen bytes. While there are
//! some the skew cannot change, as the reader's own head says that the ring is not empty, and a
//! turn can only begin behind them.

use crate::bell::BellWord;
pub use crate::geometry::{Geometry, RingRun};
use sojourn_shm::{AtomicU32, AtomicU64, Ordering, fence};

/// The bit of a position that ends all progress.
pub const FROZEN: u64 = 1 << 63;
/// The bit of `flushed` that says that the count is final.
pub const FLUSHED: u64 = 1 << 63;
/// The bit of `flushed` that says that the count will grow.
pub const FLUSHING: u64 = 1 << 62;
/// The bit of `flushed` that says that the writer has begun to put the leftover into the kernel,
/// beginning at the byte of the count.
pub const BEGUN: u64 = 1 << 61;
/// The bit of `flushed` that says that the writer's next step is to end its side in the kernel.
pub const ENDS: u64 = 1 << 60;
/// The bits of `flushed` that are flags; the count is below them.
pub const FLUSH_BITS: u64 = FLUSHED | FLUSHING | BEGUN | ENDS;

/// The bit of `state` that says that the writer has switched.
const IN_USE: u32 = 1;
/// The bit beside it that says that the writer has turned.
const TURNED: u32 = 2;
/// Above them the near part's size, as a power of two (0: the whole ring), and the skew, which is
/// less than that.
const NEAR_SHIFT: u32 = 2;
const NEAR_MASK: u32 = 63;
const SKEW_SHIFT: u32 = 8;
/// The largest near part.
pub const NEAR_MAX: u32 = 1 << (u32::BITS - SKEW_SHIFT);

/// The mark of no short message, as in a fresh region.
const NO_MARK: u64 = 0;
const SHORT_WORDS: usize = 5;
/// Bytes of a short message: the rest of a cache line of 64 bytes.
pub const SHORT_MAX: usize = 8 * SHORT_WORDS;

/// The reason why an operation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// There is nothing to read.
    #[error("the ring is empty")]
    Empty,
    /// There is not enough room to write.
    #[error("the ring is full")]
    Full,
    /// The writer has not switched to this ring, or the ring does not exist: the caller uses the
    /// kernel.
    #[error("the writer has not switched to the ring")]
    NotOnRing,
    /// The stream goes home.
    #[error("the stream is frozen")]
    Frozen,
    /// A leftover was asked for before [`crate::Stream::freeze`] was called.
    #[error("the stream is not frozen")]
    NotFrozen,
    /// The peer wrote a position that is impossible.
    #[error("the peer broke the rules of the ring")]
    Violation,
}

/// The writer's words for publishing, on a line of its own, which the reader polls.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct TailLine {
    /// Bytes published, and [`FROZEN`].
    pub tail: AtomicU64,
    /// [`IN_USE`]: the writer has switched; [`TURNED`]; and the place of the near part's bytes.
    state: AtomicU32,
    /// The processor the writer was last seen on, plus one.
    pub cpu: AtomicU32,
    /// Position and length of the last short message ([`mark`]); [`NO_MARK`] while it is written.
    mark: AtomicU64,
    /// A second copy of the last short message, on the line that the reader polls anyhow.
    short: [AtomicU64; SHORT_WORDS],
    /// With [`TURNED`]: the position from which on bytes lie in the far part.
    turn: AtomicU64,
    /// Publications of which the reader wants to hear each ([`crate::Bell::OnAttention`]).
    pub arrivals: AtomicU32,
}

/// How far the two sides of a ring have come, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The writer's.
    pub tail: u64,
    /// The reader's.
    pub head: u64,
}

/// The reader's words for consuming; the writer looks at them only when it is short of room.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct HeadLine {
    /// Bytes consumed, and [`FROZEN`].
    pub head: AtomicU64,
    /// Bytes that the reader got past the ring, from a writer in its own process: only to be shown.
    pub beside: AtomicU64,
}

/// The reader's words that change rarely.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct ReaderLine {
    /// How the reader sleeps.
    pub bell: BellWord,
    /// Not 0: the reader looks at the ring (`CONSENT`).
    consents: AtomicU32,
    /// The processor the reader was last seen on, plus one.
    pub cpu: AtomicU32,
}

/// The writer's words that change rarely.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct WriterLine {
    /// How the writer sleeps.
    pub bell: BellWord,
    /// The position of `head` from which on the writer wants to be rung.
    pub want: AtomicU64,
    /// The owner of the leftover. No bit: the reader, which has taken so many of its bytes from the
    /// ring. [`BEGUN`], [`FLUSHING`] or [`FLUSHED`]: the writer, which has that many in the kernel,
    /// those that the reader had taken among them.
    pub flushed: AtomicU64,
    /// Bytes that the writer's kernel had sent before the flush, plus one; 0: it does not say.
    pub sent: AtomicU64,
}

/// The words of one ring.
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// The reader polls this line.
    pub tail: TailLine,
    /// A writer that is short of room polls this line.
    pub head: HeadLine,
    /// The reader's.
    pub reader: ReaderLine,
    /// The writer's.
    pub writer: WriterLine,
}

impl Ring {
    /// Makes a ring as it lies in a zeroed region.
    pub fn new() -> Self {
        Self {
            tail: TailLine {
                tail: AtomicU64::new(0),
                state: AtomicU32::new(0),
                cpu: AtomicU32::new(0),
                mark: AtomicU64::new(0),
                short: core::array::from_fn(|_| AtomicU64::new(0)),
                turn: AtomicU64::new(0),
                arrivals: AtomicU32::new(0),
            },
            head: HeadLine { head: AtomicU64::new(0), beside: AtomicU64::new(0) },
            reader: ReaderLine {
                bell: BellWord::new(),
                consents: AtomicU32::new(0),
                cpu: AtomicU32::new(0),
            },
            writer: WriterLine {
                bell: BellWord::new(),
                want: AtomicU64::new(0),
                flushed: AtomicU64::new(0),
                sent: AtomicU64::new(0),
            },
        }
    }

    /// Consents: the reader looks at the ring from now on.
    pub fn consent(&self) {
        // SYNC: release; pairs with the acquire in `has_consent`.
        self.reader.consents.store(1, Ordering::Release);
    }

    /// Returns true if the reader has consented.
    pub fn has_consent(&self) -> bool {
        // SYNC: acquire; pairs with the release in `consent`.
        self.reader.consents.load(Ordering::Acquire) != 0
    }

    /// Switches: from now on the writer writes here, to a near part of `near` bytes ([`NEAR_MAX`]
    /// at most). Called once.
    pub fn start(&self, near: u32) {
        // SYNC: release: the bytes that went to the kernel before are found there; pairs with the
        // acquire in `is_used`.
        self.tail.state.store(IN_USE | near.ilog2() << NEAR_SHIFT, Ordering::Release);
    }

    /// Returns true if the writer has switched.
    pub fn is_used(&self) -> bool {
        // SYNC: acquire; pairs with the release in `start`.
        self.tail.state.load(Ordering::Acquire) & IN_USE != 0
    }

    /// Returns where bytes lie in a ring of `bytes` bytes. The reader may call this after
    /// [`Ring::tail`] has shown some, or for a frozen ring; the writer at any time.
    #[inline]
    pub fn place(&self, bytes: u32) -> Geometry {
        // SYNC: acquire, so that a reader that sees the turn sees its position; pairs with the
        // release in `set_turn`. The load that has shown the bytes was an acquire, too, which pairs
        // with the release in `publish` after `set_near`.
        let state = self.tail.state.load(Ordering::Acquire);
        let near = 1u32.checked_shl(state >> NEAR_SHIFT & NEAR_MASK).filter(|near| *near > 1);
        let turn = (state & TURNED != 0).then(|| self.tail.turn.load(Ordering::Relaxed));
        let near = near.filter(|near| *near <= bytes).unwrap_or(bytes.min(NEAR_MAX));
        Geometry { skew: state >> SKEW_SHIFT, near, turn }
    }

    /// Puts later bytes into the near part, of `near` bytes ([`NEAR_MAX`] at most), by the new
    /// skew. Only the writer calls this, after [`Ring::head`] has shown that the ring is empty.
    pub fn set_near(&self, near: u32, skew: u32) {
        let state = IN_USE | near.ilog2() << NEAR_SHIFT | skew << SKEW_SHIFT;
        // SYNC: release, as in `start`: a reader that sees the switch here first finds the same;
        // pairs with the acquire in `is_used`.
        self.tail.state.store(state, Ordering::Release);
    }

    /// Puts bytes from `turn` on, which is the tail, into the far part. Only the writer calls this,
    /// once until the ring is empty.
    pub fn set_turn(&self, turn: u64) {
        self.tail.turn.store(turn, Ordering::Relaxed);
        // SYNC: release; pairs with the acquire in `place`.
        self.tail.state.fetch_or(TURNED, Ordering::Release);
    }

    /// Returns the position up to which bytes are published, and makes them visible.
    ///
    /// # Errors
    /// [`Stop::Frozen`].
    #[inline]
    pub fn tail(&self) -> Result<u64, Stop> {
        // SYNC: acquire; pairs with the compare-exchange in `publish`.
        live(self.tail.tail.load(Ordering::Acquire))
    }

    /// Returns the same for a ring that may be frozen: nothing is published any more then, and
    /// published bytes are still there.
    #[inline]
    pub fn last_tail(&self) -> u64 {
        // SYNC: acquire; pairs with the compare-exchange in `publish`.
        self.tail.tail.load(Ordering::Acquire) & !FROZEN
    }

    /// Returns the consumed position of a ring that may be frozen.
    #[inline]
    pub fn last_head(&self) -> u64 {
        // SYNC: acquire; pairs with the compare-exchange in `consume`.
        self.head.head.load(Ordering::Acquire) & !FROZEN
    }

    /// Returns the position up to which bytes are consumed: those before it may be overwritten.
    ///
    /// # Errors
    /// [`Stop::Frozen`].
    #[inline]
    pub fn head(&self) -> Result<u64, Stop> {
        // SYNC: acquire; pairs with the compare-exchange in `consume`.
        live(self.head.head.load(Ordering::Acquire))
    }

    /// Publishes the bytes from `tail` to `to`. The caller rings the reader's bell next.
    ///
    /// # Errors
    /// [`Stop::Frozen`]: nothing was published. [`Stop::Violation`]: the peer has moved the tail.
    #[inline]
    pub fn publish(&self, tail: u64, to: u64) -> Result<(), Stop> {
        // SYNC: release; pairs with the acquire load in `tail`.
        advance(&self.tail.tail, tail, to)
    }

    /// Puts a second copy of the `len` bytes from `tail` on, which are about to be published,
    /// beside the tail: a reader that finds them there need not fetch the line on which they really
    /// lie. `words` has them; `len` is from 1 to [`SHORT_MAX`].
    ///
    /// The stores follow one another with nothing between, as in `sojourn_shm::Line::publish`.
    #[inline(always)]
    pub fn put_short(&self, tail: u64, len: usize, words: &[u64]) {
        let line = &self.tail;
        line.mark.store(NO_MARK, Ordering::Relaxed);
        // SYNC: release fence; pairs with the acquire fence in `copy_short`: a reader that sees a
        // word of this message sees that the last one is gone.
        fence(Ordering::Release);
        for (short, word) in line.short.iter().zip(words) {
            short.store(*word, Ordering::Relaxed);
        }
        // SYNC: release; pairs with the acquire load in `copy_short`.
        line.mark.store(mark(tail, len), Ordering::Release);
    }

    /// Returns the `len` bytes from `head` on, if exactly these are the last short message. The
    /// caller has seen that they are published.
    #[inline(always)]
    pub fn copy_short(&self, head: u64, len: usize) -> Option<[u8; SHORT_MAX]> {
        let line = &self.tail;
        let wanted = mark(head, len);
        // SYNC: acquire; pairs with the last store in `put_short`.
        if line.mark.load(Ordering::Acquire) != wanted {
            return None;
        }
        let mut bytes = [0; SHORT_MAX];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&line.short) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        // SYNC: acquire fence; pairs with the release fence in `put_short`.
        fence(Ordering::Acquire);
        (line.mark.load(Ordering::Relaxed) == wanted).then_some(bytes)
    }

    /// Consumes the bytes from `head` to `to`, which have been copied out. The caller rings the
    /// writer next.
    ///
    /// # Errors
    /// [`Stop::Frozen`]: nothing was consumed, and the copy does not count. [`Stop::Violation`]:
    /// the peer has moved the head.
    #[inline]
    pub fn consume(&self, head: u64, to: u64) -> Result<(), Stop> {
        // SYNC: release; pairs with the acquire load in `head`.
        advance(&self.head.head, head, to)
    }

    /// Ends all progress, at the tail first, because readers poll that.
    pub fn freeze(&self) {
        self.tail.tail.fetch_or(FROZEN, Ordering::AcqRel);
        self.head.head.fetch_or(FROZEN, Ordering::AcqRel);
    }

    /// Returns true if a freeze has at least begun.
    pub fn is_frozen(&self) -> bool {
        (self.tail.tail.load(Ordering::Acquire) | self.head.head.load(Ordering::Acquire)) & FROZEN
            != 0
    }

    /// Returns the positions of the frozen ring, each by one look.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`].
    pub fn positions(&self) -> Result<Positions, Stop> {
        // SYNC: acquire; pairs with `publish` and `consume`, whose releases `freeze` carries on.
        let tail = self.tail.tail.load(Ordering::Acquire);
        let head = self.head.head.load(Ordering::Acquire);
        if tail & head & FROZEN == 0 {
            return Err(Stop::NotFrozen);
        }
        Ok(Positions { tail: tail & !FROZEN, head: head & !FROZEN })
    }

    /// Begins the flush: from now on the writer puts the leftover into the kernel. Returns the
    /// number of its bytes that the reader has taken from the ring before; the reader takes no
    /// more. This is one exchange, so it ends whatever the other side writes there meanwhile.
    pub fn begin_flush(&self) -> u64 {
        // SYNC: acquire and release; pairs with the exchange in `take_left`.
        let before = self.writer.flushed.fetch_or(BEGUN, Ordering::AcqRel);
        before & !FLUSH_BITS
    }

    /// Takes the leftover's bytes from `from` to `to` from the ring for the reader, which has
    /// copied them, and has taken all bytes before. Returns false if the writer has begun to flush:
    /// then they come through the kernel.
    pub fn take_left(&self, from: u64, to: u64) -> bool {
        let word = &self.writer.flushed;
        // SYNC: acquire and release; pairs with the update in `begin_flush`.
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the number of bytes between two positions.
///
/// # Errors
/// [`Stop::Violation`]: the positions are impossible.
#[inline]
pub fn used(tail: u64, head: u64, ring_bytes: u32) -> Result<usize, Stop> {
    match tail.checked_sub(head) {
        Some(used) if used <= u64::from(ring_bytes) => Ok(used as usize),
        _ => Err(Stop::Violation),
    }
}

/// Packs position and length of a short message into one word. The low 58 bits of the position are
/// enough.
#[inline(always)]
fn mark(position: u64, len: usize) -> u64 {
    position << 6 | len as u64
}

#[inline]
fn live(position: u64) -> Result<u64, Stop> {
    if position & FROZEN == 0 { Ok(position) } else { Err(Stop::Frozen) }
}

#[inline]
fn advance(word: &AtomicU64, from: u64, to: u64) -> Result<(), Stop> {
    match word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(found) if found & FROZEN != 0 => Err(Stop::Frozen),
        Err(_) => Err(Stop::Violation),
    }
}
