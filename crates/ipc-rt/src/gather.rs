//! A long message as one stream of bytes, whose parts are copied to their targets.
//!
//! The stream is the table (lengths of the items, then the grants), the body, then the items, each
//! starting at a multiple of 8. The stream exists only as this description: bytes are copied from
//! the sender's memory straight to the area, in one piece or in several. The receiver splits it
//! with [`Parts`]. Not here: the areas that the stream travels in, which are the transport's.

use crate::item::{GRANTS_MAX, Grant, GrantId, ITEMS_MAX};
use sojourn_shm::Span;

/// Bytes at the start of a long message: the lengths of its items, then its grants.
pub const TABLE_LEN: usize = ITEMS_MAX * 8 + GRANTS_MAX * 24;

/// Table, body and items of a message to send.
#[derive(Debug)]
pub struct Gather<'d> {
    table: [u8; TABLE_LEN],
    /// Bytes of the table up to its last entry.
    table_used: usize,
    /// The body; `None` if it lies in the first area already.
    body: Option<&'d [u8]>,
    body_len: usize,
    items: &'d [&'d [u8]],
    total: u64,
    /// True if the receiver is on another processor.
    pub is_far: bool,
}

/// A part of a stream, from its first byte to the one after its last.
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    to: u64,
}

fn padded(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(8)
}

impl<'d> Gather<'d> {
    /// Creates the description of a message; `None` if its length overflows.
    #[inline]
    pub fn new(
        body: Option<&'d [u8]>,
        body_len: usize,
        items: &'d [&'d [u8]],
        grants: &[Grant],
    ) -> Option<Self> {
        let mut table = [0; TABLE_LEN];
        let mut total = (TABLE_LEN as u64).checked_add(padded(body_len as u64)?)?;
        for (slot, item) in table.chunks_exact_mut(8).zip(items) {
            slot.copy_from_slice(&(item.len() as u64).to_ne_bytes());
            total = total.checked_add(padded(item.len() as u64)?)?;
        }
        for (slot, grant) in table[ITEMS_MAX * 8..].chunks_exact_mut(24).zip(grants) {
            slot[..4].copy_from_slice(&grant.id.0.to_ne_bytes());
            slot[4..8].copy_from_slice(&grant.flags.to_ne_bytes());
            slot[8..16].copy_from_slice(&grant.offset.to_ne_bytes());
            slot[16..].copy_from_slice(&grant.len.to_ne_bytes());
        }
        let table_used = match grants.len() {
            0 => items.len() * 8,
            count => ITEMS_MAX * 8 + count * 24,
        };
        Some(Self { table, table_used, body, body_len, items, total, is_far: false })
    }

    /// Returns the length of the stream in bytes.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns true if the body must still be copied, false if it lies in an area already.
    #[inline]
    pub fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// Returns the table.
    #[inline]
    pub fn table(&self) -> &[u8; TABLE_LEN] {
        &self.table
    }

    /// Copies the whole stream to private memory, which must have `total` bytes. A body that lies
    /// in an area is not copied.
    #[inline]
    pub fn copy_private(&self, target: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8], len: usize| {
            if let Some(target) = target.get_mut(at..at + bytes.len()) {
                sojourn_shm::copy::slice(bytes, target);
            }
            at += len.next_multiple_of(8);
        };
        put(&self.table, TABLE_LEN);
        put(self.body.unwrap_or(&[]), self.body_len);
        for item in self.items {
            put(item, item.len());
        }
    }

    /// Copies the stream's bytes from `from` on to `area`, as many as fit, and returns their
    /// number.
    #[inline]
    pub fn copy(&self, from: u64, area: Span<'_>) -> usize {
        let to = self.total.min(from.saturating_add(area.len() as u64));
        // Only the used part of the table is copied, because the receiver does not read the cache
        // lines behind it.
        let (mut start, window) = (0, Window { from, to });
        self.piece(&mut start, window, self.table.get(..self.table_used), TABLE_LEN, area);
        self.piece(&mut start, window, self.body, self.body_len, area);
        for item in self.items {
            self.piece(&mut start, window, Some(item), item.len(), area);
        }
        usize::try_from(to - from).unwrap_or(0)
    }

    /// Copies the part of a piece that lies in `window`; the piece begins at `*start`, which is
    /// advanced.
    fn piece(
        &self,
        start: &mut u64,
        window: Window,
        bytes: Option<&[u8]>,
        len: usize,
        area: Span<'_>,
    ) {
        let (first, end) = (window.from.max(*start), window.to.min(*start + len as u64));
        if let Some(bytes) = bytes
            && first < end
        {
            let skip = (first - *start) as usize;
            let count = ((end - first) as usize).min(bytes.len().saturating_sub(skip));
            if let Some(target) = area.part((first - window.from) as usize, count) {
                let bytes = bytes.get(skip..skip + count).unwrap_or(&[]);
                if self.is_far {
                    target.copy_from_for_far(bytes)
                } else {
                    target.copy_from(bytes)
                };
            }
        }
        *start += (len as u64).next_multiple_of(8);
    }
}

