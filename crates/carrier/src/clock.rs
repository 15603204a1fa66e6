//! Points in time after others.
//!
//! Not here: the current time (`sojourn_pump::now`).

use sojourn_proto::time::Instant;

/// Returns the point `us` microseconds after `at`.
pub(crate) fn later(at: Instant, us: u64) -> Instant {
    Instant::from_micros(at.as_micros() + us)
}
