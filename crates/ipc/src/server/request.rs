//! A request as the server's user sees it.
//!
//! It borrows the thread's handle, so it is gone before the thread waits again. Not here: reading
//! it out of the region; see `lane`.

use super::Server;
use crate::grant::{Granted, KEEP};
use crate::lane::Lane;
use crate::layout::{BY_REFERENCE, Kind};
use crate::link::ClientLink;
use crate::reply::ReplyToken;
use crate::rt::{ClientId, Credentials};
use crate::rt::{Decoder, Item};
use core::sync::atomic::Ordering;
use sojourn_shm::Span;
use std::sync::Arc;

/// A request: private memory, valid until it is given up or the thread waits again.
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

    /// Operation number.
    #[inline]
    pub fn op(&self) -> u16 {
        self.server.incoming.header.op
    }

    /// Whether an answer is wanted.
    #[inline]
    pub fn wants_answer(&self) -> bool {
        self.server.incoming.header.kind == Kind::Call
    }

    /// Whose request it is.
    pub fn client(&self) -> ClientId {
        self.link().id
    }

    /// The badge the server gave that client; 0 if none.
    pub fn badge(&self) -> u64 {
        self.link().badge.load(Ordering::Relaxed)
    }

    /// Who that client is, by the kernel's word.
    pub fn credentials(&self) -> Credentials {
        self.link().credentials
    }

    /// The body: private memory, aligned to 8.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.server.incoming.body()
    }

    /// Bytes of string item `index`.
    pub fn item_len(&self, index: usize) -> Option<usize> {
        self.server.incoming.item(index).map(|item| item.len())
    }

    /// Copies string item `index` to where it belongs; answers how many bytes: the shorter length.
    pub fn item_into(&self, index: usize, target: &mut [u8]) -> Option<usize> {
        self.server.incoming.item(index).map(|item| item.copy_into(target))
    }

    /// String item `index` where the client put it, with [`crate::ServerOptions::items_in_place`];
    /// `None` for one that has been copied, which [`Self::item`] shows: one of a message that came
    /// in pieces, or from within this address space.
    ///
    /// The client can change these bytes at any moment, and a hostile one will. Each load gives
    /// *some* value that was there; nothing follows from it for the next. So what is decided on
    /// must be copied first, the copy be checked, and the copy alone be used; what is only passed
    /// on (hashed, written to a file) can be read where it is, if any bytes will do. [`Span::load`]
    /// loads a word.
    pub fn item_span(&self, index: usize) -> Option<Span<'_>> {
        let incoming = &self.server.incoming;
        let (at, len) = incoming.item_place(index)?;
        self.link().region.request_area(incoming.header.seq).part(at, len)
    }

    /// String item `index`; `None` for one that is still in the region (see [`Self::item_span`]).
    pub fn item(&self, index: usize) -> Option<&[u8]> {
        match self.server.incoming.item(index)? {
            Item::Private(bytes) => Some(bytes),
            Item::Shared(_) => None,
        }
    }

    /// Descriptor `index`, once.
    pub fn take_fd(&mut self, index: usize) -> Option<rustix::fd::OwnedFd> {
        self.server.incoming.fds.take(index)
    }

    /// Grant `index`: the client's own memory, which it may change at any moment, as long as this
    /// request is looked at.
    pub fn grant(&self, index: usize) -> Option<Span<'_>> {
        let reference = *self.server.incoming.grant_refs().get(index)?;
        self.server.kept.get(index)?.resolve(reference)
    }

    /// Grant `index` for longer than this request, if the client allows that.
    pub fn keep_grant(&self, index: usize) -> Option<KeptGrant> {
        self.server.keep_grant(index)
    }

    /// All of it, for generated stubs.
    #[inline]
    pub fn decoder(&mut self) -> Decoder<'_> {
        self.server.incoming.decoder()
    }

    /// Leaves the call to whoever claims it by these numbers, reply line and sequence number, with
    /// [`ReplyToken::claim`].
    ///
    /// A loan stays one: until the next message, or [`Server::return_loan`].
    #[inline]
    pub(crate) fn leave(self) -> (u8, u32) {
        let header = self.server.incoming.header;
        self.server.unclaimed = None;
        if header.flags & BY_REFERENCE != 0 {
            self.server.loan = Some(self.index);
        }
        (header.line, header.seq)
    }

    /// Gives the request up for the right to answer it. The token of a request that wants no answer
    /// answers nobody.
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
    /// Grant `index` of the present message for longer, if the client allows that.
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
    /// The memory; it stays mapped even if the client unregisters it.
    pub fn span(&self) -> Option<Span<'_>> {
        self.granted.resolve(self.reference)
    }
}
