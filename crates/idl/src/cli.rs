//! What the command does with its arguments.

mod args;
mod generate;
mod show;
mod tools;

pub(crate) use args::Cli;

use anyhow::Result;
use args::Command;

/// Does what the arguments say. `Ok(false)`: mistakes have been reported.
///
/// # Errors
/// Failures of the system.
pub(crate) fn run(cli: Cli) -> Result<bool> {
    match cli.command {
        None if cli.generate.list_codes => tools::list_codes(),
        None => match &cli.generate.explain {
            Some(code) => tools::explain(code),
            None => generate::run(&cli.generate),
        },
        Some(Command::Fmt { files, check }) => tools::format(&files, check),
        Some(Command::Doc { file, reading, html, output }) => {
            tools::document(&file, &reading, html, output.as_deref())
        }
        Some(Command::Dump { file, reading, output }) => {
            tools::dump(&file, &reading, output.as_deref())
        }
        Some(Command::Check { file, reading, against: Some(against) }) => {
            tools::check(&file, &reading, &against)
        }
        Some(Command::Check { file, reading, against: None }) => tools::list(&file, &reading),
        Some(Command::Completions { shell }) => tools::completions(shell),
        Some(Command::Man) => tools::man(),
    }
}
