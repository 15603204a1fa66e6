//! The order of notifications when a session ends: the peer's sleeping calls are woken at once, and
//! everything else waits until the kernel has ended it.
//!
//! Not here: ending a session (`moves::home`, `moves::descriptors`). Read
//! `docs/understand/streams.md`, "Going home".
//!
//! # Theory of operation
//! A close has three kinds of work beside the kernel's. The first must be done before the kernel's
//! close: the stream is frozen, and bytes that the peer has not read are put into the kernel.
//!
//! The second comes right after that, and before the kernel's close: the peer's calls that sleep
//! for the stream are woken. They find the freeze, go home and sleep in the kernel, which wakes
//! them itself. If the kernel's close came first, it would wake the peer's protocol thread, which
//! watches the descriptor of a stream; that thread would take this one's processor inside the
//! close, and the peer's call would be the last of three threads to wake up.
//!
//! The third is the notification of threads that only tidy up: the peer's protocol thread, and the
//! own one, which tells the server. Each is a wake-up that may take this thread's processor, so
//! they are left here, and the shell calls [`Library::ended`] after the kernel's call. A thread
//! that never does (it is cancelled in that call) leaves them to the next one that ends something,
//! or pushes a job; nothing depends on them, as the kernel tells every peer.

use crate::process::engine::ENDED_MAX;
use crate::process::engine::{Engine, Job};
use crate::process::library::Library;
use core::time::Duration;
use sojourn_stream::Stream;
use std::sync::Arc;

/// When threads that only tidy up are notified of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotifyWhen {
    /// At once.
    Now,
    /// After the kernel's call ([`Library::ended`]).
    Deferred,
}

impl Engine {
    /// Notifies the peer that the stream has ended: its sleeping calls at once, its protocol thread
    /// when `when` says.
    pub(crate) fn tell_peer(&self, stream: &Arc<Stream>, when: NotifyWhen) {
        stream.notify_peer();
        // The list never grows: an end beyond its room is told at once.
        if when == NotifyWhen::Deferred {
            let mut ended = crate::host::lock::lock(&self.ended);
            if ended.len() < ENDED_MAX {
                ended.push(Arc::clone(stream));
                return;
            }
        }
        stream.attention();
    }
}

impl Library {
    /// Sends the notifications that were deferred, after the kernel has been called for the change
    /// that [`Library::closing`] or the like announced.
    pub fn ended(&self) {
        let Some(engine) = self.engine() else { return };
        loop {
            let Some(stream) = crate::host::lock::lock(&engine.ended).pop() else { break };
            stream.attention();
        }
        engine.ring_if_left();
    }

    /// Waits until the session server has been told what has happened so far, for `limit` at most:
    /// another process may offer the same descriptor then.
    pub fn await_server(&self, limit: Duration) {
        if let Some(engine) = self.engine().filter(|engine| engine.is_running()) {
            engine.await_jobs(limit);
        }
    }

    /// Gives the protocol thread a job, now or when [`Library::ended`] rings for it.
    pub(crate) fn push_when(&self, job: Job, when: NotifyWhen) {
        match (when, self.engine()) {
            (NotifyWhen::Deferred, Some(engine)) if engine.is_running() => engine.leave(job),
            _ => self.push(job),
        }
    }
}
