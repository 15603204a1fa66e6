//! The shared region of one connection: its layout, and the packing of message headers.
//!
//! `docs/understand/ipc.md` draws it. Both sides compute the layout from two numbers that the
//! server chose and sent over the control socket; nothing about the layout is read from the region
//! itself. Not here: the protocol of writing and reading (`connection` for the client, `lane` for
//! the server).

use crate::rt::gather::TABLE_LEN;
use crate::rt::{FDS_MAX, GRANTS_MAX, ITEMS_MAX};
use core::ptr::NonNull;
pub(crate) use sojourn_shm::ring::{DIRECT, Seq, distance, is_answer, is_call, next_seq, tag_seq};
use sojourn_shm::{
    Access, AtomicU32, AtomicU64, Line, Mapping, NewSegment, Segment, SegmentError, Span,
};

/// Bytes of a body that travel in the message's own cache lines.
pub const INLINE_MAX: usize = INLINE_WORDS * 8;
/// Words of a line that carry an inline body: all but tag and meta word.
pub(crate) const INLINE_WORDS: usize = 14;
/// The largest number of outstanding calls of a connection.
pub(crate) const INFLIGHT_MAX: u32 = 64;
/// The reply line that carries requests as well: see [`Seq::is_direct`].
pub(crate) const CALL_LINE: u8 = 0;

const CONSUMED: usize = 128;
const REASON: usize = 192;
const SERVER_BELL: usize = 256;
const CLIENT_BELL: usize = 384;
const WANT: usize = 388;
const TO_SERVER: usize = 512;
const TO_CLIENT: usize = 640;
const LINES: usize = 1024;
const LINE: usize = 128;
pub(crate) const PAGE: usize = 4096;

/// The two numbers that determine a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Request slots, and reply slots: a power of two.
    pub(crate) slots: u32,
    /// Bytes of one message area, a multiple of the page size.
    pub(crate) area: usize,
}

impl Layout {
    /// Returns the layout for `inflight` calls and messages of `payload` bytes in one piece.
    pub(crate) fn new(inflight: u32, payload: u64) -> Self {
        let slots = inflight.clamp(1, INFLIGHT_MAX).next_power_of_two();
        let payload = usize::try_from(payload).unwrap_or(usize::MAX).clamp(PAGE, 1 << 30);
        Self { slots, area: (payload + TABLE_LEN).next_multiple_of(PAGE) }
    }

    /// Returns true if [`Layout::new`] can return a peer's numbers.
    pub(crate) fn is_sound(self) -> bool {
        self.slots.is_power_of_two()
            && self.slots <= INFLIGHT_MAX
            && self.area.is_multiple_of(PAGE)
            && (PAGE..=(1 << 30) + PAGE).contains(&self.area)
    }

    /// Returns the number of reply lines: the call line and one for each slot.
    pub(crate) fn lines(self) -> u32 {
        self.slots + 1
    }

    fn areas(self) -> usize {
        let lines = self.slots + self.lines();
        (LINES + lines as usize * LINE).next_multiple_of(PAGE)
    }

    /// Returns the size of the region in bytes.
    pub(crate) fn len(self) -> usize {
        self.areas() + 2 * self.lines() as usize * self.area
    }
}

/// A region made for a new client.
#[derive(Debug)]
pub(crate) struct NewRegion {
    /// The region's memory, to be sent to the client.
    pub(crate) segment: Segment,
    pub(crate) region: Region,
}

/// A mapped region. Every accessor is in bounds by construction.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Mapping,
    base: NonNull<u8>,
    pub(crate) layout: Layout,
}

// SAFETY: `base` points into `mapping`, which is Send and Sync; all access is atomic or racy
// copies.
unsafe impl Send for Region {}
// SAFETY: all access by a shared reference is atomic or by racy copies.
unsafe impl Sync for Region {}

impl Region {
    /// Creates a region for a new client.
    pub(crate) fn create(layout: Layout) -> Result<NewRegion, SegmentError> {
        let NewSegment { segment, mapping } =
            Segment::create("sojourn-ipc", layout.len(), Access::ReadWrite)?;
        Ok(NewRegion { segment, region: Self::over(mapping, layout)? })
    }

    /// Maps the region that a server sent.
    pub(crate) fn open(segment: &Segment, layout: Layout) -> Result<Self, SegmentError> {
        Self::over(segment.map(Access::ReadWrite)?, layout)
    }

