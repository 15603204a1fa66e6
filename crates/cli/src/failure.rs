//! Errors that end the command: exit status and message.
//!
//! The statuses are documented in docs/use/cli.md and in the manual; `run` follows env(1).

use std::ffi::c_int;

/// A command failed.
pub(crate) const FAILED: u8 = 1;
/// Wrong arguments.
pub(crate) const USAGE: u8 = 2;
/// `run`: Sojourn itself failed, wrong arguments included.
pub(crate) const RUN_FAILED: u8 = 125;
/// `run`: the program's file exists and cannot be executed.
pub(crate) const RUN_NOT_EXECUTABLE: u8 = 126;
/// `run`: there is no such program.
pub(crate) const RUN_NOT_FOUND: u8 = 127;

/// An error with its exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) status: u8,
    /// The error with its causes and advice.
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// Makes a failure with an exit status.
    pub(crate) fn new(status: u8, error: anyhow::Error) -> Self {
        Self { status, error }
    }

    /// Wrong arguments: exit status [`USAGE`].
    pub(crate) fn usage(error: anyhow::Error) -> Self {
        Self::new(USAGE, error)
    }

    /// Prints the error and returns the exit status.
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
