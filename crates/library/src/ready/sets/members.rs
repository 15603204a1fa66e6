//! The members of epoll sets: put in and taken out by the program, moved and sent home with their
//! sessions, and closed.
//!
//! Not here: the changes of one set (`set`).

use super::{OwnSet, PooledSet, SetAt};
use crate::fds::entry::mark;
use crate::fds::slot::{AtomicSlotWord, SlotWord};
use crate::host::lock::lock;
use crate::process::library::{FoundSession, Library};
use crate::ready::set::{RemainingHolder, Set};
use crate::ready::set_entry::RegisteredFd;
use crate::session::Session;
use crate::session::identity::{Generation, InboxPlace};
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;

/// A session that is about to join a set, as it was seen before: it may go home at any time.
pub(super) struct Joining<'s> {
    session: &'s Session,
    generation: Generation,
    place: InboxPlace,
}

impl<'s> Joining<'s> {
    /// Takes the session of that generation. `None` means that it is not away any more.
    pub(super) fn of(session: &'s Session, generation: Generation) -> Option<Self> {
        let place = session.place()?;
        Some(Self { session, generation, place })
    }

    /// Makes the session answer in the set. Returns false if the set cannot take it, or if the
    /// session has gone home meanwhile: then the kernel answers.
    pub(super) fn join(&self, set: &Set, fd: i32) -> bool {
        let is_in = set.join(fd, &self.place.inbox, self.place.slot);
        // SYNC: after the set's lock; pairs with `detach`, which counts the generation on and then
        // takes the session out of its sets under the same lock. Without this look a session that
        // `detach` has just not found in the set would stay there, and never report anything.
        if self.session.generation() != self.generation {
            set.leave(fd);
            return false;
        }
        is_in
    }
}

impl Library {
    /// Returns the set of this process that a table entry names there.
    fn own_set_in(&self, of: &AtomicSlotWord) -> Option<OwnSet> {
        self.own_set(of.load(Ordering::SeqCst)?)
    }

    /// Makes a session that joins a stream, and has not consented yet, answer in its set. Returns
    /// false if the set cannot take it, now or ever.
    pub(crate) fn set_joined(&self, fd: i32, session: &Session) -> bool {
        let Some(entry) = self.table.known(fd) else { return true };
        let set = self.own_set_in(&entry.set);
        let Some(OwnSet { number, pooled }) = set else { return true };
        // The program has put the descriptor into this set since the offer, and the peers post to
        // an inbox that this set does not have to itself.
        if session.set() != number {
            return false;
        }
        let generation = session.generation();
        Joining::of(session, generation).is_some_and(|joining| joining.join(&pooled.set, fd))
    }

    /// Has the session's set report packets, because this process runs the session's engine now.
    pub(crate) fn set_hears_packets(&self, session: &Session, packets: i32) {
        let slot = session.set().slot();
        if let Some(pooled) = slot.and_then(|slot| self.sets()?.pool.get(slot)) {
            pooled.set.notify_on_packets(packets);
        }
    }

    /// Makes the kernel answer for `fd` again, whose session is home.
    pub(crate) fn set_left(&self, fd: i32, _session: &Session) {
        let Some(entry) = self.table.known(fd) else { return };
        // The program may have taken the descriptor out of its set for a moment.
        for word in [&entry.set, &entry.last_set] {
            if let Some(OwnSet { pooled, .. }) = self.own_set_in(word) {
                pooled.set.leave(fd);
            }
        }
    }

    /// Notes that a non-blocking send found no room, or not enough. The caller holds no lock of the
    /// session's directions.
    #[cold]
    pub(crate) fn set_full(&self, session: &Session) {
        self.each_set_of(session, |set, fd| set.full(self, fd));
    }

    /// Has the kernel tell the session's sets of room, which it decides from now on. The caller
    /// holds no lock of the session's directions.
    #[cold]
    pub(crate) fn set_asks_for_room(&self, session: &Session) {
        self.each_set_of(session, |set, fd| set.ask_for_room(self, fd));
    }

    fn each_set_of(&self, session: &Session, tell: impl Fn(&Set, i32)) {
        // The numbers are read one by one: the lock of a set comes before the session's, `facts`
        // too.
        let number = |at| lock(&session.facts).numbers.get(at).copied();
        for fd in (0..).map_while(number) {
            if let Some(entry) = self.table.known(fd)
                && let Some(OwnSet { pooled, .. }) = self.own_set_in(&entry.set)
            {
                tell(&pooled.set, fd);
            }
        }
    }

