//! Answering: the answer that a server's handle has under construction.
//!
//! Beginning one finds the call its token names; sending it claims that call, so of all copies of a
//! token one answers, once. In between the handle keeps the link, and with it the memory the body
//! is written to. Not here: receiving; see `server`.

use super::drafting::State;
use super::parts;
use super::server_handle::ServerHandle;
use super::status::Status;
use super::token::Claim;
use super::types::{Out, Token};
use crate::layout::INLINE_MAX;
use crate::link::ClientLink;
use crate::reply::{self, BodyStorage, ReplyToken};
use std::sync::Arc;

impl ServerHandle {
    /// Where the body of the answer to `token` goes.
    #[inline]
    pub(super) fn begin(&mut self, token: &Token, body_len: usize) -> *mut u8 {
        if let Some(link) = self.drafting.link.take() {
            self.give_back(link);
        }
        self.drafting.number += 1;
        self.drafting.body_len = body_len;
        match self.place(token, body_len) {
            Ok(body) => body,
            Err(status) => {
                self.drafting.state = State::Failed(status);
                self.scratch.room(body_len)
            }
        }
    }

    #[inline]
    fn place(&mut self, token: &Token, body_len: usize) -> Result<*mut u8, Status> {
        let claim = token.claim(self.shared.id)?;
        let link = self.link(claim.client).ok_or(Status::Gone)?;
        if !link.is_outstanding(claim.line, claim.seq) {
            self.give_back(link);
            return Err(Status::Invalid);
        }
        self.drafting.claim = claim;
        if body_len <= INLINE_MAX
            && let Some(line) = link.lines.get(claim.line as usize)
        {
            let body = line.words.get().cast();
            self.drafting.state = State::Short;
            self.drafting.link = Some(link);
            return Ok(body);
        }
        self.place_long(link, body_len)
    }

    #[inline(never)]
    fn place_long(&mut self, link: Arc<ClientLink>, body_len: usize) -> Result<*mut u8, Status> {
        if body_len as u64 > link.reply_max {
            self.give_back(link);
            return Err(Status::TooLarge);
        }
        let (place, body) = reply::place(&link, self.drafting.claim.line, body_len);
        self.drafting.state = State::Long;
        self.drafting.link = Some(link);
        self.drafting.place = place;
        Ok(body)
    }

    /// Sends the answer under construction, if that is `out`, and gives its link.
    ///
    /// # Safety
    /// Null, or begun by us; what it refers to stays as it is until we return.
    #[inline]
    pub(super) unsafe fn answer(&mut self, out: *const Out) -> Result<Arc<ClientLink>, Status> {
        // SAFETY: if not null, begun by us, who wrote it.
        if out.is_null() || unsafe { (*out).private[0] } != self.drafting.number {
            return Err(Status::Invalid);
        }
        // SAFETY: as above.
        let (body_len, has_parts) = unsafe { ((*out).body_len, parts::has_any(out)) };
        let is_plain = !has_parts && body_len <= self.drafting.body_len;
        if is_plain && matches!(self.drafting.state, State::Short) {
            self.drafting.state = State::Closed;
            let ready = self.claim_drafted()?.short(body_len);
            return ready.send_and_return().ok_or(Status::Gone);
        }
        // SAFETY: the caller's contract.
        unsafe { self.answer_rare(out, body_len, has_parts) }
    }

    /// The right to answer the call whose answer is under construction.
    #[inline]
    fn claim_drafted(&mut self) -> Result<ReplyToken, Status> {
        let link = self.drafting.link.take().ok_or(Status::Invalid)?;
        self.claim_of(link, self.drafting.claim)
    }

    #[inline]
    fn claim_of(&mut self, link: Arc<ClientLink>, claim: Claim) -> Result<ReplyToken, Status> {
        let token = ReplyToken::claim(link, claim.line, claim.seq).map_err(|link| {
            self.give_back(link);
            Status::Invalid
        })?;
        // The caller may do what it likes with its memory once it has its answer.
        if let Some(server) = &mut self.server
            && server.is_on_loan(claim.client, claim.seq)
        {
            server.return_loan();
        }
        Ok(token)
    }

    /// As [`Self::answer`], for any answer.
    ///
    /// # Safety
    /// Begun by us; what it refers to stays as it is until we return.
    #[inline(never)]
    unsafe fn answer_rare(
        &mut self,
        out: *const Out,
        body_len: usize,
        has_parts: bool,
    ) -> Result<Arc<ClientLink>, Status> {
        let place = match core::mem::replace(&mut self.drafting.state, State::Closed) {
            State::Closed => return Err(Status::Invalid),
            State::Failed(status) => return Err(status),
            State::Short => BodyStorage::Inline,
            State::Long => core::mem::replace(&mut self.drafting.place, BodyStorage::Inline),
        };
        let link = self.drafting.link.as_ref().ok_or(Status::Invalid)?;
        // SAFETY: the caller's contract.
        unsafe { check(out, body_len, self.drafting.body_len, link)? };
        let mut draft = self.claim_drafted()?.resume(place, body_len);
        if has_parts {
            // SAFETY: the caller's contract; checked.
            unsafe { parts::attach(out, draft.encoder())? };
        }
        draft.finish().send_and_return().ok_or(Status::Gone)
    }

    /// Claims the call of `token`.
    pub(super) fn claim(&mut self, token: &Token) -> Result<ReplyToken, Status> {
        let claim = token.claim(self.shared.id)?;
        let link = self.link(claim.client).ok_or(Status::Gone)?;
        self.claim_of(link, claim)
    }
}

/// Refuses an answer that cannot be sent.
///
/// # Safety
/// `out` was begun by us, and C has written as many elements as its counts say.
unsafe fn check(
    out: *const Out,
    body_len: usize,
    room: usize,
    link: &ClientLink,
) -> Result<(), Status> {
    // SAFETY: the caller's contract.
    let total = unsafe {
        parts::check(out)?;
        if body_len > room || (*out).n_grants > 0 {
            return Err(Status::Invalid);
        }
        parts::total(out, body_len)
    };
    // SAFETY: as above.
    let is_long = body_len > INLINE_MAX || unsafe { (*out).n_items } > 0;
    if is_long && total > link.reply_max { Err(Status::TooLarge) } else { Ok(()) }
}
