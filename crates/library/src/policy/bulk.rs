//! Bulk transfers with other hosts that do better in the kernel, between their moves.
//!
//! `sojourn_pump::bulk` decides. While a session is away the pump samples it, and freezes the
//! stream if the session is to go home; the thread that sends the session home then asks for the
//! reason ([`OwnSession::reason_for`]). In the kernel the library counts its calls as for any
//! descriptor, and takes a sample each time a threshold is reached ([`Library::may_leave`]). Only
//! sessions that went home for this have a record. Not here: sessions on one host (`measured`).

use crate::fds::entry::{FdEntry, mark};
use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::{Library, OwnSession};
use core::sync::atomic::Ordering;
use sojourn_pump::bulk::{History, Judge, Verdict};
use sojourn_pump::{Measurement, now};
use sojourn_session::ReasonT;
use sojourn_stream::Stream;

impl Library {
    /// Counts `bytes` of a descriptor that has a history and has reached a threshold; returns true
    /// if it may be offered.
    pub(crate) fn may_leave(&self, fd: i32, entry: &FdEntry, bytes: u64) -> bool {
        let Some(engine) = self.engine() else { return true };
        let version = entry.version.load(Ordering::SeqCst);
        match lock(&engine.bulk).of_mut(fd, version) {
            Some(history) => history.count(now(), bytes),
            None => true,
        }
    }
}

impl OwnSession<'_> {
    /// Makes the judge that watches the session while it is away.
    pub(crate) fn judge(self, engine: &Engine) -> Judge {
        let library = self.library;
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

    /// Returns the reason for going home of a session with another host, where the caller only
    /// knows that the stream is frozen: the carrier may have frozen it and told its reason, or the
    /// pump with a verdict.
    pub(crate) fn reason_for(self, told: ReasonT, stream: &Stream) -> ReasonT {
        let library = self.library;
        if told != ReasonT::PeerLeft {
            return told;
        }
        if let Some(reason) = ReasonT::from_number(stream.ledger().reason()) {
            return reason;
        }
        if !self.is_delegated() {
            return told;
        }
        let measurement = library.net().and_then(|net| {
            net.with_pump(library, |pump| {
                pump.session(self.pump_number()).and_then(|carried| carried.sent_home_by())
            })
        });
        let verdict = match measurement {
            None => return told,
            Some(Measurement::Aggregate) => {
                if let Some(entry) = library.table.known(self.number()) {
                    entry.mark(mark::AGGREGATE);
                }
                return ReasonT::Trial;
            }
            Some(Measurement::Own(verdict)) => verdict,
        };
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
