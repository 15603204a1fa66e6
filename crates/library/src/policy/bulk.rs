//! Bulk transfers that do better in the kernel: what is remembered of them between their moves.
//!
//! The decision is `sojourn_pump::bulk`'s. Away, the pump samples and freezes the stream of a
//! session that is to go home; whoever sends it home then notes why ([`Session::reason_for`]). In
//! the kernel its calls are counted as for any descriptor, and each time a threshold is reached
//! that counts as a sample, too ([`Library::may_leave`]). Only sessions that went home for this are
//! remembered.

use crate::fds::table::{FdEntry, mark};
use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::Library;
use crate::session::Session;
use core::sync::atomic::Ordering;
use sojourn_pump::bulk::{History, Judge, Verdict};
use sojourn_pump::now;
use sojourn_session::ReasonT;

impl Library {
    /// A descriptor that has a history has reached a threshold, after so many bytes. Whether it may
    /// be offered.
    pub(crate) fn may_leave(&self, fd: i32, entry: &FdEntry, bytes: u64) -> bool {
        let Some(engine) = self.engine() else { return true };
        let version = entry.version.load(Ordering::SeqCst);
        match lock(&engine.bulk).of_mut(fd, version) {
            Some(history) => history.count(now(), bytes),
            None => true,
        }
    }
}

impl Session {
    /// Who watches it while it is away.
    pub(crate) fn judge(&self, engine: &Engine) -> Judge {
        let library = crate::process::library::library();
        if !library.policy.config().measure_bulk {
            return Judge::NONE;
        }
        let fd = self.number();
        let version = library.table.known(fd).map(|entry| entry.version.load(Ordering::SeqCst));
        match version.and_then(|version| lock(&engine.bulk).of(fd, version).map(History::judge)) {
            Some(judge) => judge,
            None => History::default().judge(),
        }
    }

    /// Why it goes home, if whoever sends it only knows that the stream is frozen.
    pub(crate) fn reason_for(&self, told: ReasonT) -> ReasonT {
        let library = crate::process::library::library();
        if told != ReasonT::PeerLeft || !self.is_delegated() {
            return told;
        }
        let verdict = library.net().and_then(|net| {
            net.with_pump(|pump| pump.session(self.slot()).and_then(|carried| carried.verdict()))
        });
        let Some(verdict) = verdict else { return told };
        if let Some(engine) = library.engine()
            && let Some(entry) = library.table.known(self.number())
        {
            remember(engine, self.number(), entry, verdict);
        }
        match verdict {
            Verdict::Slower => ReasonT::Slower,
            Verdict::Trial => ReasonT::Trial,
        }
    }
}

fn remember(engine: &Engine, fd: i32, entry: &FdEntry, verdict: Verdict) {
    let version = entry.version.load(Ordering::SeqCst);
    lock(&engine.bulk).of_or(fd, version, History::default).goes_home(now(), verdict);
    entry.mark(mark::REMEMBERED);
}
