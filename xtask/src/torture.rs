//! `cargo xtask torture`: builds the release programs and the torture program, and runs the latter.
//!
//! Not here: the disturbances of sessions (`tests/system/src/torture`), and the arguments
//! (`tests/system/src/bin/torture.rs`).

use crate::packages::{TEST, ensure};
use crate::steps::{cargo, run};
use anyhow::Result;

/// Builds everything, and runs the torture program with the given arguments.
pub(crate) fn torture(words: &[&str]) -> Result<()> {
    ensure(TEST)?;
    crate::build::everything()?;
    let mut all = vec!["run", "--release", "--quiet", "-p", "sojourn-system", "--bin", "torture"];
    all.push("--");
    all.extend(words);
    run("torture", &mut cargo(&all))
}
