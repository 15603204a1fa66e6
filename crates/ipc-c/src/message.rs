//! The parts of received and begun messages that C sees.
//!
//! An `sj_in` names its handle and has its message's number, so that a stale one is refused. Not
//! here: the functions on received messages (`received`).

use crate::handle::MessageNumber;
use crate::types::{GrantRef, In, Out};
use rustix::fd::AsRawFd;
use sojourn_ipc::raw::{Counts, Incoming};

/// The state of the message that a handle received last.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) number: MessageNumber,
    pub(crate) copies: Vec<ItemCopy>,
}

/// The private copy of an item.
#[derive(Debug)]
pub(crate) struct ItemCopy {
    /// The item's number in its message.
    pub(crate) index: usize,
    /// The item's bytes, and up to seven more.
    pub(crate) words: Vec<u64>,
}

impl Received {
    /// Notes that another message is present, and returns its number.
    #[inline]
    pub(crate) fn next(&mut self) -> MessageNumber {
        self.number = self.number.next();
        if !self.copies.is_empty() {
            self.copies.clear();
        }
        self.number
    }
}

/// The lowest bit of a word, set if the word names a server's handle.
pub(crate) const SERVER: usize = 1;

/// Writes the fields of a message that C reads, and no others.
///
/// # Safety
/// `message` can be written.
#[inline]
pub(crate) unsafe fn fill(
    message: *mut In,
    incoming: &Incoming,
    handle: u64,
    number: MessageNumber,
) {
    let Counts { items, fds, grants } = incoming.counts();
    let body = incoming.body();
    // SAFETY: the caller's contract.
    unsafe {
        (*message).body = body.as_ptr();
        (*message).body_len = body.len();
        (*message).op = incoming.op();
        (*message).n_items = items;
        (*message).n_fds = fds;
        (*message).n_grants = grants;
        (*message).fault = 0;
        (*message).private[0] = handle;
        (*message).private[1] = number.0;
    }
    if (items | fds | grants) != 0 {
        // SAFETY: the caller's contract.
        unsafe { fill_parts(message, incoming) };
    }
}

#[inline(never)]
unsafe fn fill_parts(message: *mut In, incoming: &Incoming) {
    let Counts { items, fds, .. } = incoming.counts();
    for at in 0..usize::from(items) {
        // SAFETY: a header was checked to have no more items than the array; the caller's contract.
        unsafe { (*message).item_lens[at] = incoming.item(at).map_or(0, |item| item.len()) };
    }
    for at in 0..usize::from(fds) {
        let fd = incoming.fd(at).map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: a header was checked to have no more descriptors than the array.
        unsafe { (*message).fds[at] = fd };
    }
    for (at, grant) in incoming.grant_refs().iter().enumerate() {
        let grant =
            GrantRef { id: grant.id.0, flags: grant.flags, offset: grant.offset, len: grant.len };
        // SAFETY: a header was checked to have no more grants than the array.
        unsafe { (*message).grants[at] = grant };
    }
}

/// Writes an empty message.
///
/// # Safety
/// `message` can be written.
#[cold]
pub(crate) unsafe fn clear(message: *mut In, fault: u32) {
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

/// Writes the fields of a begun message that C reads, and no others.
///
/// # Safety
/// `out` can be written.
#[inline]
pub(crate) unsafe fn begun(
    out: *mut Out,
    body: *mut [u8],
    op: u16,
    is_reply: bool,
    number: MessageNumber,
) {
    // SAFETY: the caller's contract.
    unsafe {
        (*out).body = body.cast();
        (*out).body_len = body.len();
        (*out).op = op;
        (*out).n_items = 0;
        (*out).n_fds = 0;
        (*out).n_grants = 0;
        (*out).is_reply = u8::from(is_reply);
        (*out).private[0] = number.0;
    }
}
