//! The entry of one descriptor number: what this process knows of the number, as plain atomics.
//!
//! Not here: the table (`table`), and what a session is (`session`).
//!
//! # Theory of operation
//! A call that may block in the kernel counts itself in `users` *before* it looks whether the
//! descriptor has a session. A thread that joins a session stores the session *before* it looks at
//! `users`. So either the call sees the session and waits in the library's way, or the joining
//! thread sees the call and puts off its consent.

use crate::fds::slot::AtomicSlotWord;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use sojourn_session::{HomeT, ReasonT};
use sojourn_shm::deadline::now_ns;

const WRITER: u32 = 1 << 16;
/// Entries of numbers that follow one another, which are made together (`table`).
pub(crate) const CHUNK: usize = 256;

/// Direction of a data call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Receives.
    Read,
    /// Sends.
    Write,
}

/// Bits of [`FdEntry::marks`].
pub(crate) mod mark {
    /// Never moves; [`super::FdEntry::kept_for`] says why.
    pub(crate) const FIXED: u32 = 1;
    /// Made by this process, by a call that the library saw.
    pub(crate) const BORN_HERE: u32 = 2;
    /// Has had another number of the same description (open(2)) in this process, or may have had
    /// one.
    pub(crate) const ALIASED: u32 = 4;
    /// Has been passed to another process (`SCM_RIGHTS`).
    pub(crate) const PASSED: u32 = 8;
    /// In more than one epoll set, or in one that cannot carry sessions.
    pub(crate) const SETS: u32 = 16;
    /// An offer is under way or waits.
    pub(crate) const OFFERED: u32 = 32;
    /// Has been offered at least once: the server may have had a duplicate, and may still have it.
    pub(crate) const WAS_OFFERED: u32 = 64;
    /// Has gone home as a bulk transfer: see `policy::bulk`.
    pub(crate) const REMEMBERED: u32 = 128;
    /// Beside `FIXED`: the server is to be told why, if the descriptor becomes hot.
    pub(crate) const UNTOLD: u32 = 256;
    /// Has been put off once because its move costs much: see `policy::hot`.
    pub(crate) const WAITED: u32 = 512;
    /// Has been in the kernel for a trial: see `policy::measured`.
    pub(crate) const MEASURED: u32 = 1024;
    /// Has gone home with all sessions of the process with other hosts: see `policy::aggregate`.
    pub(crate) const AGGREGATE: u32 = 2048;
}

/// The entry of one descriptor number. The shell may read the first two words where it cannot call
/// the library ([`FdEntry::LAYOUT`]).
#[repr(C)]
#[derive(Debug, Default)]
pub struct FdEntry {
    /// The session.
    pub(crate) session: AtomicSlotWord,
    pub(crate) marks: AtomicU32,
    /// Calls that are in the kernel now: readers in the low half, writers in the high half.
    users: AtomicU32,
    /// Data calls since the count began, for the next comparison with the thresholds.
    calls: AtomicU32,
    /// `Library::fork_epoch` when the descriptor was made.
    pub(crate) epoch: AtomicU32,
    /// The epoll set that contains the descriptor.
    pub(crate) set: AtomicSlotWord,
    /// The set that contained it last: programs take descriptors out of a set and put them back.
    pub(crate) last_set: AtomicSlotWord,
    /// The set that the descriptor *is*, if it is an epoll descriptor.
    pub(crate) epoll: AtomicSlotWord,
    bytes: AtomicU64,
    /// The time at which the count of calls and bytes began, in nanoseconds.
    counted_since_ns: AtomicU64,
    /// Bytes a second in the kernel when the descriptor last became hot; 0: not known.
    rate_when_hot: AtomicU64,
    /// Counts changes of the number's meaning: opened, closed, replaced.
    pub(crate) version: AtomicU32,
    /// How often the descriptor still has to become hot before it is offered again, and how often
    /// it had to after the last refusal.
    put_off: AtomicU32,
    was_put_off: AtomicU32,
    /// The same as `was_put_off`, for [`FdEntry::postpone_offer`].
    returns: AtomicU32,
    /// The reason why the descriptor does not move, a [`ReasonT`].
    kept_for: AtomicU8,
    /// The home that an administrator wants for the session, a [`HomeT`]; the kernel's number for
    /// none.
    wished_home: AtomicU8,
}

