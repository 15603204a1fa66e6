//! The rules of the host that could concern sessions, and what the administrator was told of them.
//!
//! Not here: the sessions that they concern (`firewalls`).

use crate::clock::later;
use sojourn_firewall::{Firewall, RESURVEY_US};
use sojourn_proto::time::Instant;

/// The packet filters and IPsec policies of the host.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) firewall: Firewall,
    /// The time of the next look at rules whose changes nobody reports.
    pub(crate) next_survey: Instant,
    /// The hook that the administrator was told of last.
    pub(crate) told: Option<String>,
}

impl Rules {
    pub(crate) fn new(at: Instant) -> Self {
        let next_survey = later(at, RESURVEY_US);
        Self { firewall: Firewall::new(), next_survey, told: None }
    }
}
