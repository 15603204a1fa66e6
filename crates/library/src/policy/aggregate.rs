//! Sessions with other hosts that do better in the kernel, all of a process together.
//!
//! `sojourn_pump::aggregate` decides, and the pump sends the sessions home. In the kernel the
//! library counts the calls of those that came home so, as for any descriptor, and takes a sample
//! each time a threshold is reached ([`Library::may_leave_with_all`]). Not here: bulk transfers
//! (`bulk`), and sessions on one host (`measured`).

use crate::fds::entry::{FdEntry, mark};
use crate::process::deferred::NotifyWhen;
use crate::process::library::Library;
use crate::process::thresholds::is_for_this_host;
use sojourn_pump::aggregate::Next;
use sojourn_pump::bulk::FLOOR;
use sojourn_pump::{Pump, now};
use sojourn_session::ReasonT;

/// How often a session that stays becomes hot before it is looked at again.
const HELD_FOR: u32 = 8;

impl Library {
    /// Counts `bytes` of a TCP descriptor that has reached a threshold; returns true if it may be
    /// offered.
    pub(crate) fn may_leave_with_all(&self, fd: i32, entry: &FdEntry, bytes: u64) -> bool {
        let Some(net) = self.net() else { return true };
        let keeps_home = |pump: &mut Pump| pump.aggregate().is_some_and(|all| all.keeps_home());
        if !net.with_pump(self, keeps_home) || is_for_this_host(fd) {
            entry.let_go(ReasonT::Slower);
            return true;
        }
        // Sessions that were not away before have no part in the rate that this one is compared
        // with, nor has bulk.
        let is_counted = entry.has(mark::AGGREGATE) && entry.rate_when_hot() < FLOOR;
        let bytes = if is_counted { bytes } else { 0 };
        let next =
            net.with_pump(self, |pump| pump.aggregate().map(|all| all.count_kernel(now(), bytes)));
        match next.unwrap_or(Next::Leave) {
            Next::Leave => {
                entry.let_go(ReasonT::Slower);
                true
            }
            Next::Stay => false,
            Next::Slower => {
                if entry.kept_for() != Some(ReasonT::Slower) {
                    entry.note_kept(ReasonT::Slower);
                    self.tell_kept(fd, entry, NotifyWhen::Now);
                }
                // The answer holds for seconds, so it is not asked for at each threshold.
                entry.wait_for(HELD_FOR);
                false
            }
        }
    }
}
