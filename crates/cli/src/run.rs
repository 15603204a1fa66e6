//! `sojourn run`: executes a program with the preload library in it, by Sojourn's loader if need
//! be.
//!
//! If the program cannot be accelerated, one line on standard error says why and the program runs
//! plainly; if `strict` is set this is an error instead. The program inherits no descriptor, no
//! child and no changed signal.

use crate::environment::Variable;
use crate::failure::{Failure, RUN_FAILED, RUN_NOT_EXECUTABLE, RUN_NOT_FOUND};
use crate::inspect::{Interpreter, LoadMethod, Runner, inspect};
use crate::{args, beside, client, environment, launch, output, server};
use anyhow::anyhow;
use rustix::io::Errno;
use sojourn_ipc::Address;
use sojourn_session::config::Load;
use sojourn_session::place::Surroundings;
use sojourn_session::{Config, ConfigError, config};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A server that is started for a program ends after this time without clients (s).
const IDLE_EXIT_S: u32 = 60;

const NOT_LOADED: &str =
    "it makes its own system calls, as static programs, musl's and Go's do, and `load` is off";

/// Executes the program; returns only on failure.
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
    let file = launch::find_here(name)?;
    let start = match accelerated(&file, config) {
        Ok(acceleration) => acceleration.start(&file, options),
        Err(NotAccelerated { cause, is_strict: true }) => {
            let name = name.to_string_lossy();
            return Err(failed(
                cause.context(format!("{name} cannot be accelerated (strict is set)")),
            ));
        }
        Err(NotAccelerated { cause, is_strict: false }) => {
            if !options.quiet {
                let name = name.to_string_lossy();
                output::note(&format!("{name} runs without acceleration: {}", one_line(&cause)));
            }
            let variables = environment::inherited();
            Start { file: file.clone(), words: options.command.clone(), variables }
        }
    };
    become_or_fail(&file, start)
}

/// A program to execute: its file, its arguments and its environment.
struct Start {
    file: PathBuf,
    words: Vec<OsString>,
    variables: Vec<Variable>,
}

/// The parts that accelerate a program: the library, the configuration with a server that answers,
/// and the loader if the program makes its own system calls.
struct Acceleration {
    library: PathBuf,
    config: Config,
    loader: Option<PathBuf>,
    /// A script's interpreter, which is to be loaded.
    interpreter: Option<Interpreter>,
}

impl Acceleration {
    fn start(self, file: &Path, options: &args::Run) -> Start {
        let mut variables =
            environment::preloaded(environment::inherited(), &self.library, &self.config);
        let mut words = options.command.clone();
        let Some(loader) = self.loader else {
            return Start { file: file.into(), words, variables };
        };
        let mut loaded = file.to_owned();
        if let Some(Interpreter { file: interpreter, argument }) = self.interpreter {
            // As in the kernel, the script's path takes the place of its name among the arguments.
            let before = [Some(interpreter.clone().into()), argument].into_iter().flatten();
            words = before.chain([file.into()]).chain(words.into_iter().skip(1)).collect();
            loaded = interpreter;
        }
        variables.push(Variable { name: environment::LOADED.into(), value: loaded.into() });
        if options.quiet {
            variables.push(Variable { name: environment::QUIET.into(), value: "on".into() });
        }
        Start { file: loader, words, variables }
    }
}

/// The reason why a program is not accelerated. If `is_strict` it does not run at all.
struct NotAccelerated {
    cause: anyhow::Error,
    is_strict: bool,
}

fn accelerated(file: &Path, mut config: Config) -> Result<Acceleration, NotAccelerated> {
    let is_strict = config.strict;
    config.server = absolute(config.server);
    let obstructed = |cause| NotAccelerated { cause, is_strict };
    let way = inspect(file, Runner::this()).map_err(|obstacle| obstructed(obstacle.into()))?;
    let library = beside::library().map_err(|error| obstructed(error.into()))?;
    let (loader, interpreter) = match way {
        LoadMethod::Preload => (None, None),
        LoadMethod::Load(_) if config.load == Load::Off => {
            return Err(obstructed(anyhow!(NOT_LOADED)));
        }
        LoadMethod::Load(interpreter) => {
            let loader = beside::loader(&library).map_err(|error| obstructed(error.into()))?;
            (Some(loader), interpreter)
        }
    };
    let reached = server::ensure(&config.server, IDLE_EXIT_S).map_err(obstructed)?;
    if let Some(elsewhere) = reached {
        config.server = elsewhere;
    }
    // Only `strict` needs the answer now. Otherwise the library finds out itself, because the check
    // of the version takes longer than a connection attempt.
    if is_strict {
        speaks_with_us(&config).map_err(obstructed)?;
    }
    Ok(Acceleration { library, config, loader, interpreter })
}

/// Checks that the server that answers takes programs of this version.
fn speaks_with_us(config: &Config) -> anyhow::Result<()> {
    client::speaks_with_programs(&Surroundings::of_this_process(&config.server).for_client()?)
}

/// Makes an address absolute, so that it holds in programs with another working directory.
fn absolute(address: String) -> String {
    match Address::parse(&address) {
        Ok(Address::Path(path)) => {
            std::path::absolute(path).map_or(address, |path| path.to_string_lossy().into_owned())
        }
        _ => address,
    }
}

fn become_or_fail(file: &Path, start: Start) -> Result<u8, Failure> {
    let refused = launch::become_program(&start.file, &start.words, &start.variables)
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
