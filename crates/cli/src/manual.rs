//! Completions and manual pages, made from the definition of the command line.

use crate::args::Cli;
use crate::output::print;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use std::path::Path;

/// Prints completions.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sojourn", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes one page for the command and one for each of its commands.
pub(crate) fn pages(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .with_context(|| format!("{}: manual pages cannot be written", directory.display()))
}
