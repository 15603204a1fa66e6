//! The protocol thread's part in signals for I/O (`O_ASYNC`, fcntl(2)): it sends them.
//!
//! Not here: when one is due (`crate::io::signals`), and how it is sent
//! (`sojourn_shm::fasync`).

use super::outside::SignalOrder;
use super::thread::Thread;
use crate::fds::entry::mark;
use crate::host::kernel;
use crate::io::signals::{DueSignals, flags_of};
use crate::session::Session;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::io::Errno;
use sojourn_session::ReasonT;
use sojourn_shm::fasync::{ASYNC, Owner};

impl Thread {
    /// Orders the signals that are due for a session. Returns true if there are any.
    pub(super) fn signal(&mut self, session: &Session) -> bool {
        let due = session.take_due_signals();
        let is_due = due != DueSignals::default();
        if is_due {
            self.send_signals(session.number(), due);
        }
        is_due
    }

    /// Orders the signal that there is room, for a session that has gone home meanwhile.
    pub(super) fn tell_room(&mut self, fd: i32, version: u32) {
        let is_same = |version: u32| {
            let entry = self.library.table.known(fd);
            entry.is_some_and(|entry| entry.version.load(Ordering::SeqCst) == version)
        };
        if is_same(version) && flags_of(fd).contains(ASYNC) {
            self.send_signals(fd, DueSignals { input: 0, output: true });
        }
    }

    /// Orders signals, or leaves the session to the kernel if that is impossible: then the kernel
    /// sends them for the bytes that go there.
    fn send_signals(&mut self, fd: i32, due: DueSignals) {
        match self.order(fd, due) {
            Ok(order) => self.signals.extend(order),
            Err(_) => self.library.go_home(fd, ReasonT::Operation, true),
        }
    }

    fn order(&self, fd: i32, due: DueSignals) -> Result<Option<SignalOrder>, Errno> {
        let Some(owner) = Owner::of(kernel::at(fd)?)? else { return Ok(None) };
        // The signal tells the number under which `O_ASYNC` was set, perhaps not this one.
        let entry = self.library.table.known(fd);
        if owner.hears_number() && entry.is_none_or(|entry| entry.has(mark::ALIASED)) {
            return Err(Errno::OPNOTSUPP);
        }
        let input = if owner.hears_each() { due.input } else { due.input.min(1) };
        Ok(Some(SignalOrder { owner, fd, due: DueSignals { input, ..due } }))
    }

    /// Has the second thread send the signals that were ordered, and sleep, in one call: each costs
    /// a change of threads. Returns the subjects of the events.
    pub(super) fn signal_and_wait(&mut self, limit: Option<Duration>) -> Option<Vec<u64>> {
        let mut orders = core::mem::take(&mut self.signals);
        let (words, refused) = self.aside.call(move |outside| {
            orders.retain(|order| outside.signal(order).is_err());
            // What cannot be sent is not kept waiting.
            let limit = if orders.is_empty() { limit } else { Some(Duration::ZERO) };
            (outside.wait(limit), orders)
        })?;
        for order in refused {
            self.library.go_home(order.fd, ReasonT::Operation, true);
        }
        Some(words)
    }
}
