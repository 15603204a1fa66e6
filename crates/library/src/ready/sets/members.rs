//! The members of epoll sets: put in and taken out by the program, moved and sent home with their
//! sessions, and closed.
//!
//! Not here: the changes of one set (`set`).

use super::{SetAt, Slot};
use crate::fds::table::mark;
use crate::host::lock::lock;
use crate::process::library::Library;
use crate::ready::set::RemainingHolder;
use crate::session::Session;
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;

impl Library {
    /// Makes a session that joins a stream, and has not consented yet, answer in its set. Returns
    /// false if the set cannot take it, now or ever.
    pub(crate) fn set_joined(&self, fd: i32, session: &Session) -> bool {
        let Some(entry) = self.table.known(fd) else { return true };
        let Some((_, slot)) = self.own_set(entry.set.load(Ordering::SeqCst)) else { return true };
        session.place().is_some_and(|(inbox, at)| slot.set.join(fd, &inbox, at))
    }

    /// Has the session's set report packets, because this process runs the session's engine now.
    pub(crate) fn set_hears_packets(&self, session: &Session, packets: i32) {
        let index = session.set().checked_sub(1);
        if let Some(slot) = index.and_then(|index| self.sets()?.slot(index)) {
            slot.set.notify_on_packets(packets);
        }
    }

    /// Makes the kernel answer for `fd` again, whose session is home.
    pub(crate) fn set_left(&self, fd: i32, _session: &Session) {
        let Some(entry) = self.table.known(fd) else { return };
        // The program may have taken the descriptor out of its set for a moment.
        for word in [&entry.set, &entry.last_set] {
            if let Some((_, slot)) = self.own_set(word.load(Ordering::SeqCst)) {
                slot.set.leave(fd);
            }
        }
    }

    /// Notes that a non-blocking send found no room, or not enough. The caller holds no lock of the
    /// session's directions.
    #[cold]
    pub(crate) fn set_full(&self, session: &Session) {
        // The numbers are read one by one: the lock of a set comes before the session's, `facts`
        // too.
        let number = |at| lock(&session.facts).numbers.get(at).copied();
        for fd in (0..).map_while(number) {
            if let Some(entry) = self.table.known(fd)
                && let Some((_, slot)) = self.own_set(entry.set.load(Ordering::SeqCst))
            {
                slot.set.full(self, fd);
            }
        }
    }

    /// Notes that the number is about to be closed, or has been (`is_open` tells).
    pub(crate) fn descriptor_closed(&self, fd: i32, is_open: bool) {
        let Some(entry) = self.table.known(fd) else { return };
        let (word, is_several) = (entry.set.load(Ordering::SeqCst), entry.has(mark::SETS));
        if let SetAt::Own(word, slot) = self.set_at(fd) {
            self.close_set(entry, word, slot);
        }
        let last = entry.last_set.load(Ordering::SeqCst);
        if word == 0 && last == 0 && !is_several {
            return;
        }
        let Some(sets) = self.sets() else { return };
        let is_kept = entry.has(mark::ALIASED);
        let is_sole = self.is_sole(entry);
        let holder = match is_kept {
            true => RemainingHolder::Program,
            // The server may have a duplicate of an offer's descriptor, which would keep the
            // registration.
            false if is_open && is_sole && entry.has(mark::WAS_OFFERED) => RemainingHolder::Sojourn,
            false => RemainingHolder::None,
        };
        if let Some((_, slot)) = self.own_set(last).filter(|_| last != word) {
            slot.set.closed(fd, if is_kept { RemainingHolder::None } else { holder });
        }
        if word == 0 && !is_several {
            return;
        }
        if is_kept {
            sets.has_left_behind.store(true, Ordering::SeqCst);
        }
        if is_several {
            sets.all().for_each(|slot| slot.set.closed(fd, holder));
        } else if let Some((_, slot)) = self.own_set(word) {
            slot.set.closed(fd, holder);
        }
    }

    pub(super) fn added(&self, word: u32, slot: &Slot, fd: i32) {
        let Some(entry) = self.table.entry(fd) else { return };
        self.set_shared(fd);
        // The first set's word stays: a session that has moved must come home from that set.
        let before = entry.set.compare_exchange(0, word, Ordering::SeqCst, Ordering::SeqCst);
        if before.is_err_and(|before| before != word) {
            self.unfit(fd);
            return;
        }
        let Some(session) = self.session_of(fd) else {
            self.recall_foreign(fd);
            return;
        };
        // The session's peers post to an inbox. If that is this set's, the session was only out of
        // it for a while.
        let is_of_this = self.own_index(word).is_some_and(|index| session.set() == index + 1);
        let is_back = !entry.has(mark::ALIASED | mark::SETS)
            && is_of_this
            && session.place().is_some_and(|(inbox, at)| slot.set.join(fd, &inbox, at));
        if !is_back {
            self.go_home_for_set(fd);
        }
    }

    pub(super) fn deleted(&self, word: u32, fd: i32) {
        if let Some(entry) = self.table.known(fd) {
            let before = entry.set.compare_exchange(word, 0, Ordering::SeqCst, Ordering::SeqCst);
            if before.is_ok() {
                entry.last_set.store(word, Ordering::SeqCst);
            }
        }
    }

    /// Notes for good that a descriptor's sets cannot carry its session.
    pub(super) fn unfit(&self, fd: i32) {
        if let Some(entry) = self.table.entry(fd) {
            entry.mark(mark::SETS);
            self.go_home(fd, ReasonT::Set, true);
        }
    }
}
