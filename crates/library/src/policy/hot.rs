//! What becomes of a descriptor that reaches a threshold: offered, put off, or kept.
//!
//! Read `docs/understand/streams.md`, "Moving out" (1). Not here: the thresholds (`thresholds`),
//! offers (`offer`).

use crate::fds::entry::{FdEntry, mark};
use crate::process::deferred::NotifyWhen;
use crate::process::engine::Engine;
use crate::process::library::Library;
use crate::process::thresholds::{allows, is_for_this_host, is_usual, kind_of, measures_pace};
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::deadline::now_ns;

/// How often sessions become hot before a move that is dear: what they have cost in the kernel by
/// then is about what the move costs.
const DEAR: u32 = 8;

impl Library {
    /// A descriptor has reached a threshold.
    #[cold]
    pub(crate) fn became_hot(&self, fd: i32, entry: &FdEntry) {
        let has_thread = self.engine().is_some_and(Engine::is_running);
        if !has_thread && self.host().in_handler() {
            // What becomes of it begins with a thread, for which the C library allocates: at a
            // later call.
            return;
        }
        self.with_stack(|| self.is_hot(fd, entry));
    }

    fn is_hot(&self, fd: i32, entry: &FdEntry) {
        let is_first = !self.policy.is_configured();
        let config = self.policy.config();
        if self.is_pinned(fd, entry) {
            entry.restart_counts();
            return;
        }
        let Some(kind) = kind_of(fd) else {
            entry.mark(mark::FIXED);
            return;
        };
        if is_first && config.move_after_calls > 1 {
            // Only the first call of the process; by the configured thresholds it may not be hot
            // yet.
            return;
        }
        let now_ns = now_ns();
        let is_seldom = entry.counted() < config.move_after_bytes && entry.is_used_seldom(now_ns);
        entry.note_rate(now_ns);
        let bytes = entry.counted();
        entry.restart_counts();
        if is_seldom && measures_pace(config) {
            return;
        }
        if self.is_kept_by_policy(fd, entry, kind) {
            return;
        }
        if kind == KindT::Udp && is_for_this_host(fd) {
            // As long as that is so.
            return;
        }
        if entry.has(mark::SETS) {
            self.tell_kept(fd, entry, NotifyWhen::Now);
            entry.was_refused();
        } else if !is_usual(config)
            || (self.is_worth_moving(entry)
                && (kind != KindT::Tcp || self.may_leave_with_all(fd, entry, bytes)))
        {
            self.offer(fd, entry, kind);
        }
    }

    /// Returns true if the session stays in the kernel for now: its state, what is remembered of
    /// others like it, or what was measured of it says so.
    fn is_pinned(&self, fd: i32, entry: &FdEntry) -> bool {
        entry.has(mark::FIXED | mark::OFFERED)
            || self.policy.is_forbidden()
            || entry.is_put_off()
            || entry.has(mark::REMEMBERED) && !self.may_leave(fd, entry, entry.counted())
            || entry.has(mark::MEASURED) && !self.may_move_again(fd, entry, entry.counted())
    }

    /// Keeps in the kernel what stdio uses and what the configuration excludes; returns true for
    /// these.
    fn is_kept_by_policy(&self, fd: i32, entry: &FdEntry, kind: KindT) -> bool {
        // Standard error is written by too many hands.
        let is_stdio = fd == 2 || self.host().stdio_uses(fd);
        if !is_stdio && allows(self.policy.config(), fd, kind) {
            return false;
        }
        entry.keep(if is_stdio { ReasonT::Stdio } else { ReasonT::Policy });
        // What the configuration says, and standard error, `sojourn ss` sees by itself.
        if is_stdio && fd != 2 {
            self.tell_kept(fd, entry, NotifyWhen::Now);
        } else {
            entry.unmark(mark::UNTOLD);
        }
        true
    }

    /// Returns true if the calls so far have cost about as much as moving the session will. A move
    /// costs the host milliseconds of processor time where the server must look through all
    /// processes for holders, which is for this session alone, and where this process has no
    /// protocol thread yet, which is for all its sessions. Where earlier sessions ended soon after
    /// their moves this one is expected to, as well.
    fn is_worth_moving(&self, entry: &FdEntry) -> bool {
        if entry.has(mark::WAITED) {
            return true;
        }
        let is_sole = self.is_sole(entry);
        let times = self.policy.lifetimes.times().max(if is_sole { 1 } else { DEAR });
        if times > 1 {
            entry.mark(mark::WAITED);
            entry.wait_for(times);
            return false;
        }
        let has_thread = self.engine().is_some_and(Engine::is_running);
        has_thread || self.policy.became_hot() >= DEAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers what became of each of `entries` as it became hot.
    fn become_hot(library: &Library, entries: &[FdEntry]) -> Vec<bool> {
        entries.iter().map(|entry| library.is_worth_moving(entry)).collect()
    }

    fn entries(marks: u32) -> [FdEntry; 10] {
        std::array::from_fn(|_| {
            let entry = FdEntry::default();
            entry.mark(marks);
            entry
        })
    }

    #[test]
    fn the_sessions_of_a_process_pay_for_its_thread_together() {
        let library = Library::new();
        let expected = [[false; 7].as_slice(), &[true; 3]].concat();
        assert_eq!(become_hot(&library, &entries(mark::BORN_HERE)), expected);
        library.next_generation();
        assert_eq!(
            become_hot(&library, &entries(mark::BORN_HERE)),
            expected,
            "a child has no thread either"
        );
    }

    #[test]
    fn each_session_whose_holders_are_looked_for_pays_for_that_itself() {
        let library = Library::new();
        let entries = entries(0);
        assert_eq!(become_hot(&library, &entries), [false; 10]);
        assert_eq!((0..).find(|_| !entries[0].is_put_off()), Some(7));
        assert!(library.is_worth_moving(&entries[0]));
    }
}
