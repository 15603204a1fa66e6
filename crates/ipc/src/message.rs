//! A received message in private memory, for both sides and all forms of messages.
//!
//! The line's words, the table and the body are copies. Items of a message that fits its area may
//! stay in the region until they are copied once to their target. Not here: the source of the bytes
//! (`lane` for the server, `connection` for the client).

use crate::layout::{Header, INLINE_WORDS, Kind, Seq};
use crate::rt::gather::{Extent, Parts, TABLE_LEN};
use crate::rt::{self, FdList, GRANTS_MAX, Grant, ITEMS_MAX, Item, SharedBytes};
use rustix::fd::{BorrowedFd, OwnedFd};
use sojourn_shm::{Line, Span};

/// The place of the present message's body.
#[derive(Clone, Copy, Debug)]
enum BodyStorage {
    /// In `words`.
    Inline,
    /// In `stream`.
    Stream,
    /// In memory of this address space that the caller does not change during the call.
    Local(*const u8, usize),
}

/// The lengths that come with a long message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamSizes {
    /// Bytes of the stream: table, body and items (see `rt::gather`).
    pub(crate) total: u64,
    pub(crate) body_len: u64,
}

/// The numbers of a message's parts beside the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// String items.
    pub items: u8,
    /// Descriptors.
    pub fds: u8,
    /// Grants.
    pub grants: u8,
}

/// The present message.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) header: Header,
    words: [u64; INLINE_WORDS],
    stream: Vec<u64>,
    /// A buffer for a message that comes in pieces.
    pub(crate) spare: Vec<u64>,
    place: BodyStorage,
    parts: Parts,
    /// The beginning of the message in its area, while its items lie there.
    start: usize,
    items: Vec<Item<'static>>,
    grants: Vec<Item<'static>>,
    pub(crate) fds: FdList,
}

