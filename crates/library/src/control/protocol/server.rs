//! The protocol thread's connection with the server: found, greeted, told of the sessions that are
//! away, lost.
//!
//! Not here: the messages (`super`, `messages`), and the times of attempts
//! (`crate::control::search`).

use super::thread::Thread;
use crate::control::search::Search;
use crate::fds::slot::Slot;
use crate::host::kernel;
use crate::policy::kept::KeptDescriptor;
use crate::remote::carry_server::{ANSWER_LIMIT, open_socket};
use rustix::fd::AsFd;
use sojourn_ipc::Deadline;
use sojourn_session::ReasonT;
use std::time::Instant;

impl Thread {
    /// Looks for a server, if an attempt is due.
    pub(super) fn connect(&mut self) {
        if !self.search.begins_attempt() {
            return;
        }
        let library = self.library;
        let greeted = self.aside.call(|outside| outside.greet(open_socket(library, "")?));
        if greeted.flatten().is_none() {
            return;
        }
        self.has_client = true;
        self.engine.set_served(true);
        library.returns.meet_server();
        self.served_since = Instant::now();
        self.adopt_all();
        self.tell_all_kept();
    }

    /// Connects now, because the program is about to make that impossible; see
    /// [`crate::control::prepare`].
    pub(super) fn prepare(&mut self) {
        if !self.has_client {
            // Earlier vain attempts do not put off this one.
            self.search = Search::new();
            self.connect();
        }
        self.engine.has_prepared();
    }

    /// Tells a new server which descriptors of this process stay in the kernel, and why.
    fn tell_all_kept(&mut self) {
        let kept: Vec<i32> = self.library.table.kept().collect();
        for fd in kept {
            if let Some(KeptDescriptor { inode, reason }) = self.library.kept(fd) {
                self.decline_inode(inode, reason, self.library.figures(fd, reason));
            }
        }
    }

    /// Tells a new server of the sessions that are away.
    fn adopt_all(&mut self) {
        let mut unknown = Vec::new();
        let all: Vec<_> = self
            .joined
            .values()
            .map(|one| (one.offer.fd, one.offer.what, one.stream, one.side, one.slot))
            .collect();
        for (fd, what, stream, side, slot) in all {
            let Ok(end) = kernel::at(fd) else { continue };
            // A session that the server does not adopt goes on: a stream needs no server.
            let told = self.with_descriptor(end, |outside| {
                let end = outside.take_passed()?;
                let client = outside.client.as_mut()?;
                let deadline = Deadline::after(ANSWER_LIMIT);
                client.with_deadline(deadline).adopt(Some(end.as_fd()), &what, stream.0, side).ok()
            });
            if told == Some(Some(false)) {
                unknown.extend(self.library.session_in(slot));
            }
        }
        // A server that does not know a UDP socket has given the datagrams that it found to the
        // kernel.
        for session in unknown.into_iter().filter(|session| session.is_udp()) {
            session.leave(ReasonT::PeerDied, false);
        }
    }

    pub(super) fn lose_server(&mut self) {
        if !core::mem::take(&mut self.has_client) {
            return;
        }
        self.engine.set_served(false);
        self.aside.call(|outside| outside.client = None);
        // A session that the server had begun to carry waits for the next server; one that it had
        // not taken out is still the kernel's.
        let slots: Vec<Slot> = self.joined.values().map(|joined| joined.slot).collect();
        for session in slots.into_iter().filter_map(|slot| self.library.session_in(slot)) {
            session.carrier_is_lost();
        }
        self.search.lost(self.served_since.elapsed());
        for (_, offer) in std::mem::take(&mut self.offers) {
            self.decline(&offer);
        }
    }
}
