//! The protocol thread's part in signals for I/O (`O_ASYNC`, fcntl(2)): it sends them.
//!
//! Not here: when one is due (`crate::io::signals`), and how it is sent
//! (`sojourn_shm::fasync`).

use super::outside::Outside;
use super::thread::Thread;
use crate::fds::table::mark;
use crate::host::kernel;
use crate::io::signals::{DueSignals, flags_of};
use crate::session::Session;
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use sojourn_session::ReasonT;
use sojourn_shm::fasync::{ASYNC, Event, Owner, Sender};

impl Thread {
    /// Sends the signals that are due for a session.
    pub(super) fn signal(&mut self, session: &Session) {
        let due = session.take_due_signals();
        if due != DueSignals::default() {
            self.send_signals(session.number(), due);
        }
    }

    /// Sends the signal that there is room, for a session that has gone home meanwhile.
    pub(super) fn tell_room(&mut self, fd: i32, version: u32) {
        let is_same = |version: u32| {
            let entry = self.library.table.known(fd);
            entry.is_some_and(|entry| entry.version.load(Ordering::SeqCst) == version)
        };
        if is_same(version) && flags_of(fd).contains(ASYNC) {
            self.send_signals(fd, DueSignals { input: 0, output: true });
        }
    }

    /// Sends signals, or leaves the session to the kernel if it cannot: then the kernel sends them
    /// for the bytes that go there.
    fn send_signals(&mut self, fd: i32, due: DueSignals) {
        if self.try_signals(fd, due).is_err() {
            self.library.go_home(fd, ReasonT::Operation, true);
        }
    }

    fn try_signals(&mut self, fd: i32, due: DueSignals) -> Result<(), Errno> {
        let Some(owner) = Owner::of(kernel::at(fd)?)? else { return Ok(()) };
        // The signal tells the number under which `O_ASYNC` was set, perhaps not this one.
        let entry = self.library.table.known(fd);
        if owner.hears_number() && entry.is_none_or(|entry| entry.has(mark::ALIASED)) {
            return Err(Errno::OPNOTSUPP);
        }
        let input = if owner.hears_each() { due.input } else { due.input.min(1) };
        let due = DueSignals { input, ..due };
        self.aside.call(move |outside| outside.signal(owner, fd, due)).ok_or(Errno::SRCH)?
    }
}

impl Outside {
    fn signal(&mut self, owner: Owner, fd: i32, due: DueSignals) -> Result<(), Errno> {
        let sender = match &mut self.signals {
            Some(sender) => sender,
            none => none.insert(Sender::new()?),
        };
        if due.input > 0 {
            sender.send(owner, fd, Event::Input, due.input)?;
        }
        if due.output { sender.send(owner, fd, Event::Output, 1) } else { Ok(()) }
    }
}
