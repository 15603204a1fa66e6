//! What a server's handle remembers of the answer under construction.

use super::handle::first_number;
use super::status::Status;
use super::token::Claim;
use crate::link::ClientLink;
use crate::reply::BodyStorage;
use std::sync::Arc;

/// The answer under construction.
#[derive(Debug)]
pub(super) struct Drafting {
    /// Which one it is: the number its `sj_out` carries.
    pub(super) number: u64,
    pub(super) state: State,
    /// Keeps the place alive; there while the state is `Short` or `Long`.
    pub(super) link: Option<Arc<ClientLink>>,
    pub(super) claim: Claim,
    pub(super) body_len: usize,
    /// Where the body is, if the state is `Long`.
    pub(super) place: BodyStorage,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Closed,
    /// In the reply line's words.
    Short,
    Long,
    /// It cannot be sent, for this reason.
    Failed(Status),
}

impl Drafting {
    /// Nothing is under construction.
    pub(super) fn new() -> Self {
        Self {
            number: first_number(),
            state: State::Closed,
            link: None,
            claim: Claim::NONE,
            body_len: 0,
            place: BodyStorage::Inline,
        }
    }
}