// SAFETY: the raw pointers are those of `SharedBytes` (mapped memory, copied by racy copies only)
// and of `BodyStorage::Local` (kept still by a caller that waits); any one thread may follow them.
unsafe impl Send for Incoming {}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self {
            header: Header {
                seq: Seq(0),
                op: 0,
                kind: Kind::Send,
                flags: 0,
                len: 0,
                line: 0,
                fds: 0,
                items: 0,
                cpu: 0,
                grants: 0,
                after: 0,
            },
            words: [0; INLINE_WORDS],
            stream: Vec::new(),
            spare: Vec::new(),
            place: BodyStorage::Inline,
            parts: Parts::EMPTY,
            start: 0,
            items: Vec::with_capacity(ITEMS_MAX),
            grants: Vec::with_capacity(GRANTS_MAX),
            fds: FdList::new(),
        }
    }

    /// Loads an inline message: copies as many words as its length says.
    #[inline(always)]
    pub(crate) fn load_inline(&mut self, header: Header, line: &Line) {
        self.start(header);
        self.place = BodyStorage::Inline;
        // The words in the tag's cache line cost nothing more; the other cache line is loaded only
        // if it is used.
        if header.len as usize <= 48 {
            let mut words = [0; 7];
            line.copy_out(&mut words);
            self.words[..6].copy_from_slice(&words[1..]);
        } else {
            let mut words = [0; INLINE_WORDS + 1];
            line.copy_out(&mut words);
            self.words.copy_from_slice(&words[1..]);
        }
    }

    #[inline(always)]
    fn start(&mut self, header: Header) {
        self.header = header;
        self.items.clear();
        self.grants.clear();
        self.fds.clear();
    }

    /// Loads a message that lies in `area` in one piece. With `keep_items` the
    /// items stay there until they are copied to their targets; otherwise they are copied now.
    /// Returns `None` if the lengths are inconsistent.
    pub(crate) fn load_area(
        &mut self,
        header: Header,
        area: Span<'_>,
        sizes: StreamSizes,
        keep_items: bool,
    ) -> Option<()> {
        let StreamSizes { total, body_len } = sizes;
        self.start(header);
        let whole = area.part(0, usize::try_from(total).ok()?)?;
        if !keep_items || header.items == 0 {
            self.copy_in(whole);
            return self.finish(sizes);
        }
        let body_end = usize::try_from(body_len).ok()?.checked_add(TABLE_LEN)?;
        self.copy_in(whole.part(0, body_end.min(whole.len()))?);
        self.read_parts(sizes)?;
        for Extent { at, len } in self.parts.items.iter().take(header.items as usize) {
            let item = whole.part(*at, *len)?;
            // SAFETY: within the region, which outlives the loan of this message (see `decoder`).
            let bytes = unsafe { SharedBytes::new(item.as_ptr(), item.len()) };
            self.items.push(Item::Shared(bytes));
        }
        Some(())
    }

    /// Loads a message like [`Self::load_area`], with its items left in place, in the bytes `place`
    /// of `area`.
    pub(crate) fn load_in_place(
        &mut self,
        header: Header,
        area: Span<'_>,
        place: Extent,
        sizes: StreamSizes,
    ) -> Option<()> {
        self.start = place.at;
        self.load_area(header, area.part(place.at, place.len)?, sizes, true)
    }

    fn copy_in(&mut self, source: Span<'_>) {
        let words = source.len().div_ceil(8);
        // The buffer only grows, because clearing it for each message would cost as much as the
        // copy.
        if self.stream.len() < words {
            self.stream.resize(words, 0);
        }
        source.copy_to(bytes_of_mut(&mut self.stream));
    }

    /// Takes a message assembled from several pieces; `stream` gets the old buffer.
    pub(crate) fn load_stream(
        &mut self,
        header: Header,
        stream: &mut Vec<u64>,
        sizes: StreamSizes,
    ) -> Option<()> {
        self.start(header);
        core::mem::swap(&mut self.stream, stream);
        self.finish(sizes)
    }

    /// Loads a message by reference, within one address space.
    ///
    /// # Safety
    /// Body and items stay as they are until this message is replaced by the next.
    pub(crate) unsafe fn load_local(&mut self, header: Header, body: &[u8], items: &[&[u8]]) {
        self.start(header);
        self.place = BodyStorage::Local(body.as_ptr(), body.len());
        for item in items.iter().take(ITEMS_MAX) {
            // SAFETY: the caller's contract makes the loan as long as this message is looked at.
            let item: &'static [u8] = unsafe { core::mem::transmute::<&[u8], &'static [u8]>(item) };
            self.items.push(Item::Private(item));
        }
    }

    fn finish(&mut self, sizes: StreamSizes) -> Option<()> {
        self.read_parts(sizes)?;
        for Extent { at, len } in self.parts.items.iter().take(self.header.items as usize) {
            let item = bytes_of(&self.stream).get(*at..)?.get(..*len)?;
            // SAFETY: the stream is not touched until the next message is loaded, which empties
            // `items` first; loans to users end with the borrow of this message (see `decoder`).
            let item: &'static [u8] = unsafe { core::mem::transmute::<&[u8], &'static [u8]>(item) };
            self.items.push(Item::Private(item));
        }
        Some(())
    }

    fn read_parts(&mut self, sizes: StreamSizes) -> Option<()> {
        let StreamSizes { total, body_len } = sizes;
        let table = bytes_of(&self.stream).first_chunk::<TABLE_LEN>()?;
        self.parts = Parts::read(table, total, body_len, self.header.items, self.header.grants)?;
        self.place = BodyStorage::Stream;
        Some(())
    }

    /// Returns the message's references to grants, which are not resolved yet.
    pub fn grant_refs(&self) -> &[Grant] {
        &self.parts.grants[..self.header.grants as usize]
    }

    /// Adds a resolved grant.
    ///
    /// # Safety
    /// The span must stay mapped until the next message is loaded.
    pub(crate) unsafe fn push_grant(&mut self, span: Span<'_>) {
        // SAFETY: the caller's contract.
        let bytes = unsafe { SharedBytes::new(span.as_ptr(), span.len()) };
        self.grants.push(Item::Shared(bytes));
    }

    /// The body: private memory, aligned to 8.
    #[inline]
    pub fn body(&self) -> &[u8] {
        match self.place {
            BodyStorage::Inline => {
                bytes_of(&self.words).get(..self.header.len as usize).unwrap_or(&[])
            }
            BodyStorage::Stream => {
                let Extent { at, len } = self.parts.body;
                bytes_of(&self.stream).get(at..at + len).unwrap_or(&[])
            }
            // SAFETY: `load_local`'s contract.
            BodyStorage::Local(start, len) => unsafe { core::slice::from_raw_parts(start, len) },
        }
    }

    /// The operation number.
    #[inline]
    pub fn op(&self) -> u16 {
        self.header.op
    }

    /// The numbers of items, of descriptors and of grants.
    #[inline]
    pub fn counts(&self) -> Counts {
        let Header { items, fds, grants, .. } = self.header;
        Counts { items, fds, grants }
    }

    /// Descriptor `index`; `None` if it was taken.
    pub fn fd(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.fds.peek(index)
    }

    /// Takes descriptor `index`; `None` if it was taken before.
    pub fn take_fd(&mut self, index: usize) -> Option<OwnedFd> {
        self.fds.take(index)
    }

    /// The place in its area of an item that still lies there.
    pub(crate) fn item_place(&self, index: usize) -> Option<Extent> {
        let Item::Shared(_) = self.items.get(index)? else { return None };
        let item = self.parts.items.get(index)?;
        Some(Extent { at: self.start.checked_add(item.at)?, len: item.len })
    }

    /// Returns true if items still lie in the area.
    #[inline]
    pub(crate) fn has_items_in_place(&self) -> bool {
        matches!(self.items.first(), Some(Item::Shared(_)))
    }

    /// The area may be used again.
    pub(crate) fn forget_items(&mut self) {
        self.items.clear();
    }

    /// String item `index` of the message.
    pub fn item(&self, index: usize) -> Option<Item<'_>> {
        self.items.get(index).copied()
    }

    /// Grant `index` of the message, resolved.
    pub fn grant(&self, index: usize) -> Option<Item<'_>> {
        self.grants.get(index).copied()
    }

    /// Everything, for the stubs' decoder.
    #[inline]
    pub(crate) fn decoder(&mut self) -> rt::Decoder<'_> {
        let body = self.body();
        // SAFETY: `fds` is disjoint from what `body` borrows (words, stream or memory of others);
        // the borrow checker cannot see that through the method.
        let body = unsafe { core::slice::from_raw_parts(body.as_ptr(), body.len()) };
        rt::Decoder::new(body, &self.items, &self.grants, &mut self.fds)
    }
}

/// The bytes of words.
pub(crate) fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: any word is eight initialised bytes.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

/// The bytes of words, to be written.
pub fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any eight bytes are a word.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}
