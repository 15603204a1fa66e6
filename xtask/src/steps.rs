//! Running commands: the name and the duration of each are printed, and a failure names the
//! command.

use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;

/// Returns a command made of words, the first of which is the program.
pub(crate) fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Returns a Cargo command; Cargo is the one that runs this program.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words);
    command
}

/// Runs a command to its end, under the name `what` in the output.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("── {what}");
    let start = Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{what}: cannot run {program}"))?;
    if !status.success() {
        bail!("{what}: failed ({status})");
    }
    eprintln!("   {what}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
