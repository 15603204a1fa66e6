//! `sojourn run`: becomes a program with the preload library in it.
//!
//! Whatever stands in the way of acceleration is one line on standard error and the plain program,
//! or an error if `strict` is set. Nothing is left behind in the program: no descriptor, no child,
//! no changed signal.

use crate::failure::{Failure, RUN_FAILED, RUN_NOT_EXECUTABLE, RUN_NOT_FOUND};
use crate::inspect::{Runner, inspect};
use crate::search::SearchError;
use crate::{args, beside, client, environment, launch, output, server};
use anyhow::anyhow;
use rustix::io::Errno;
use sojourn_ipc::Address;
use sojourn_session::place::Surroundings;
use sojourn_session::{Config, ConfigError, config};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A server started for a program ends when nobody has used it for so long (s).
const IDLE_EXIT_S: u32 = 60;

/// Becomes the program; comes back only if that failed.
pub(crate) fn run(options: &args::Run) -> Result<u8, Failure> {
    let failed = |error| Failure::new(RUN_FAILED, error);
    let note = |error: ConfigError| {
        if !options.quiet {
            output::note(&format!("{error}; going on without it"));
        }
    };
    for error in config::misspelt(std::env::vars_os().map(|(name, _)| name)) {
        if !options.quiet {
            output::note(&error.to_string());
        }
    }
    let config = config::load_noting(options.settings.flags(), |name| std::env::var_os(name), note)
        .map_err(|error| failed(error.into()))?;
    let Some(name) = options.command.first() else {
        return Err(failed(anyhow!("no program was named")));
    };
    let file = launch::find_here(name).map_err(|error| {
        let status = match error {
            SearchError::NotFound(_) => RUN_NOT_FOUND,
            SearchError::NotExecutable { .. } => RUN_NOT_EXECUTABLE,
        };
        Failure::new(status, error.into())
    })?;
    let variables = match accelerated(&file, config) {
        Ok((library, config)) => environment::preloaded(std::env::vars_os(), &library, &config),
        Err(Obstructed { cause, is_strict: true }) => {
            let name = name.to_string_lossy();
            return Err(failed(
                cause.context(format!("{name} cannot be accelerated (strict is set)")),
            ));
        }
        Err(Obstructed { cause, is_strict: false }) => {
            if !options.quiet {
                let name = name.to_string_lossy();
                output::note(&format!("{name} runs without acceleration: {}", one_line(&cause)));
            }
            std::env::vars_os().collect()
        }
    };
    become_or_fail(&file, &options.command, variables)
}

/// Why a program runs plainly, or not at all.
struct Obstructed {
    cause: anyhow::Error,
    is_strict: bool,
}

/// What is needed to accelerate the program: library, and the configuration with a server that
/// answers.
fn accelerated(file: &Path, mut config: Config) -> Result<(PathBuf, Config), Obstructed> {
    let is_strict = config.strict;
    config.server = absolute(config.server);
    let obstructed = |cause| Obstructed { cause, is_strict };
    inspect(file, Runner::this()).map_err(|obstacle| obstructed(obstacle.into()))?;
    let library = beside::library().map_err(|error| obstructed(error.into()))?;
    let reached = server::ensure(&config.server, IDLE_EXIT_S).map_err(obstructed)?;
    if let Some(elsewhere) = reached {
        config.server = elsewhere;
    }
    // Otherwise this is the library's to find out: it takes longer than to look whether anybody is
    // there.
    if is_strict {
        speaks_with_us(&config).map_err(obstructed)?;
    }
    Ok((library, config))
}

/// Whether the server that answers can do anything for the program.
fn speaks_with_us(config: &Config) -> anyhow::Result<()> {
    client::speaks_with_programs(&Surroundings::of_this_process(&config.server).for_client()?)
}

/// An address that means the same in programs with another working directory.
fn absolute(address: String) -> String {
    match Address::parse(&address) {
        Ok(Address::Path(path)) => {
            std::path::absolute(path).map_or(address, |path| path.to_string_lossy().into_owned())
        }
        _ => address,
    }
}

fn become_or_fail(
    file: &Path,
    words: &[OsString],
    variables: Vec<(OsString, OsString)>,
) -> Result<u8, Failure> {
    let refused = launch::become_program(file, words, variables)
        .map_err(|error| Failure::new(RUN_FAILED, error))?;
    let (status, hint) = match refused {
        Errno::NOENT => (RUN_NOT_FOUND, " (its interpreter or loader is missing)"),
        Errno::NOEXEC => {
            (RUN_NOT_EXECUTABLE, " (it is made for another machine, or broken: file(1) says more)")
        }
        _ => (RUN_NOT_EXECUTABLE, ""),
    };
    Err(Failure::new(status, anyhow!("{file:?}: cannot be run: {refused}{hint}")))
}

fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().collect::<Vec<_>>().join("; ")
}
