//! The user's view of a request.
//!
//! A request borrows the thread's handle, so it ends before the thread waits again. Not here:
//! reading requests out of the region (`lane`).

use super::Server;
use crate::grant::{Granted, KEEP};
use crate::lane::Lane;
use crate::layout::{BY_REFERENCE, Kind};
use crate::link::{CallNumbers, ClientLink};
use crate::reply::ReplyToken;
use crate::rt::{Badge, ClientId, Credentials};
use crate::rt::{Decoder, Item};
use sojourn_shm::Span;
use std::sync::Arc;

/// A request in private memory, valid until it is given up or the thread waits again.
#[derive(Debug)]
pub struct Request<'s> {
    pub(super) server: &'s mut Server,
    pub(super) index: u32,
}

impl Request<'_> {
    fn lane(&mut self) -> &mut Lane {
        match self.server.lanes.get_mut(self.index as usize) {
            Some(Some(lane)) => lane,
            _ => unreachable!("a lane lives while its request is borrowed from the server"),
        }
    }

    fn link(&self) -> &ClientLink {
        match self.server.lanes.get(self.index as usize) {
            Some(Some(lane)) => &lane.link,
            _ => unreachable!("a lane lives while its request is borrowed from the server"),
        }
    }

    /// Returns the operation number.
    #[inline]
    pub fn op(&self) -> u16 {
        self.server.incoming.header.op
    }

    /// Returns true if the request wants an answer.
    #[inline]
    pub fn wants_answer(&self) -> bool {
        self.server.incoming.header.kind == Kind::Call
    }

    /// Returns the client that made the request.
    pub fn client(&self) -> ClientId {
        self.link().id
    }

    /// Returns the badge that the server gave the client; 0 if none.
    pub fn badge(&self) -> Badge {
        self.link().badge()
    }

    /// Returns the client's credentials from the kernel.
    pub fn credentials(&self) -> Credentials {
        self.link().credentials
    }

    /// Returns the body: private memory, aligned to 8.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.server.incoming.body()
    }

    /// Returns the length of string item `index` in bytes.
    pub fn item_len(&self, index: usize) -> Option<usize> {
        self.server.incoming.item(index).map(|item| item.len())
    }

    /// Copies string item `index` to `target` and returns the number of bytes: the shorter length.
    pub fn item_into(&self, index: usize, target: &mut [u8]) -> Option<usize> {
        self.server.incoming.item(index).map(|item| item.copy_into(target))
    }

    /// Returns string item `index` in the region, with [`crate::ServerOptions::items_in_place`].
    /// Returns `None` for an item that has been copied, because its message came in pieces or from
    /// within this address space; [`Self::item`] returns such items.
    ///
    /// The client can change these bytes at any moment, and a hostile client will. Each load
    /// returns *some* value that was there and says nothing about the next load. So copy the bytes
    /// first if a decision depends on them, check the copy, and use only the copy. Bytes that are
    /// only passed on (hashed, written to a file) can be read in place, if any value is acceptable.
    /// [`Span::load`] loads a word.
    pub fn item_span(&self, index: usize) -> Option<Span<'_>> {
        let incoming = &self.server.incoming;
        let place = incoming.item_place(index)?;
        self.link().region.request_area(incoming.header.seq).part(place.at, place.len)
    }

    /// Returns string item `index`; `None` for an item that is still in the region (see
    /// [`Self::item_span`]).
    pub fn item(&self, index: usize) -> Option<&[u8]> {
        match self.server.incoming.item(index)? {
            Item::Private(bytes) => Some(bytes),
            Item::Shared(_) => None,
        }
    }

    /// Takes descriptor `index`; `None` if it was taken before.
    pub fn take_fd(&mut self, index: usize) -> Option<rustix::fd::OwnedFd> {
        self.server.incoming.fds.take(index)
    }

    /// Returns grant `index`: the client's own memory, which the client may change at any moment.
    /// Valid during this request.
    pub fn grant(&self, index: usize) -> Option<Span<'_>> {
        let reference = *self.server.incoming.grant_refs().get(index)?;
        self.server.kept.get(index)?.resolve(reference)
    }

    /// Returns grant `index` for longer than this request, if the client allows that.
    pub fn keep_grant(&self, index: usize) -> Option<KeptGrant> {
        self.server.keep_grant(index)
    }

    /// Returns a decoder of the whole request, for generated stubs.
    #[inline]
    pub fn decoder(&mut self) -> Decoder<'_> {
        self.server.incoming.decoder()
    }

    /// Leaves the call unclaimed and returns its numbers, by which [`ReplyToken::claim`] claims it
    /// later.
    ///
    /// A loan lasts until the next message or [`Server::return_loan`].
    #[inline]
    pub(crate) fn leave(self) -> CallNumbers {
        let header = self.server.incoming.header;
        self.server.unclaimed = None;
        if header.flags & BY_REFERENCE != 0 {
            self.server.loan = Some(self.index);
        }
        CallNumbers { line: header.line, seq: header.seq }
    }

    /// Exchanges the request for the right to answer it. The token of a request that wants no
    /// answer has no effect.
    #[inline]
    pub fn into_token(mut self) -> ReplyToken {
        if self.server.unclaimed.take().is_none() {
            return ReplyToken::nobody();
        }
        let header = self.server.incoming.header;
        if header.flags & BY_REFERENCE != 0 {
            self.link().return_loan();
        }
        ReplyToken::new(self.lane().lend(), header.line, header.seq)
    }
}

impl Server {
    /// Returns grant `index` of the present message for longer, if the client allows that.
    pub(crate) fn keep_grant(&self, index: usize) -> Option<KeptGrant> {
        let reference = *self.incoming.grant_refs().get(index)?;
        if reference.flags & KEEP == 0 {
            return None;
        }
        Some(KeptGrant { granted: Arc::clone(self.kept.get(index)?), reference })
    }
}

/// A grant that outlives its request.
#[derive(Debug)]
pub struct KeptGrant {
    pub(super) granted: Arc<Granted>,
    pub(super) reference: crate::rt::Grant,
}

impl KeptGrant {
    /// Returns the memory, which stays mapped even if the client unregisters it.
    pub fn span(&self) -> Option<Span<'_>> {
        self.granted.resolve(self.reference)
    }
}
