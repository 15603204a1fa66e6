//! `sj_server`: a server thread's handle, or a handle that only answers.
//!
//! Not here: receiving (`server`), answering (`answer`).

use crate::drafting::Drafting;
use crate::message::Received;
use crate::scratch::Scratch;
use sojourn_ipc::raw::{self, CallNumbers, ClientRef, EndpointState};
use sojourn_ipc::{ClientId, Server};

/// `sj_server`.
#[derive(Debug)]
pub(crate) struct ServerHandle {
    /// The server; `None` for a handle that only answers.
    pub(crate) server: Option<Server>,
    pub(crate) received: Received,
    pub(crate) shared: EndpointState,
    pub(crate) drafting: Drafting,
    pub(crate) scratch: Scratch,
}

impl ServerHandle {
    pub(crate) fn new(server: Option<Server>, shared: EndpointState) -> Self {
        Self {
            server,
            received: Received::default(),
            shared,
            drafting: Drafting::new(),
            scratch: Scratch::default(),
        }
    }

    /// Returns the link of a client of this endpoint, which the caller must give back.
    #[inline]
    pub(crate) fn link(&mut self, id: ClientId) -> Option<ClientRef> {
        match self.server.as_mut().and_then(|server| raw::lend(server, id)) {
            Some(link) => Some(link),
            None => self.shared.link(id),
        }
    }

    #[inline]
    pub(crate) fn give_back(&mut self, link: ClientRef) {
        if let Some(server) = &mut self.server {
            raw::give_back(server, link);
        }
    }
}

impl Drop for ServerHandle {
    /// Answers the callers of all unclaimed calls with faults before the connections end, because C
    /// may hold their tokens unnoticed. Another thread that answers such a call at this moment
    /// either comes first or finds the call claimed.
    fn drop(&mut self) {
        let Some(server) = &mut self.server else { return };
        let links: Vec<_> = raw::links(server).collect();
        for link in links {
            for CallNumbers { line, seq } in link.unclaimed() {
                // The caller may change its memory once it has its answer, so the loan ends first.
                if raw::is_on_loan(server, link.id(), seq) {
                    // SAFETY: the handle ends here, and with it the use of its last message.
                    unsafe { raw::return_loan(server) };
                }
                // A token that is dropped without an answer answers with fault `Dropped`.
                let _ = link.clone().claim(line, seq);
            }
        }
    }
}
