//! `sojourn`: runs programs under Sojourn and shows the state of their sessions.
//!
//! The command asks the session server through the generated client of `idl/session.idl` and uses
//! no internals of server or library. It reads `/proc`, as ss(8) does, for sessions that the server
//! does not know.
//!
//! `args` is the command line, `run` the most important command, `sessions` the source of the
//! lists. The manual for users is docs/use/cli.md; read docs/understand/streams.md first.

#![allow(
    unsafe_code,
    reason = "execve, signals of a capture, and what happens between fork and exec of the server"
)]

mod args;
#[cfg(test)]
mod args_tests;
mod beside;
mod capture;
mod client;
mod created;
mod doctor;
mod environment;
mod failure;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod inspect;
mod launch;
mod living_thread;
mod manage;
mod manual;
mod moving;
mod output;
mod run;
mod search;
mod server;
mod sessions;
mod signals;
mod ss;
mod stats;
mod terminal;
mod time;
mod top;

use args::{Cli, Command};
use clap::{CommandFactory as _, FromArgMatches as _};
use failure::Failure;
use std::ffi::{OsString, c_int};

/// Runs the command line `words`, which begins with the program's name. Returns the exit status.
pub fn main(words: &[OsString]) -> c_int {
    let matches = match Cli::command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return args::report(&error, words),
    };
    let done = Cli::from_arg_matches(&matches)
        .map_err(|error| Failure::usage(error.into()))
        .and_then(|cli| dispatch(cli.command));
    match done {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}

/// Runs a command and returns the exit status. `run` returns only on failure.
fn dispatch(command: Command) -> Result<u8, Failure> {
    let done = match command {
        Command::Run(options) => return run::run(&options),
        Command::Ss(options) => ss::ss(&options),
        Command::Stats(options) => stats::stats(&options),
        Command::Move(options) => moving::move_session(&options),
        Command::Top(options) => top::top(&options),
        Command::Capture(options) => capture::capture(&options),
        Command::Time(options) => return time::time(&options),
        Command::Doctor(options) => return Ok(doctor::doctor(&options)?),
        Command::Server(action) => return Ok(manage::server(&action)?),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { directory } => manual::pages(&directory),
    };
    done?;
    Ok(0)
}
