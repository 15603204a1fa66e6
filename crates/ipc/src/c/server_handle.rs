//! `sj_server`: a server thread's handle, or one that only answers.
//!
//! Not here: receiving (`server`), answering (`answer`).

use super::drafting::Drafting;
use super::message::Received;
use super::scratch::Scratch;
use super::status::Status;
use crate::link::ClientLink;
use crate::reply::ReplyToken;
use crate::rt::ClientId;
use crate::server::Server;
use crate::shared::Shared;
use std::sync::Arc;

/// `sj_server`.
#[derive(Debug)]
pub(super) struct ServerHandle {
    /// None: it only answers.
    pub(super) server: Option<Server>,
    pub(super) received: Received,
    pub(super) shared: Arc<Shared>,
    pub(super) drafting: Drafting,
    pub(super) scratch: Scratch,
}

impl ServerHandle {
    pub(super) fn new(server: Option<Server>, shared: Arc<Shared>) -> Self {
        Self {
            server,
            received: Received::default(),
            shared,
            drafting: Drafting::new(),
            scratch: Scratch::default(),
        }
    }

    /// The link of a client of this endpoint; to be given back.
    #[inline]
    pub(super) fn link(&mut self, id: ClientId) -> Option<Arc<ClientLink>> {
        match self.server.as_mut().and_then(|server| server.lend(id)) {
            Some(link) => Some(link),
            None => self.shared.link(id),
        }
    }

    #[inline]
    pub(super) fn give_back(&mut self, link: Arc<ClientLink>) {
        if let Some(server) = &mut self.server {
            server.give_back(link);
        }
    }

    /// An answer was sent: whether anybody is there to see it.
    pub(super) fn sent(&mut self, link: Arc<ClientLink>) -> Result<(), Status> {
        let is_gone = link.ended().is_some();
        self.give_back(link);
        if is_gone { Err(Status::Gone) } else { Ok(()) }
    }
}

impl Drop for ServerHandle {
    /// C may hold tokens of calls to this handle, and nobody can tell: their callers are answered
    /// now, before the connections end. Another thread that answers one at this moment was first,
    /// or finds the call claimed.
    fn drop(&mut self) {
        let Some(server) = &mut self.server else { return };
        let links: Vec<_> = server.links().map(Arc::clone).collect();
        for link in links {
            for line in 0..u8::try_from(link.lines.len()).unwrap_or(u8::MAX) {
                let Some(seq) = link.unclaimed(line) else { continue };
                // The caller may do what it likes with its memory once it has its answer.
                if server.is_on_loan(link.id, seq) {
                    server.return_loan();
                }
                // Dropped unanswered: fault `Dropped`.
                let _ = ReplyToken::claim(Arc::clone(&link), line, seq);
            }
        }
    }
}
