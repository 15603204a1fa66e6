//! One thing that was looked at, and how well it is.

use serde::Serialize;

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// Sojourn works, but less well or for less.
    Limited,
    /// Programs run without acceleration.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    /// The same for ever.
    pub(super) name: &'static str,
    pub(super) state: State,
    /// What was found.
    pub(super) found: String,
    /// What to do; empty if nothing.
    pub(super) advice: String,
}

impl Item {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), advice: String::new() }
    }

    pub(super) fn limited(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, state: State::Limited, found: found.into(), advice: advice.into() }
    }

    pub(super) fn missing(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, state: State::Missing, found: found.into(), advice: advice.into() }
    }
}
