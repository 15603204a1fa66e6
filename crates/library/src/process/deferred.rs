//! Notifications that wait until the kernel has ended something, so that the peer hears of the end
//! from the kernel first.
//!
//! Not here: ending a session (`moves::home`, `moves::descriptors`). Read
//! `docs/understand/streams.md`, "Going home".
//!
//! # Theory of operation
//! A close has two kinds of work beside the kernel's. One must be done before the kernel's close:
//! the stream is frozen, and bytes that the peer has not read are put into the kernel. The other is
//! notification: of the peer's protocol thread, of the peer's sleepers, and of the own protocol
//! thread, which tells the server. Each notification is a wake-up, and the thread woken may take
//! this thread's processor while the peer could have heard of the end from the kernel. So
//! notifications are left here, and the shell calls [`Library::ended`] after the kernel's call. A
//! thread that never does (it is cancelled in that call) leaves them to the next one that ends
//! something, or pushes a job; nothing depends on them, as the kernel tells every peer.

use crate::process::engine::ENDED_MAX;
use crate::process::engine::{Engine, Job};
use crate::process::library::Library;
use crate::process::library::library;
use sojourn_stream::Stream;
use std::sync::Arc;

/// When other threads and processes are notified of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotifyWhen {
    /// At once.
    Now,
    /// After the kernel's call ([`Library::ended`]).
    Deferred,
}

impl Engine {
    /// Notifies the peer that the stream has ended.
    pub(crate) fn tell_peer(&self, stream: &Arc<Stream>, when: NotifyWhen) {
        // The list never grows: an end beyond its room is told at once.
        if when == NotifyWhen::Deferred {
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
    /// Sends the notifications that were deferred, after the kernel has been called for the change
    /// that [`Library::closing`] or the like announced.
    pub fn ended(&self) {
        let Some(engine) = self.engine() else { return };
        loop {
            let Some(stream) = crate::host::lock::lock(&engine.ended).pop() else { break };
            stream.notify_peer();
            stream.attention();
        }
        engine.ring_if_left();
    }

    /// Gives the protocol thread a job, now or when [`Library::ended`] rings for it.
    pub(crate) fn push_when(&self, job: Job, when: NotifyWhen) {
        match (when, self.engine()) {
            (NotifyWhen::Deferred, Some(engine)) if engine.is_running() => engine.leave(job),
            _ => library().push(job),
        }
    }
}
