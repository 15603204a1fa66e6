//! How the command ends when it cannot do what was asked: exit status and words.
//!
//! The statuses are documented in docs/use/cli.md and in the manual; `run` follows env(1).

use std::ffi::c_int;

/// A command could not do what was asked.
pub(crate) const FAILED: u8 = 1;
/// Wrong arguments.
pub(crate) const USAGE: u8 = 2;
/// `run`: Sojourn itself failed, wrong arguments included.
pub(crate) const RUN_FAILED: u8 = 125;
/// `run`: the program is there and cannot be run.
pub(crate) const RUN_NOT_EXECUTABLE: u8 = 126;
/// `run`: there is no such program.
pub(crate) const RUN_NOT_FOUND: u8 = 127;

/// An error and the exit status it gives.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) status: u8,
    /// What, why, and what to do.
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// With an exit status.
    pub(crate) fn new(status: u8, error: anyhow::Error) -> Self {
        Self { status, error }
    }

    /// Wrong arguments.
    pub(crate) fn usage(error: anyhow::Error) -> Self {
        Self::new(USAGE, error)
    }

    /// Says it and answers the exit status.
    pub(crate) fn report(&self) -> c_int {
        crate::output::note(&format!("{:#}", self.error));
        self.status.into()
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(FAILED, error)
    }
}
