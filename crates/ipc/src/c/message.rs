//! What C must see of a message: one that was received, one that was begun.
//!
//! An `sj_in` says which handle's message it is and which of them, so that a stale one is refused.
//! Not here: what C asks of one that was received; see `received`.

use super::types::{GrantRef, In, Out};
use crate::message::Incoming;
use rustix::fd::AsRawFd;

/// What a handle remembers of the message it received last.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) number: u64,
    /// Private copies of items: index, memory.
    pub(super) copies: Vec<(usize, Vec<u64>)>,
}

impl Received {
    /// Another message is there; its number.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.number += 1;
        if !self.copies.is_empty() {
            self.copies.clear();
        }
        self.number
    }
}

/// Lowest bit of a word that names a server's handle.
pub(super) const SERVER: usize = 1;

/// Writes what C must see of a message, and no more.
///
/// # Safety
/// `message` can be written.
#[inline]
pub(super) unsafe fn fill(message: *mut In, incoming: &Incoming, handle: u64, number: u64) {
    let header = &incoming.header;
    let body = incoming.body();
    // SAFETY: the caller's contract.
    unsafe {
        (*message).body = body.as_ptr();
        (*message).body_len = body.len();
        (*message).op = header.op;
        (*message).n_items = header.items;
        (*message).n_fds = header.fds;
        (*message).n_grants = header.grants;
        (*message).fault = 0;
        (*message).private[0] = handle;
        (*message).private[1] = number;
    }
    if (header.items | header.fds | header.grants) != 0 {
        // SAFETY: the caller's contract.
        unsafe { fill_parts(message, incoming) };
    }
}

#[inline(never)]
unsafe fn fill_parts(message: *mut In, incoming: &Incoming) {
    let header = &incoming.header;
    for at in 0..usize::from(header.items) {
        // SAFETY: a header was checked to have no more items than the array; the caller's contract.
        unsafe { (*message).item_lens[at] = incoming.item(at).map_or(0, |item| item.len()) };
    }
    for at in 0..usize::from(header.fds) {
        let fd = incoming.fds.peek(at).map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: as above.
        unsafe { (*message).fds[at] = fd };
    }
    for (at, grant) in incoming.grant_refs().iter().enumerate() {
        let grant =
            GrantRef { id: grant.id, flags: grant.flags, offset: grant.offset, len: grant.len };
        // SAFETY: as above.
        unsafe { (*message).grants[at] = grant };
    }
}

/// No message: empty in every respect.
///
/// # Safety
/// `message` can be written.
#[cold]
pub(super) unsafe fn clear(message: *mut In, fault: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        (*message).body = core::ptr::null();
        (*message).body_len = 0;
        (*message).op = 0;
        (*message).n_items = 0;
        (*message).n_fds = 0;
        (*message).n_grants = 0;
        (*message).fault = fault;
        (*message).private[0] = 0;
        (*message).private[1] = 0;
    }
}

/// Writes what C must see of a message just begun, and no more.
///
/// # Safety
/// `out` can be written.
#[inline]
pub(super) unsafe fn begun(
    out: *mut Out,
    body: *mut u8,
    body_len: usize,
    op: u16,
    is_reply: bool,
    number: u64,
) {
    // SAFETY: the caller's contract.
    unsafe {
        (*out).body = body;
        (*out).body_len = body_len;
        (*out).op = op;
        (*out).n_items = 0;
        (*out).n_fds = 0;
        (*out).n_grants = 0;
        (*out).is_reply = u8::from(is_reply);
        (*out).private[0] = number;
    }
}
