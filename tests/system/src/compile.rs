//! The C programs of the tests (`c/`), which are compiled when a test needs them.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Compiles `sources`, files below `c/`, to `program` with the C compiler (`$CC`, or `cc`), `-O1`
/// and `options`.
///
/// # Errors
/// If there is no compiler, or the compilation fails.
pub fn compile(program: &Path, sources: &[&str], options: &[&str]) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    command.arg("-O1").args(options).arg("-o").arg(program);
    command.args(sources.iter().map(|file| folder.join(file)));
    match command.status().context("no C compiler")?.success() {
        true => Ok(()),
        false => bail!("{} does not compile", sources.join(", ")),
    }
}
