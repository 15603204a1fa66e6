//! Points in time a while after others.
//!
//! Not here: what time it is (`sojourn_pump::now`).

use sojourn_proto::time::Instant;

/// The point so many microseconds after `at`.
pub(crate) fn later(at: Instant, us: u64) -> Instant {
    Instant::from_micros(at.as_micros() + us)
}