    /// Notes that the number is about to be closed, or has been (`is_open` tells).
    pub(crate) fn descriptor_closed(&self, fd: i32, is_open: bool) {
        let Some(entry) = self.table.known(fd) else { return };
        let (word, is_several) = (entry.set.load(Ordering::SeqCst), entry.has(mark::SETS));
        if let SetAt::Own(word, pooled) = self.set_at(fd) {
            self.close_set(entry, word, pooled);
        }
        let last = entry.last_set.load(Ordering::SeqCst);
        if word.is_none() && last.is_none() && !is_several {
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
        if let Some(OwnSet { pooled, .. }) =
            last.filter(|_| last != word).and_then(|last| self.own_set(last))
        {
            pooled.set.closed(fd, if is_kept { RemainingHolder::None } else { holder });
        }
        if word.is_none() && !is_several {
            return;
        }
        if is_kept {
            sets.has_left_behind.store(true, Ordering::SeqCst);
        }
        if is_several {
            sets.pool.all().for_each(|pooled| pooled.set.closed(fd, holder));
        } else if let Some(OwnSet { pooled, .. }) = word.and_then(|word| self.own_set(word)) {
            pooled.set.closed(fd, holder);
        }
    }

    /// Sends the session of `fd` home because its epoll set or a poll has changed. A program may
    /// wait for its connections in a set and by polls in turn (a reactor and its threads): a
    /// session that goes home for this again and again moves less and less often.
    pub(crate) fn go_home_for_set(&self, fd: i32) {
        if let Some(entry) = self.table.known(fd)
            && let Some(FoundSession { session, .. }) = self.own_session(entry)
            && session.stream().is_some_and(|stream| !stream.is_frozen())
        {
            entry.postpone_offer();
        }
        self.go_home(fd, ReasonT::Set, false);
    }

    /// Takes over the set `epfd`, which was made and filled past the library. `read` reads what is
    /// registered.
    pub(crate) fn adopt_set(&self, epfd: i32, read: impl FnOnce() -> Option<Vec<RegisteredFd>>) {
        let Some(entry) = self.table.known(epfd).or_else(|| self.table.entry(epfd)) else { return };
        if entry.has(mark::ALIASED | mark::PASSED) {
            return;
        }
        self.epoll_made(epfd);
        let SetAt::Own(word, pooled) = self.set_at(epfd) else { return };
        match pooled.set.adopt(read) {
            Some(numbers) => numbers.into_iter().for_each(|fd| self.added(word, pooled, fd)),
            None => self.share(pooled),
        }
    }

    /// Leaves a set to the kernel that was adopted during a change, perhaps without it.
    pub(super) fn missed_change(&self, epfd: i32) {
        if let SetAt::Own(_, pooled) = self.set_at(epfd) {
            self.share(pooled);
        }
    }

    pub(super) fn added(&self, word: SlotWord, pooled: &PooledSet, fd: i32) {
        let Some(entry) = self.table.entry(fd) else { return };
        self.set_shared(fd);
        // The first set's word stays: a session that has moved must come home from that set.
        let before = entry.set.exchange(None, Some(word));
        if before.is_err_and(|before| before != Some(word)) {
            self.unfit(fd);
            return;
        }
        // SYNC: after the store of the set; pairs with the joiner, which stores the session and
        // then looks at the set (`set_joined`).
        let Some(FoundSession { session, generation }) = self.own_session(entry) else {
            self.recall_foreign(fd);
            return;
        };
        // The session's peers post to an inbox. If that is this set's, the session was only out of
        // it for a while.
        let is_of_this = self.own_set(word).is_some_and(|own| session.set() == own.number);
        let is_back = !entry.has(mark::ALIASED | mark::SETS)
            && is_of_this
            && Joining::of(&session, generation)
                .is_some_and(|joining| joining.join(&pooled.set, fd));
        if !is_back {
            self.go_home_for_set(fd);
        }
    }

    pub(super) fn deleted(&self, word: SlotWord, fd: i32) {
        if let Some(entry) = self.table.known(fd)
            && entry.set.load(Ordering::SeqCst) == Some(word)
        {
            // First, so that a session that goes home meanwhile finds the set by one of the words.
            entry.last_set.store(Some(word), Ordering::SeqCst);
            let _ = entry.set.exchange(Some(word), None);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fds::slot::SetNumber;
    use crate::host::epoll::{Interest, bit, op};
    use crate::process::library::library;
    use crate::ready::set_fakes::{LONG, inbox};
    use crate::ready::sets_tests::Epoll;
    use crate::session_fakes::{Pair, common_inbox, is_away, read, write};

    /// The session moves while the program has its descriptor out of the set, and goes home again
    /// while the program puts it back: between the look at the session and its join.
    #[test]
    fn a_session_that_goes_home_while_it_is_put_back_is_left_to_the_kernel() {
        let (set, pair) = (Epoll::new(), Pair::new());
        let fd = pair.fd(0);
        set.change(op::ADD, fd, bit::IN).unwrap();
        let id = set.id(fd);
        set.change(op::DEL, fd, 0).unwrap();
        assert!(pair.join([(inbox(), id), (common_inbox(), SetNumber::NONE)]));
        pair.warm_up();
        let pooled = library().sets().unwrap().pool.get(id.slot().unwrap()).unwrap();
        pooled
            .set
            .change(library(), set.fd(), op::ADD, fd, Interest { events: bit::IN, data: fd as u64 })
            .unwrap();
        let entry = library().table.known(fd).unwrap();
        let FoundSession { session, generation } = library().own_session(entry).unwrap();
        let joining = Joining::of(&session, generation).unwrap();
        for end in [1, 0] {
            library().go_home(pair.fd(end), ReasonT::User, false);
            assert!(!is_away(pair.fd(end)));
        }
        assert!(!joining.join(&pooled.set, fd));
        write(pair.fd(1), b"x").unwrap();
        assert_eq!(set.wait(Some(LONG)), [(bit::IN, fd)]);
        assert_eq!(read(fd, &mut [0; 9]), Ok(1));
    }

    /// The program puts the descriptor into its first set after the join's look at the sets, and
    /// before it can see the session.
    #[test]
    fn a_session_that_was_offered_without_a_set_does_not_join_one() {
        let (set, pair) = (Epoll::new(), Pair::joined());
        let fd = pair.fd(0);
        let entry = library().table.known(fd).unwrap();
        let word = library().table.known(set.fd()).unwrap().epoll.load(Ordering::SeqCst);
        let pooled = library().own_set(word.unwrap()).unwrap().pooled;
        pooled
            .set
            .change(library(), set.fd(), op::ADD, fd, Interest { events: bit::IN, data: fd as u64 })
            .unwrap();
        entry.set.store(word, Ordering::SeqCst);
        let session = library().own_session(entry).unwrap().session;
        assert!(!library().set_joined(fd, &session));
    }
}
