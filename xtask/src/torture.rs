//! `cargo xtask torture`: builds what ships and what tortures it, and runs that.
//!
//! Not here: what is done to sessions (`tests/system/src/torture`), and which words that takes
//! (`tests/system/src/bin/torture.rs`).

use crate::packages::{TEST, ensure};
use crate::steps::{cargo, run};
use anyhow::Result;

/// Passes the words on.
pub(crate) fn torture(words: &[&str]) -> Result<()> {
    ensure(TEST)?;
    crate::build::everything()?;
    let mut all = vec!["run", "--release", "--quiet", "-p", "sojourn-system", "--bin", "torture"];
    all.push("--");
    all.extend(words);
    run("torture", &mut cargo(&all))
}
