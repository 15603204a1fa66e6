//! Sessions on one host that do better in the kernel: the measuring, and the moves that follow.
//!
//! `session::progress` decides. While a session is away, the end that has woken its peer a few
//! times looks once at the clock and at the rings' positions; that end sends the session home for a
//! trial, or because it is used seldom. In the kernel the library counts the session's calls as
//! for any descriptor, and takes a sample each time a threshold is reached
//! ([`Library::may_move_again`]). Only sessions that have had a trial have a record.
//! Not here: sessions with other hosts (`bulk`).

use crate::fds::entry::{FdEntry, mark};
use crate::host::lock::lock;
use crate::process::deferred::NotifyWhen;
use crate::process::library::{Library, OwnSession};
use crate::process::thresholds::measures_pace;
use crate::session::directions::TxPhase;
use crate::session::identity::Generation;
use crate::session::progress::{Next, Rate, Sample, TrialHistory, TrialProgress, TrialRates};
use core::sync::atomic::Ordering;
use rustix::time::{ClockId, clock_gettime};
use sojourn_session::ReasonT;
use sojourn_shm::deadline::now_ns;
use sojourn_stream::{Stream, Traffic};

/// Wake-ups of the peer between two samples.
pub(crate) const RINGS: u32 = 8;

impl Library {
    /// Counts `bytes` of a descriptor that has had a trial and has reached a threshold; tells
    /// whether it may be offered.
    pub(crate) fn may_move_again(&self, fd: i32, entry: &FdEntry, bytes: u64) -> bool {
        self.may_move_at(now_ns(), fd, entry, bytes)
    }

    pub(crate) fn may_move_at(&self, now_ns: u64, fd: i32, entry: &FdEntry, bytes: u64) -> bool {
        let Some(engine) = self.engine() else { return true };
        let version = entry.version.load(Ordering::SeqCst);
        let next = match lock(&engine.measured).of_mut(fd, version) {
            Some(past) => past.count(now_ns, bytes, process_time_ns),
            None => Next::Leave,
        };
        match next {
            Next::Stay => false,
            Next::Slower => {
                entry.note_kept(ReasonT::Slower);
                self.tell_kept(fd, entry, NotifyWhen::Now);
                false
            }
            Next::Leave => {
                entry.let_go(ReasonT::Slower);
                true
            }
        }
    }

    /// Makes the watcher of a session that is about to be away.
    pub(crate) fn watches(&self, fd: i32, entry: &FdEntry) -> TrialProgress {
        if !self.policy.config().measure_bulk {
            return TrialProgress::default();
        }
        let version = entry.version.load(Ordering::SeqCst);
        let measured = self.engine().map(|engine| lock(&engine.measured));
        match measured.as_ref().and_then(|all| all.of(fd, version)) {
            Some(past) => past.away(),
            None => TrialHistory::new().away().after(entry.rate_when_hot()),
        }
    }

    /// Returns the rates of the last trial of a descriptor that is kept in the kernel for being
    /// slower.
    pub(crate) fn figures(&self, fd: i32, reason: ReasonT) -> TrialRates {
        let engine = self.engine().filter(|_| reason == ReasonT::Slower);
        let found = engine.and_then(|engine| Some(lock(&engine.measured).last(fd)?.figures()));
        found.unwrap_or_default()
    }

    fn remember_trial(&self, fd: i32, entry: &FdEntry, now_ns: u64, rate: Rate) {
        let Some(engine) = self.engine() else { return };
        let version = entry.version.load(Ordering::SeqCst);
        lock(&engine.measured).of_or(fd, version, TrialHistory::new).goes_home(now_ns, rate);
        entry.mark(mark::MEASURED);
    }
}

impl OwnSession<'_> {
    /// Takes a sample, after some more wake-ups of the peer, and sends the session home if a trial
    /// is due.
    #[cold]
    pub(crate) fn measure(self, generation: Generation) {
        let (now_ns, sample) = {
            let tx = lock(&self.tx);
            if !self.is_still(generation) || tx.phase != TxPhase::Ring {
                return;
            }
            let Some(local) = self.local() else { return };
            let Some(stream) = tx.stream.as_ref().filter(|stream| judges(stream)) else { return };
            let Traffic { sent, received } = stream.totals();
            let now_ns = now_ns();
            let total = sent.saturating_add(received);
            (now_ns, lock(&local.progress).sample(now_ns, total, process_time_ns))
        };
        // A pending kernel event may be the session's end, and such a trial would show nothing.
        if sample == Sample::Away || self.tx_kernel_event.load(Ordering::Relaxed) {
            return;
        }
        let library = self.library;
        let Sample::TrialDue(rate) = sample else {
            if measures_pace(library.policy.config()) {
                self.leave(ReasonT::NotHot, false);
            }
            return;
        };
        // The program may use any of the numbers in the kernel, so each gets the record.
        let numbers = lock(&self.facts).numbers.clone();
        for fd in numbers {
            if let Some(entry) = library.table.known(fd) {
                library.remember_trial(fd, entry, now_ns, rate);
            }
        }
        self.leave(ReasonT::Trial, false);
    }
}

/// Returns the processor time of the process in nanoseconds.
pub(crate) fn process_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns true if this end takes the samples. One end of a stream does: side 0, or, where bytes go
/// one way, the end that sends them.
fn judges(stream: &Stream) -> bool {
    stream.is_first() || stream.totals().received == 0
}
