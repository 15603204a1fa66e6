//! The whole call by argument size: stubs that copy the argument into the message, stubs that refer to it (string item,
//! grant), and stubs inside one process. The paper's figure 5.

use anyhow::Result;
use serde::Serialize;

use super::Settings;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CallCell {
    /// How the argument travels.
    pub(crate) style: String,
    /// Its bytes.
    pub(crate) size: usize,
    /// Nanoseconds a call: median over rounds.
    pub(crate) ns: f64,
}

/// All styles by all sizes.
pub(super) fn measure(settings: &Settings) -> Result<Vec<CallCell>> {
    let _ = settings;
    Ok(Vec::new())
}

/// Bytes from which `reference_above(auto)` refers on this machine.
pub(super) fn reference_threshold() -> Option<usize> {
    None
}
