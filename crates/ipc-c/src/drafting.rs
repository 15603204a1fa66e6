//! The state of the answer under construction in a server's handle.

use crate::handle::MessageNumber;
use crate::status::Status;
use crate::token::Claim;
use sojourn_ipc::raw::{ClientRef, ReplyPlace};

/// The answer under construction.
#[derive(Debug)]
pub(crate) struct Drafting {
    /// The answer's number, which its `sj_out` carries.
    pub(crate) number: MessageNumber,
    pub(crate) state: State,
    /// The link that keeps the place alive, while the state is `Short` or `Long`.
    pub(crate) link: Option<ClientRef>,
    pub(crate) claim: Claim,
    pub(crate) body_len: usize,
    /// The place of the body, if the state is `Long`.
    pub(crate) place: ReplyPlace,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Closed,
    /// The body is in the reply line's words.
    Short,
    Long,
    /// The answer cannot be sent, for this reason.
    Failed(Status),
}

impl Drafting {
    /// Creates the state without an answer under construction.
    pub(crate) fn new() -> Self {
        Self {
            number: MessageNumber::first(),
            state: State::Closed,
            link: None,
            claim: Claim::NONE,
            body_len: 0,
            place: ReplyPlace::WORDS,
        }
    }
}
