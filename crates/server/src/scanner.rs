//! The thread that counts holders, so that offers do not wait for each other's looks through
//! `/proc`.
//!
//! Questions that come during one look are answered by the next. Not here: the look itself
//! (`prober`, `holders`).

use crate::beat::Beat;
use crate::holders::Question;
use crate::jobs::Job;
use crate::prober::Prober;
use crate::service::Sojournd;
use std::sync::Weak;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// The longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Works until the server is gone.
pub(crate) fn work(jobs: &Receiver<Job>, server: &Weak<Sojournd>, prober: &Prober, beat: &Beat) {
    while let Ok(first) = jobs.recv() {
        let busy = beat.busy();
        let jobs: Vec<Job> = std::iter::once(first).chain(jobs.try_iter()).collect();
        let questions: Vec<Question> = jobs.iter().map(|job| job.question).collect();
        let begun = Instant::now();
        let verdicts = prober.find_holders(&questions);
        let took = begun.elapsed();
        let Some(server) = server.upgrade() else { return };
        server.counted(&jobs, &verdicts);
        drop(server);
        drop(busy);
        // At most half of a processor, however many offers clients make; questions that come
        // meanwhile share the next look.
        std::thread::sleep(took.min(PAUSE_MAX));
    }
}