    fn over(mapping: Mapping, layout: Layout) -> Result<Self, SegmentError> {
        let size =
            SegmentError::Size { found: mapping.len() as u64, expected: layout.len() as u64 };
        let base = mapping.span(0, layout.len()).and_then(|all| NonNull::new(all.as_ptr()));
        let base = base.ok_or(size)?;
        Ok(Self { mapping, base, layout })
    }

    #[inline(always)]
    fn at<T>(&self, offset: usize) -> &T {
        debug_assert!(offset + size_of::<T>() <= self.mapping.len());
        // SAFETY: private; every caller passes an offset below `layout.len()`, which `over` checked
        // against the mapping, aligned for T, and T is made of atomics.
        unsafe { self.base.add(offset).cast::<T>().as_ref() }
    }

    /// Returns the line of request `seq`: the call line for numbers with [`DIRECT`], otherwise its
    /// slot's.
    #[inline(always)]
    pub(crate) fn request(&self, seq: Seq) -> &Line {
        if seq.is_direct() { self.reply(CALL_LINE) } else { self.slot(seq) }
    }

    /// Returns the line of the slot that request `seq` uses.
    #[inline(always)]
    pub(crate) fn slot(&self, seq: Seq) -> &Line {
        self.at(LINES + self.slot_number(seq) * LINE)
    }

    /// Returns reply line `line`, which must be below `layout.lines()`; other numbers give the call
    /// line.
    #[inline(always)]
    pub(crate) fn reply(&self, line: u8) -> &Line {
        self.at(LINES + (self.layout.slots as usize + self.line_number(line)) * LINE)
    }

    #[inline(always)]
    fn slot_number(&self, seq: Seq) -> usize {
        (seq.0 & (self.layout.slots - 1)) as usize
    }

    #[inline(always)]
    fn line_number(&self, line: u8) -> usize {
        if u32::from(line) < self.layout.lines() { line as usize } else { 0 }
    }

    /// Returns the message area of request `seq`.
    pub(crate) fn request_area(&self, seq: Seq) -> Span<'_> {
        let last = self.layout.slots as usize;
        self.area(if seq.is_direct() { last } else { self.slot_number(seq) })
    }

    /// Returns the message area of reply line `line`.
    pub(crate) fn reply_area(&self, line: u8) -> Span<'_> {
        self.area(self.layout.lines() as usize + self.line_number(line))
    }

    /// Writes bytes anywhere, for tests and fuzzing.
    #[cfg(any(debug_assertions, fuzzing))]
    pub(crate) fn poke(&self, at: usize, bytes: &[u8]) {
        if let Some(span) = self.mapping.span(at, bytes.len()) {
            span.copy_from(bytes);
        }
    }

    fn area(&self, number: usize) -> Span<'_> {
        let offset = self.layout.areas() + number * self.layout.area;
        // The span exists by construction; an empty one would only shorten copies.
        self.mapping
            .span(offset, self.layout.area)
            .unwrap_or_else(|| unreachable_span(&self.mapping))
    }

    /// Returns the count of request slots that the server has taken (wrapping).
    #[inline(always)]
    pub(crate) fn consumed(&self) -> &AtomicU32 {
        self.at(CONSUMED)
    }

    /// Returns the reason why the server disconnected the client; 0 while it has not.
    pub(crate) fn reason(&self) -> &AtomicU32 {
        self.at(REASON)
    }

    /// Returns the bell on which the server sleeps.
    #[inline(always)]
    pub(crate) fn server_bell(&self) -> &AtomicU32 {
        self.at(SERVER_BELL)
    }

    /// Returns the bell on which the client sleeps.
    #[inline(always)]
    pub(crate) fn client_bell(&self) -> &AtomicU32 {
        self.at(CLIENT_BELL)
    }

    /// Returns the value of `consumed` at which a client that waits for room wants to be woken.
    pub(crate) fn want(&self) -> &AtomicU32 {
        self.at(WANT)
    }

    /// Returns the notification bits from client to server.
    #[inline(always)]
    pub(crate) fn to_server(&self) -> &AtomicU64 {
        self.at(TO_SERVER)
    }

    /// Returns the notification bits from server to client.
    #[inline(always)]
    pub(crate) fn to_client(&self) -> &AtomicU64 {
        self.at(TO_CLIENT)
    }
}

#[cold]
fn unreachable_span(mapping: &Mapping) -> Span<'_> {
    match mapping.span(0, 0) {
        Some(empty) => empty,
        None => unreachable!("the empty span at 0 lies within every mapping"),
    }
}

