//! The configuration: one table of settings that flags, variables and the file share.
//!
//! A setting `move_after_calls` is the flag `--move-after-calls`, the variable
//! `SOJOURN_MOVE_AFTER_CALLS` and the key `move_after_calls` of the file; a flag wins over a
//! variable, a variable over the file. Whoever starts a program reads all three and hands the
//! result on as variables ([`Config::to_env`]); the preload library reads those alone
//! ([`Config::from_env`]). Not here: what the settings do; see `docs/understand/streams.md`. Read
//! `settings` first, the table; `environment` reads flags and variables, `file` the file; `select`
//! has the lists of ports, addresses and programs, `values` what all are read into.

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

pub use environment::misspelt;
pub use error::ConfigError;
#[cfg(feature = "file")]
pub use file::{default_paths, load, load_noting};
pub use select::{Addresses, Ports, Prefix, Programs};
pub use settings::{SETTINGS, Setting};
pub use values::{Config, Spin};
