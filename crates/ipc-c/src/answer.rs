//! The answer under construction in a server's handle.
//!
//! Beginning an answer finds the call that the token names; sending the answer claims that call, so
//! only one of all copies of a token answers. In between the handle keeps the link, and with it the
//! memory of the body. Not here: receiving (`server`).

use crate::drafting::State;
use crate::handle::MessageNumber;
use crate::parts;
use crate::server_handle::ServerHandle;
use crate::status::Status;
use crate::token::Claim;
use crate::types::{Out, Token};
use sojourn_ipc::raw::{self, ClientRef, ReplyBody, ReplyPlace};
use sojourn_ipc::{INLINE_MAX, ReplyToken};

impl ServerHandle {
    /// Begins the answer to `token` and returns the memory for its body.
    #[inline]
    pub(crate) fn begin(&mut self, token: &Token, body_len: usize) -> *mut u8 {
        if let Some(link) = self.drafting.link.take() {
            self.give_back(link);
        }
        self.drafting.number = self.drafting.number.next();
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
        let claim = token.claim(self.shared.id())?;
        let link = self.link(claim.client).ok_or(Status::Gone)?;
        if !link.is_outstanding(claim.line, claim.seq) {
            self.give_back(link);
            return Err(Status::Invalid);
        }
        self.drafting.claim = claim;
        if body_len <= INLINE_MAX
            && let Some(body) = link.words(claim.line)
        {
            self.drafting.state = State::Short;
            self.drafting.link = Some(link);
            return Ok(body);
        }
        self.place_long(link, body_len)
    }

    #[inline(never)]
    fn place_long(&mut self, link: ClientRef, body_len: usize) -> Result<*mut u8, Status> {
        if body_len as u64 > link.reply_max() {
            self.give_back(link);
            return Err(Status::TooLarge);
        }
        let ReplyBody { place, start } = link.place(self.drafting.claim.line, body_len);
        self.drafting.state = State::Long;
        self.drafting.link = Some(link);
        self.drafting.place = place;
        Ok(start)
    }

    /// Sends the answer under construction, if that is `out`, and returns its link.
    ///
    /// # Safety
    /// Null, or begun by us; what it refers to stays as it is until we return.
    #[inline]
    pub(crate) unsafe fn answer(&mut self, out: *const Out) -> Result<ClientRef, Status> {
        // SAFETY: if not null, begun by us, who wrote it.
        if out.is_null() || unsafe { MessageNumber((*out).private[0]) } != self.drafting.number {
            return Err(Status::Invalid);
        }
        // SAFETY: not null: `out` was begun by us, who wrote it.
        let (body_len, has_parts) = unsafe { ((*out).body_len, parts::has_any(out)) };
        let is_plain = !has_parts && body_len <= self.drafting.body_len;
        if is_plain && matches!(self.drafting.state, State::Short) {
            self.drafting.state = State::Closed;
            let ready = raw::short_reply(self.claim_drafted()?, body_len);
            return Ok(raw::send_reply(ready)?);
        }
        // SAFETY: the caller's contract.
        unsafe { self.answer_rare(out, body_len, has_parts) }
    }

    /// Returns the right to answer the call whose answer is under construction.
    #[inline]
    fn claim_drafted(&mut self) -> Result<ReplyToken, Status> {
        let link = self.drafting.link.take().ok_or(Status::Invalid)?;
        self.claim_of(link, self.drafting.claim)
    }

    #[inline]
    fn claim_of(&mut self, link: ClientRef, claim: Claim) -> Result<ReplyToken, Status> {
        let token = link.claim(claim.line, claim.seq).map_err(|link| {
            self.give_back(link);
            Status::Invalid
        })?;
        // The caller may change its memory once it has its answer, so the loan ends first.
        if let Some(server) = &mut self.server
            && raw::is_on_loan(server, claim.client, claim.seq)
        {
            // SAFETY: the header ends the use of a call's message with the answer to the call.
            unsafe { raw::return_loan(server) };
        }
        Ok(token)
    }

    /// Sends any answer; [`Self::answer`] handles the common case itself.
    ///
    /// # Safety
    /// Begun by us; what it refers to stays as it is until we return.
    #[inline(never)]
    unsafe fn answer_rare(
        &mut self,
        out: *const Out,
        body_len: usize,
        has_parts: bool,
    ) -> Result<ClientRef, Status> {
        let place = match core::mem::replace(&mut self.drafting.state, State::Closed) {
            State::Closed => return Err(Status::Invalid),
            State::Failed(status) => return Err(status),
            State::Short => ReplyPlace::WORDS,
            State::Long => core::mem::replace(&mut self.drafting.place, ReplyPlace::WORDS),
        };
        let link = self.drafting.link.as_ref().ok_or(Status::Invalid)?;
        // SAFETY: the caller's contract.
        unsafe { check(out, body_len, self.drafting.body_len, link)? };
        let mut draft = raw::resume_reply(self.claim_drafted()?, place, body_len);
        if has_parts {
            // SAFETY: the caller's contract; checked.
            unsafe { parts::attach(out, draft.encoder())? };
        }
        Ok(raw::send_reply(draft.finish())?)
    }

    /// Claims the call of `token`.
    pub(crate) fn claim(&mut self, token: &Token) -> Result<ReplyToken, Status> {
        let claim = token.claim(self.shared.id())?;
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
    link: &ClientRef,
) -> Result<(), Status> {
    // SAFETY: the caller's contract.
    let total = unsafe {
        parts::check(out)?;
        if body_len > room || (*out).n_grants > 0 {
            return Err(Status::Invalid);
        }
        parts::total(out, body_len)
    };
    // SAFETY: `out` may be read, by the caller's contract.
    let is_long = body_len > INLINE_MAX || unsafe { (*out).n_items } > 0;
    if is_long && total > link.reply_max() { Err(Status::TooLarge) } else { Ok(()) }
}
