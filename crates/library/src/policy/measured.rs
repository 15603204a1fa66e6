//! Sessions on one host that get on better in the kernel: who measures, and what is done about it.
//!
//! The decision is `progress`'s. Away, the end that has woken its peer a few times looks at the
//! clock once and at how far the rings are; that end sends the session home for a trial. In the
//! kernel its calls are counted as for any descriptor, and each time a threshold is reached is a
//! sample, too ([`Library::may_move_again`]). Only sessions that have had a trial are remembered.
//! Sessions with other hosts: `bulk`.

use crate::fds::table::{FdEntry, mark};
use crate::host::lock::lock;
use crate::process::deferred::Telling;
use crate::process::library::Library;
use crate::process::library::library;
use crate::session::Session;
use crate::session::directions::TxPhase;
use crate::session::progress::{Away, Figures, Next, Past};
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;
use sojourn_shm::deadline::now_ns;
use sojourn_stream::Stream;

/// So many times the peer is woken between two samples.
pub(crate) const RINGS: u32 = 32;

impl Library {
    /// A descriptor that has had a trial has reached a threshold, after so many bytes. Whether it
    /// may be offered.
    pub(crate) fn may_move_again(&self, fd: i32, entry: &FdEntry, bytes: u64) -> bool {
        self.may_move_at(now_ns(), fd, entry, bytes)
    }

    pub(crate) fn may_move_at(&self, now_ns: u64, fd: i32, entry: &FdEntry, bytes: u64) -> bool {
        let Some(engine) = self.engine() else { return true };
        let version = entry.version.load(Ordering::SeqCst);
        let next = match lock(&engine.measured).of_mut(fd, version) {
            Some(past) => past.count(now_ns, bytes),
            None => Next::Leave,
        };
        match next {
            Next::Stay => false,
            Next::Slower => {
                entry.note_kept(ReasonT::Slower);
                self.tell_kept(fd, entry, Telling::Now);
                false
            }
            Next::Leave => {
                entry.let_go(ReasonT::Slower);
                true
            }
        }
    }

    /// Who watches a session while it is away.
    pub(crate) fn watches(&self, fd: i32, entry: &FdEntry) -> Away {
        if !self.policy.config().measure_bulk {
            return Away::default();
        }
        let version = entry.version.load(Ordering::SeqCst);
        let measured = self.engine().map(|engine| lock(&engine.measured));
        match measured.as_ref().and_then(|all| all.of(fd, version)) {
            Some(past) => past.away(),
            None => Past::new().away(),
        }
    }

    /// What its last trial has found, of a descriptor that is kept for that reason.
    pub(crate) fn figures(&self, fd: i32, reason: ReasonT) -> Figures {
        let engine = self.engine().filter(|_| reason == ReasonT::Slower);
        let found = engine.and_then(|engine| Some(lock(&engine.measured).last(fd)?.figures()));
        found.unwrap_or_default()
    }

    fn remember_trial(&self, fd: i32, entry: &FdEntry, now_ns: u64, rate: u64) {
        let Some(engine) = self.engine() else { return };
        let version = entry.version.load(Ordering::SeqCst);
        lock(&engine.measured).of_or(fd, version, Past::new).goes_home(now_ns, rate);
        entry.mark(mark::MEASURED);
    }
}

impl Session {
    /// The peer has been woken a few times since this was last called: a sample, and home if it is
    /// time for a trial.
    #[cold]
    pub(crate) fn measure(&self, generation: u32) {
        let (now_ns, rate) = {
            let tx = lock(&self.tx);
            if self.generation.load(Ordering::Relaxed) != generation || tx.phase != TxPhase::Ring {
                return;
            }
            let Some(stream) = tx.stream.as_ref().filter(|stream| judges(stream)) else { return };
            let (sent, received) = stream.totals();
            let now_ns = now_ns();
            let rate = lock(&self.progress).sample(now_ns, sent.saturating_add(received));
            let Some(rate) = rate else { return };
            (now_ns, rate)
        };
        // Of one that is about to end, perhaps, nothing is to be learnt.
        if self.is_carried() || self.tx_kernel_event.load(Ordering::Relaxed) {
            return;
        }
        let library = library();
        // Whichever of its numbers the program uses in the kernel.
        let numbers = lock(&self.facts).numbers.clone();
        for fd in numbers {
            if let Some(entry) = library.table.known(fd) {
                library.remember_trial(fd, entry, now_ns, rate);
            }
        }
        self.leave(ReasonT::Trial, false);
    }
}

/// One end of a stream judges: that of side 0, if it hears the other at all, else the one that
/// sends.
fn judges(stream: &Stream) -> bool {
    stream.is_first() || stream.totals().1 == 0
}