/// The data calls on a descriptor since the count began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallCounts {
    pub(crate) calls: u32,
    pub(crate) bytes: u64,
}

/// How often a session that is refused again and again becomes hot between two offers, at most: the
/// cause of the refusals may be gone by then.
const PUT_OFF_MAX: u32 = 1024;

/// Calls from which on their rate says something.
const RATE_CALLS: u32 = 16;
/// The mean time between two calls from which on a move gains nothing: caches are cold again at
/// each call, and its threads have slept.
const SELDOM_NS: u64 = 4_000_000;

/// Where the words are that say if the kernel serves a descriptor's data calls for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLayout {
    /// Entries that lie behind one another.
    pub count: usize,
    /// Bytes from one to the next.
    pub stride: usize,
    /// The place of the session's word, which is 0 without a session.
    pub session: usize,
    /// The place of the marks.
    pub marks: usize,
    /// The marks that decide.
    pub decisive: u32,
    /// Those of them that a descriptor has that never moves.
    pub settled: u32,
}

impl FdEntry {
    /// The layout of this type.
    pub const LAYOUT: EntryLayout = EntryLayout {
        count: CHUNK,
        stride: size_of::<Self>(),
        session: core::mem::offset_of!(Self, session),
        marks: core::mem::offset_of!(Self, marks),
        decisive: mark::FIXED | mark::UNTOLD,
        settled: mark::FIXED,
    };

