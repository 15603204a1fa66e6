//! What waits until the kernel has ended something: whom an end concerns hears of it from the
//! kernel first.
//!
//! Not here: ending a session (`home`, `descriptors`). Read `docs/understand/streams.md`, "Going
//! home".
//!
//! # Theory of operation
//! A close has two kinds of work beside the kernel's: what must be done before it (the stream is
//! frozen, what the peer has not read is put into the kernel), and what others are told: the peer's
//! protocol thread, the peer's sleepers, the own protocol thread, which tells the server. Each of
//! those is a wake-up, and who is woken may take this thread's processor, while the peer could have
//! heard of the end from the kernel. So that part is left here, and the shell comes back for it
//! when the kernel has been called ([`Library::ended`]). A thread that does not come back (it is
//! cancelled in the call) leaves it to the next one that ends something, or pushes a job; nobody
//! depends on it, as the kernel tells every peer.

use crate::process::engine::ENDED_MAX;
use crate::process::engine::{Engine, Job};
use crate::process::library::Library;
use crate::process::library::library;
use sojourn_stream::Stream;
use std::sync::Arc;

/// When others are told of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// At once.
    Now,
    /// Once the kernel has been called.
    Deferred,
}

impl Engine {
    /// Tells the peer that the stream has ended.
    pub(crate) fn tell_peer(&self, stream: &Arc<Stream>, when: Telling) {
        if when == Telling::Deferred {
            let mut ended = crate::host::lock::lock(&self.ended);
            if ended.len() < ENDED_MAX {
                ended.push(Arc::clone(stream));
                return;
            }
        }
        stream.attention();
        stream.notify_peer();
    }
}

impl Library {
    /// The kernel has been called for what [`Library::closing`] and its like were told of: tells
    /// everybody else.
    pub fn ended(&self) {
        let Some(engine) = self.engine() else { return };
        loop {
            let Some(stream) = crate::host::lock::lock(&engine.ended).pop() else { break };
            stream.notify_peer();
            stream.attention();
        }
        engine.ring_if_left();
    }

    /// A job for the protocol thread, now or once the kernel has been called.
    pub(crate) fn push_when(&self, job: Job, when: Telling) {
        match (when, self.engine()) {
            (Telling::Deferred, Some(engine)) if engine.is_running() => engine.leave(job),
            _ => library().push(job),
        }
    }
}