/// A run of bytes in a stream or an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The position of the first byte.
    pub at: usize,
    /// The number of bytes.
    pub len: usize,
}

impl Extent {
    /// No bytes.
    pub const EMPTY: Self = Self { at: 0, len: 0 };
}

/// The positions of body, items and grants in a received stream, all checked when they are read.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The body.
    pub body: Extent,
    /// The items.
    pub items: [Extent; ITEMS_MAX],
    /// The grants.
    pub grants: [Grant; GRANTS_MAX],
}

impl Parts {
    /// A stream without bytes.
    pub const EMPTY: Self = Self {
        body: Extent::EMPTY,
        items: [Extent::EMPTY; ITEMS_MAX],
        grants: [Grant { id: GrantId(0), flags: 0, offset: 0, len: 0 }; GRANTS_MAX],
    };

    /// Reads the private copy of a table; `None` unless body and items fill `total` bytes exactly.
    #[inline]
    pub fn read(
        table: &[u8; TABLE_LEN],
        total: u64,
        body_len: u64,
        items: u8,
        grants: u8,
    ) -> Option<Self> {
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| table[at + i]));
        let mut parts = Self::EMPTY;
        let mut at = TABLE_LEN as u64;
        let mut place = |len: u64| {
            let extent = Extent { at: usize::try_from(at).ok()?, len: usize::try_from(len).ok()? };
            at = at.checked_add(padded(len)?)?;
            (at <= total).then_some(extent)
        };
        parts.body = place(body_len)?;
        for (number, item) in parts.items.iter_mut().enumerate().take(items as usize) {
            *item = place(word(number * 8))?;
        }
        if at != total {
            return None;
        }
        for (number, grant) in parts.grants.iter_mut().enumerate().take(grants as usize) {
            let start = ITEMS_MAX * 8 + number * 24;
            let head = word(start);
            *grant = Grant {
                id: GrantId(head as u32),
                flags: (head >> 32) as u32,
                offset: word(start + 8),
                len: word(start + 16),
            };
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sojourn_shm::{Access, NewSegment, Segment};

    fn stream(gather: &Gather<'_>, step: usize) -> Vec<u8> {
        let NewSegment { mapping, .. } =
            Segment::create("sojourn-test", 8192, Access::ReadWrite).unwrap();
        let mut bytes = vec![];
        while (bytes.len() as u64) < gather.total() {
            let area = mapping.span(0, step).unwrap();
            let mut part = vec![0; gather.copy(bytes.len() as u64, area)];
            area.copy_to(&mut part);
            bytes.extend(part);
        }
        bytes
    }

    proptest! {
        #[test]
        fn a_stream_comes_apart_as_it_was_put_together(
            body: Vec<u8>,
            items in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..ITEMS_MAX),
            grants in proptest::collection::vec(any::<(u32, u32, u64, u64)>(), 0..GRANTS_MAX),
            step in 512usize..4096,
        ) {
            let slices: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            let grants: Vec<Grant> =
                grants.into_iter().map(|(id, flags, offset, len)| Grant { id: GrantId(id), flags, offset, len }).collect();
            let gather = Gather::new(Some(&body), body.len(), &slices, &grants).unwrap();
            let bytes = stream(&gather, step);
            let table = bytes[..TABLE_LEN].try_into().unwrap();
            let parts = Parts::read(
                table, gather.total(), body.len() as u64, items.len() as u8, grants.len() as u8,
            ).unwrap();
            let cut = |Extent { at, len }| &bytes[at..at + len];
            prop_assert_eq!(cut(parts.body), &body[..]);
            for (place, item) in parts.items.iter().zip(&items) {
                prop_assert_eq!(cut(*place), &item[..]);
            }
            prop_assert_eq!(&parts.grants[..grants.len()], &grants[..]);
        }

        #[test]
        fn no_table_leads_outside_the_stream(words: Vec<u64>, total: u64, body: u64, items in 0u8..17, grants in 0u8..9) {
            let mut table = [0; TABLE_LEN];
            for (slot, word) in table.chunks_exact_mut(8).zip(&words) {
                slot.copy_from_slice(&word.to_ne_bytes());
            }
            if let Some(parts) = Parts::read(&table, total, body, items, grants) {
                for Extent { at, len } in parts.items.iter().take(items as usize).chain([&parts.body]) {
                    prop_assert!((*at as u64).checked_add(*len as u64).is_some_and(|end| end <= total));
                }
            }
        }
    }
}
