//! What becomes of a descriptor that reaches a threshold: offered, put off, or kept.
//!
//! Read `docs/understand/streams.md`, "Moving out" (1). Not here: the thresholds (`thresholds`),
//! offers (`offer`).

use crate::fds::table::{FdEntry, mark};
use crate::process::deferred::NotifyWhen;
use crate::process::engine::Engine;
use crate::process::library::Library;
use crate::process::thresholds::{allows, is_for_this_host, is_usual, kind_of};
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::deadline::now_ns;

/// How often a session that is dear to move becomes hot before it is offered: what it has cost in
/// the kernel by then is about what its move costs.
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
        if entry.has(mark::FIXED | mark::OFFERED)
            || self.policy.is_forbidden()
            || entry.is_put_off()
        {
            entry.restart_counts();
            return;
        }
        if entry.has(mark::REMEMBERED) && !self.may_leave(fd, entry, entry.counted()) {
            entry.restart_counts();
            return;
        }
        if entry.has(mark::MEASURED) && !self.may_move_again(fd, entry, entry.counted()) {
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
        entry.note_rate(now_ns());
        entry.restart_counts();
        // Standard error is written by too many hands.
        let is_stdio = fd == 2 || self.host().stdio_uses(fd);
        if is_stdio || !allows(config, fd, kind) {
            entry.keep(if is_stdio { ReasonT::Stdio } else { ReasonT::Policy });
            // What the configuration says, and standard error, `sojourn ss` sees by itself.
            if is_stdio && fd != 2 {
                self.tell_kept(fd, entry, NotifyWhen::Now);
            } else {
                entry.unmark(mark::UNTOLD);
            }
            return;
        }
        if kind == KindT::Udp && is_for_this_host(fd) {
            // As long as that is so.
            return;
        }
        if entry.has(mark::SETS) {
            self.tell_kept(fd, entry, NotifyWhen::Now);
            entry.was_refused();
        } else if self.is_dear(entry) && is_usual(config) && !entry.has(mark::WAITED) {
            entry.mark(mark::WAITED);
            entry.wait_for(DEAR);
        } else {
            self.offer(fd, entry, kind);
        }
    }

    /// Whether moving a session costs the host milliseconds of processor time, because this process
    /// has no protocol thread yet, or because the server must look through all processes for
    /// holders.
    fn is_dear(&self, entry: &FdEntry) -> bool {
        let has_thread = self.engine().is_some_and(Engine::is_running);
        !(has_thread && self.is_sole(entry))
    }
}
