//! Placeholder until the back end is merged.

use crate::backend::{Options, Output};
use crate::ir::Module;

/// Generates the files of `module` that `options` asks for.
#[must_use]
pub fn generate(_module: &Module, _options: &Options) -> Vec<Output> {
    Vec::new()
}