/// The kind of message in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Request that wants an answer.
    Call = 1,
    /// Request that wants none.
    Send = 2,
    /// More bytes of the request before.
    Chunk = 3,
    /// Client: asks for the next part of a long answer.
    More = 4,
    /// The client abandons a request whose pieces are not all sent.
    Abandon = 5,
    /// Answer (the first or only part, or a later one).
    Result = 6,
    /// Answer: a fault code.
    Fault = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Call,
            2 => Self::Send,
            3 => Self::Chunk,
            4 => Self::More,
            5 => Self::Abandon,
            6 => Self::Result,
            7 => Self::Fault,
            _ => return None,
        })
    }
}

const _: () = assert!(Kind::Call as u8 == sojourn_shm::ring::KIND_CALL);
const _: () = assert!(Kind::Result as u8 == sojourn_shm::ring::KIND_ANSWER);

/// The payload is in the area, not in the line.
pub(crate) const LONG: u8 = 1;
/// The payload is the sender's own memory: both ends share one address space.
pub(crate) const BY_REFERENCE: u8 = 2;

/// The position of the sender's processor in a meta word.
pub(crate) const CPU_SHIFT: u32 = 32;

/// Header of a line: tag word and meta word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) seq: Seq,
    pub(crate) op: u16,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// Bytes of an inline body.
    pub(crate) len: u8,
    /// Reply line for the answer.
    pub(crate) line: u8,
    pub(crate) fds: u8,
    pub(crate) items: u8,
    /// Processor on which the sender ran, plus one; 0 if it is unknown.
    pub(crate) cpu: u16,
    pub(crate) grants: u8,
    /// On the call line: low byte of the number of the last request published in a slot before it.
    pub(crate) after: u8,
}

impl Header {
    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        u64::from(self.seq.0)
            | u64::from(self.op) << 32
            | (self.kind as u64) << 48
            | u64::from(self.flags) << 56
    }

    #[inline(always)]
    pub(crate) fn meta(&self) -> u64 {
        u64::from(self.len)
            | u64::from(self.line) << 8
            | u64::from(self.fds) << 16
            | u64::from(self.items) << 24
            | u64::from(self.cpu) << CPU_SHIFT
            | u64::from(self.grants) << 48
            | u64::from(self.after) << 56
    }

    /// Unpacks a header and makes the checks that do not need the connection's state; `None` if a
    /// count or the kind is out of range.
    #[inline(always)]
    pub(crate) fn unpack(tag: u64, meta: u64) -> Option<Self> {
        let header = Self {
            seq: tag_seq(tag),
            op: (tag >> 32) as u16,
            kind: Kind::from_byte((tag >> 48) as u8)?,
            flags: (tag >> 56) as u8,
            len: meta as u8,
            line: (meta >> 8) as u8,
            fds: (meta >> 16) as u8,
            items: (meta >> 24) as u8,
            cpu: (meta >> 32) as u16,
            grants: (meta >> 48) as u8,
            after: (meta >> 56) as u8,
        };
        let sound = header.len as usize <= INLINE_MAX
            && header.fds as usize <= FDS_MAX
            && header.items as usize <= ITEMS_MAX
            && header.grants as usize <= GRANTS_MAX
            && header.flags & !(LONG | BY_REFERENCE) == 0
            && (header.flags != 0 || header.items | header.grants == 0);
        sound.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_unpacks_packs_to_the_same_words(tag: u64, meta: u64) {
            if let Some(header) = Header::unpack(tag, meta) {
                prop_assert_eq!((header.tag(), header.meta()), (tag, meta));
            }
        }

        #[test]
        fn every_layout_is_sound_and_its_parts_do_not_overlap(inflight in 0u32..200, payload in 0u64..1 << 22) {
            let layout = Layout::new(inflight, payload);
            prop_assert!(layout.is_sound());
            prop_assert!(layout.area as u64 >= payload + TABLE_LEN as u64);
            prop_assert!(layout.areas() >= LINES + (2 * layout.slots as usize + 1) * LINE);
        }
    }

    #[test]
    fn every_accessor_of_the_largest_and_smallest_region_is_within_it() {
        for layout in [Layout::new(1, 1), Layout::new(64, 100_000)] {
            let region = Region::create(layout).unwrap().region;
            for seq in [0, 1, layout.slots - 1, u32::MAX] {
                region.request(Seq(seq)).publish(1, 2, &[2; 20]);
                region.reply(seq as u8).publish(1, 2, &[2; 20]);
                assert_eq!(region.request_area(Seq(seq)).len(), layout.area);
                assert_eq!(region.reply_area(seq as u8).len(), layout.area);
            }
        }
    }
}
