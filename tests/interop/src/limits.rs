//! How these programs fail, and how long anything may take.

use std::time::Duration;

use sojourn_ipc::Deadline;

/// What ends these programs: a text for people.
pub type Failure = Box<dyn std::error::Error>;

/// No process of these tests lives longer, whatever goes wrong, in seconds.
pub const LIFE_S: u64 = 60;

/// No call takes longer.
#[must_use]
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}
