//! The result of one check.

use serde::Serialize;

/// The state of a checked item. Later values are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Everything that Sojourn needs is there.
    Ok,
    /// Sojourn works, but less well or for less.
    Limited,
    /// Programs run without acceleration.
    Missing,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    /// The check's name, which is the same in all versions.
    pub(super) name: &'static str,
    pub(super) state: State,
    /// The finding, in words.
    pub(super) found: String,
    /// Advice for the user; empty if there is nothing to do.
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
