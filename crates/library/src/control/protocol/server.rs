//! The protocol thread's connection with the server: found, greeted, told of what is away, lost.
//!
//! Not here: what is said over it (`super`), how often a server is looked for
//! (`crate::control::search`).

use super::thread::Thread;
use crate::control::search::Search;
use crate::host::kernel;
use crate::remote::carry_server::{ANSWER_LIMIT, open_socket};
use core::sync::atomic::Ordering;
use rustix::fd::AsFd;
use sojourn_ipc::Deadline;
use sojourn_session::ReasonT;
use std::time::Instant;

impl Thread {
    /// Looks for a server, if it is time for that.
    pub(super) fn connect(&mut self) {
        if !self.search.begins_attempt() {
            return;
        }
        let library = self.library;
        let greeted = self.aside.call(|outside| outside.greet(open_socket(library)?));
        if greeted.flatten().is_none() {
            return;
        }
        self.has_client = true;
        self.engine.set_served(true);
        if let Some(net) = self.library.net() {
            net.is_alone.store(false, Ordering::SeqCst);
        }
        self.served_since = Instant::now();
        self.adopt_all();
        self.tell_all_kept();
    }

    /// The program is about to do what makes this impossible later; see
    /// [`crate::control::prepare`].
    pub(super) fn prepare(&mut self) {
        if !self.has_client {
            // However often there was none before.
            self.search = Search::new();
            self.connect();
        }
        self.engine.has_prepared();
    }

    /// A new server learns what of this process stays in the kernel.
    fn tell_all_kept(&mut self) {
        let kept: Vec<i32> = self.library.table.kept().collect();
        for fd in kept {
            if let Some((inode, reason)) = self.library.kept(fd) {
                self.decline_inode(inode, reason, self.library.figures(fd, reason));
            }
        }
    }

    /// A new server learns of the sessions that are away.
    fn adopt_all(&mut self) {
        let mut unknown = Vec::new();
        let all: Vec<_> = self
            .joined
            .values()
            .map(|one| (one.offer.fd, one.offer.what, one.stream, one.side, one.slot))
            .collect();
        for (fd, what, stream, side, slot) in all {
            let Ok(end) = kernel::at(fd) else { continue };
            // What the server does not want to know changes nothing for a stream.
            let told = self.with_descriptor(end, |outside| {
                let end = outside.take_passed()?;
                let client = outside.client.as_mut()?;
                let deadline = Deadline::after(ANSWER_LIMIT);
                client.with_deadline(deadline).adopt(Some(end.as_fd()), &what, stream, side).ok()
            });
            if told == Some(Some(false)) {
                unknown.extend(self.engine.pool.session(slot));
            }
        }
        // Of a UDP socket's datagrams it has given to the kernel what it found.
        for session in unknown.into_iter().filter(|session| session.is_datagram()) {
            session.leave(ReasonT::PeerDied, false);
        }
    }

    pub(super) fn lose_server(&mut self) {
        if !core::mem::take(&mut self.has_client) {
            return;
        }
        self.engine.set_served(false);
        self.aside.call(|outside| outside.client = None);
        // Those that it had begun to carry wait for the next one; those that it had not taken out
        // are the kernel's still.
        let slots: Vec<u32> = self.joined.values().map(|joined| joined.slot).collect();
        for session in slots.into_iter().filter_map(|slot| self.engine.pool.session(slot)) {
            session.carrier_is_lost();
        }
        self.search.lost(self.served_since.elapsed());
        for (_, offer) in std::mem::take(&mut self.offers) {
            self.decline(&offer);
        }
    }
}
