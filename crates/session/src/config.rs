//! Configuration: one table of settings, shared by flags, environment variables and the
//! configuration file.
//!
//! A setting `move_after_calls` is the flag `--move-after-calls`, the variable
//! `SOJOURN_MOVE_AFTER_CALLS` and the key `move_after_calls` of the file. A flag wins over a
//! variable, and a variable over the file. The starter of a program (`sojourn run`, the server)
//! reads all three and hands the result on as variables ([`Config::to_env`]). The preload library
//! reads only the variables ([`Config::from_env`]). Not here: the effect of the settings; see
//! `docs/understand/streams.md`. Read the table in `settings` first; `environment` reads flags and
//! variables, `file` reads the file, `select` has the lists of ports, addresses and programs, and
//! `values` the structure that holds the result.

mod environment;
mod error;
#[cfg(feature = "file")]
mod file;
mod names;
mod select;
mod settings;
#[cfg(test)]
mod tests;
mod values;

pub use environment::{NamedValue, Variable, misspelt};
pub use error::ConfigError;
#[cfg(feature = "file")]
pub use file::{Flag, default_paths, load, load_noting};
pub use select::{Addresses, Ports, Prefix, Programs};
pub use settings::{SETTINGS, Setting};
pub use values::{Config, Follow, Home, Load, Spin};
