//! Bulk transfers that do better in the kernel: what is remembered of them between their moves.
//!
//! The decision is `sojourn_pump::bulk`'s. Away, the pump samples and freezes the stream of a
//! session that is to go home; whoever sends it home then notes why ([`Session::reason_for`]). In
//! the kernel its calls are counted as for any descriptor, and each time a threshold is reached
//! that counts as a sample, too ([`Library::may_leave`]). Only sessions that went home for this are
//! remembered.

use crate::session::{Session, lock};
use crate::table::{Entry, mark};
use crate::{Library, engine::Engine};
use core::sync::atomic::Ordering;
use sojourn_pump::bulk::{History, Judge, Verdict};
use sojourn_pump::now;
use sojourn_session::ReasonT;
use std::collections::HashMap;

/// More are not remembered: those that are closed are not taken out one by one.
const MOST: usize = 4096;

/// By descriptor number, with what the number was then.
pub(crate) type Histories = HashMap<i32, (u32, History)>;

impl Library {
    /// A descriptor that has a history has reached a threshold, after so many bytes. Whether it may
    /// be offered.
    pub(crate) fn may_leave(&self, fd: i32, entry: &Entry, bytes: u64) -> bool {
        let Some(engine) = self.engine() else { return true };
        let version = entry.version.load(Ordering::SeqCst);
        match lock(&engine.bulk).get_mut(&fd) {
            Some((known, history)) if *known == version => history.count(now(), bytes),
            _ => true,
        }
    }
}

impl Session {
    /// Who watches it while it is away.
    pub(crate) fn judge(&self, engine: &Engine) -> Judge {
        let library = crate::library();
        if !library.policy.config().measure_bulk {
            return Judge::NONE;
        }
        let fd = self.number();
        let version = library.table.known(fd).map(|entry| entry.version.load(Ordering::SeqCst));
        match lock(&engine.bulk).get(&fd) {
            Some((known, history)) if Some(*known) == version => history.judge(),
            _ => History::default().judge(),
        }
    }

    /// Why it goes home, if whoever sends it only knows that the stream is frozen.
    pub(crate) fn reason_for(&self, told: ReasonT) -> ReasonT {
        let library = crate::library();
        if told != ReasonT::PeerLeft || !self.is_lent() {
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

fn remember(engine: &Engine, fd: i32, entry: &Entry, verdict: Verdict) {
    let version = entry.version.load(Ordering::SeqCst);
    let mut all = lock(&engine.bulk);
    if all.len() >= MOST {
        all.clear();
    }
    let known = all.entry(fd).or_insert((version, History::default()));
    if known.0 != version {
        *known = (version, History::default());
    }
    known.1.goes_home(now(), verdict);
    entry.mark(mark::REMEMBERED);
}