    /// Counts a kernel call that begins, before the look for a session: see the file's head.
    #[inline]
    pub(crate) fn enter(&self, way: Direction) {
        // SYNC: full order with `users` in the joiner.
        self.users.fetch_add(if way == Direction::Read { 1 } else { WRITER }, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn leave(&self, way: Direction) {
        self.users.fetch_sub(if way == Direction::Read { 1 } else { WRITER }, Ordering::SeqCst);
    }

    /// Counts the calls that are in the kernel in one direction.
    pub(crate) fn users(&self, way: Direction) -> u32 {
        let users = self.users.load(Ordering::SeqCst);
        if way == Direction::Read { users & (WRITER - 1) } else { users / WRITER }
    }

    /// Counts a data call of `bytes`; returns calls and bytes so far.
    #[inline]
    pub(crate) fn count(&self, bytes: u64) -> CallCounts {
        // Plain loads and stores: a count lost between threads does no harm.
        let calls = self.calls.load(Ordering::Relaxed).saturating_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        if calls == 1 {
            self.counted_since_ns.store(now_ns(), Ordering::Relaxed);
        }
        let all = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.bytes.store(all, Ordering::Relaxed);
        CallCounts { calls, bytes: all }
    }

    /// Returns the bytes counted since [`FdEntry::restart_counts`].
    pub(crate) fn counted(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the time that the counted calls have taken by `now_ns`, in nanoseconds. `None` for a
    /// few calls, which say nothing.
    fn time_of_calls(&self, now_ns: u64) -> Option<u64> {
        let is_enough = self.calls.load(Ordering::Relaxed) >= RATE_CALLS;
        is_enough.then(|| now_ns.saturating_sub(self.counted_since_ns.load(Ordering::Relaxed)))
    }

    /// Notes the rate of the calls that have made the descriptor hot by `now_ns`.
    pub(crate) fn note_rate(&self, now_ns: u64) {
        let bytes = u128::from(self.counted()) * 1_000_000_000;
        let time_ns = self.time_of_calls(now_ns).filter(|time_ns| *time_ns > 0);
        let rate = time_ns.map_or(0, |time_ns| bytes / u128::from(time_ns));
        self.rate_when_hot.store(u64::try_from(rate).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns true if the calls that have made the descriptor hot by `now_ns` were far apart.
    pub(crate) fn is_used_seldom(&self, now_ns: u64) -> bool {
        let calls = u64::from(self.calls.load(Ordering::Relaxed));
        self.time_of_calls(now_ns).is_some_and(|time_ns| time_ns / calls >= SELDOM_NS)
    }

    /// Returns the rate that [`FdEntry::note_rate`] has noted, in bytes a second; 0: not known.
    pub(crate) fn rate_when_hot(&self) -> u64 {
        self.rate_when_hot.load(Ordering::Relaxed)
    }

    /// Starts the counts anew.
    pub(crate) fn restart_counts(&self) {
        self.calls.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Notes that an offer was refused. The next one is made after the descriptor has become hot
    /// again a few times, twice as often after each refusal.
    pub(crate) fn was_refused(&self) {
        let times = (2 * self.was_put_off.load(Ordering::Relaxed)).clamp(1, PUT_OFF_MAX);
        self.was_put_off.store(times, Ordering::Relaxed);
        self.put_off.store(times, Ordering::Relaxed);
        self.restart_counts();
    }

    /// Notes that the session has gone home for a cause that may recur. The next offer is put off
    /// as by [`FdEntry::was_refused`], but an accepted move does not reset the count.
    pub(crate) fn postpone_offer(&self) {
        let times = (2 * self.returns.load(Ordering::Relaxed)).clamp(1, PUT_OFF_MAX);
        self.returns.store(times, Ordering::Relaxed);
        self.put_off.store(times, Ordering::Relaxed);
    }

    /// Notes that the descriptor has become hot, and is to be offered when it has become hot
    /// `times`.
    pub(crate) fn wait_for(&self, times: u32) {
        self.put_off.store(times.saturating_sub(1), Ordering::Relaxed);
        self.restart_counts();
    }

    /// Counts that the descriptor has become hot; returns true if it must not be offered yet.
    pub(crate) fn is_put_off(&self) -> bool {
        let left = self.put_off.load(Ordering::Relaxed);
        self.put_off.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    /// Notes that an offer was accepted.
    pub(crate) fn was_taken(&self) {
        self.put_off.store(0, Ordering::Relaxed);
        self.was_put_off.store(0, Ordering::Relaxed);
    }

    /// Keeps the descriptor in the kernel for ever, for `reason`.
    pub(crate) fn keep(&self, reason: ReasonT) {
        // `ReasonT` has far fewer values than a byte.
        self.kept_for.store(reason as u8, Ordering::Relaxed);
        self.mark(mark::FIXED | mark::UNTOLD);
    }

    /// Keeps the descriptor in the kernel for now, for `reason`, until it has been hot for longer.
    pub(crate) fn keep_for_now(&self, reason: ReasonT) {
        self.kept_for.store(reason as u8, Ordering::Relaxed);
        self.was_refused();
    }

    /// Records why the descriptor does not move now; the caller decides when it may.
    pub(crate) fn note_kept(&self, reason: ReasonT) {
        self.kept_for.store(reason as u8, Ordering::Relaxed);
    }

    /// Clears a reason set by [`FdEntry::keep_for_now`] or [`FdEntry::note_kept`].
    pub(crate) fn let_go(&self, reason: ReasonT) {
        if !self.has(mark::FIXED) && self.kept_for() == Some(reason) {
            self.kept_for.store(ReasonT::None as u8, Ordering::Relaxed);
        }
    }

    /// Notes that an administrator wants the session in that home, now and whenever it is offered.
    pub(crate) fn wish(&self, home: HomeT) {
        // `HomeT` has three values.
        self.wished_home.store(home as u8, Ordering::Relaxed);
    }

    /// Returns the home outside the kernel that an administrator wants for the session.
    pub(crate) fn wished_home(&self) -> Option<HomeT> {
        let home = HomeT::try_from(i32::from(self.wished_home.load(Ordering::Relaxed))).ok()?;
        (home != HomeT::Kernel).then_some(home)
    }

    /// Tells that the descriptor never moves and that the server need not be told any more.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & Self::LAYOUT.decisive == Self::LAYOUT.settled
    }

    /// Returns the reason why the descriptor does not move; `None` if it may, or if no reason is
    /// shown.
    pub(crate) fn kept_for(&self) -> Option<ReasonT> {
        let reason = ReasonT::try_from(i32::from(self.kept_for.load(Ordering::Relaxed)));
        match reason.unwrap_or(ReasonT::None) {
            ReasonT::None => self.has(mark::SETS).then_some(ReasonT::Set),
            reason => Some(reason),
        }
    }

    /// Copies the reason and the wished home of `other`, of which this descriptor is a duplicate.
    pub(crate) fn keep_as(&self, other: &Self) {
        self.wished_home.store(other.wished_home.load(Ordering::Relaxed), Ordering::Relaxed);
        self.kept_for.store(other.kept_for.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Clears the entry for a new meaning of its number.
    pub(crate) fn reset(&self, marks: u32, epoch: u32) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.restart_counts();
        self.rate_when_hot.store(0, Ordering::Relaxed);
        self.marks.store(marks, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Relaxed);
        self.set.store(None, Ordering::Relaxed);
        self.last_set.store(None, Ordering::Relaxed);
        self.epoll.store(None, Ordering::Relaxed);
        self.kept_for.store(ReasonT::None as u8, Ordering::Relaxed);
        self.wish(HomeT::Kernel);
        self.was_taken();
        self.returns.store(0, Ordering::Relaxed);
    }

    /// Returns true if this process may have other numbers of the same description.
    pub(crate) fn may_be_aliased(&self) -> bool {
        !self.has(mark::BORN_HERE) || self.has(mark::ALIASED)
    }

    #[inline]
    pub(crate) fn has(&self, mark: u32) -> bool {
        self.marks.load(Ordering::Relaxed) & mark != 0
    }

    pub(crate) fn mark(&self, mark: u32) {
        self.marks.fetch_or(mark, Ordering::Relaxed);
    }

    pub(crate) fn unmark(&self, mark: u32) {
        self.marks.fetch_and(!mark, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_the_kernel_are_counted_by_direction() {
        let entry = FdEntry::default();
        entry.enter(Direction::Read);
        entry.enter(Direction::Write);
        entry.enter(Direction::Write);
        assert_eq!((entry.users(Direction::Read), entry.users(Direction::Write)), (1, 2));
        entry.leave(Direction::Write);
        entry.leave(Direction::Read);
        assert_eq!((entry.users(Direction::Read), entry.users(Direction::Write)), (0, 1));
    }

    #[test]
    fn calls_that_are_far_apart_are_told_from_those_that_are_not() {
        let is_seldom = |calls, time_ns| {
            let entry = FdEntry::default();
            for _ in 0..calls {
                entry.count(1);
            }
            entry.is_used_seldom(entry.counted_since_ns.load(Ordering::Relaxed) + time_ns)
        };
        assert!(is_seldom(32, 32 * SELDOM_NS));
        assert!(!is_seldom(32, 32 * SELDOM_NS - 1));
        assert!(!is_seldom(RATE_CALLS - 1, u64::from(RATE_CALLS) * SELDOM_NS), "too few");
    }

    #[test]
    fn what_is_refused_is_offered_ever_less_often() {
        let entry = FdEntry::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            assert!(!entry.is_put_off());
            entry.was_refused();
            waits.push((0..).find(|_| !entry.is_put_off()).unwrap());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        entry.was_refused();
        entry.was_taken();
        assert!(!entry.is_put_off());
        entry.was_refused();
        entry.reset(0, 0);
        assert!(!entry.is_put_off());
    }

    #[test]
    fn what_is_dear_to_move_becomes_hot_several_times_first() {
        let entry = FdEntry::default();
        entry.count(9);
        entry.wait_for(8);
        assert_eq!(entry.counted(), 0);
        assert_eq!((0..).find(|_| !entry.is_put_off()), Some(7));
    }

    #[test]
    fn the_rate_of_the_calls_before_a_move_is_known_if_these_are_enough() {
        let entry = FdEntry::default();
        let count = |calls| {
            for _ in 0..calls {
                entry.count(100);
            }
        };
        count(RATE_CALLS - 1);
        entry.note_rate(now_ns());
        assert_eq!(entry.rate_when_hot(), 0);
        count(1);
        entry.counted_since_ns.store(1_000, Ordering::Relaxed);
        entry.note_rate(1_000 + 1_000_000);
        assert_eq!(entry.rate_when_hot(), 1_600_000, "1,600 bytes in a millisecond");
        entry.note_rate(1_000);
        assert_eq!(entry.rate_when_hot(), 0, "a clock that stands still");
        entry.note_rate(2_000);
        entry.reset(0, 0);
        assert_eq!(entry.rate_when_hot(), 0);
    }

    #[test]
    fn a_new_meaning_of_a_number_starts_at_nothing() {
        let entry = FdEntry::default();
        assert_eq!(entry.count(5), CallCounts { calls: 1, bytes: 5 });
        assert_eq!(entry.count(6), CallCounts { calls: 2, bytes: 11 });
        entry.mark(mark::FIXED);
        entry.reset(mark::BORN_HERE, 3);
        assert_eq!(entry.count(1), CallCounts { calls: 1, bytes: 1 });
        assert!(!entry.has(mark::FIXED));
    }
}
