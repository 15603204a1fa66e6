//! Errors of reading settings, worded for the user.

use std::path::PathBuf;

/// Reason for which a setting could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The value of a flag is wrong.
    #[error("--{flag}: {cause}")]
    Flag {
        /// The flag without its leading dashes.
        flag: String,
        /// Description of the error.
        cause: String,
    },
    /// The value of an environment variable is wrong.
    #[error("{variable}: {cause}")]
    Variable {
        /// Name of the variable.
        variable: String,
        /// Description of the error.
        cause: String,
    },
    /// A line of the configuration file is wrong.
    #[error("{}:{line}: {key}{cause}", path.display(), key = if key.is_empty() { String::new() } else { format!("{key}: ") })]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// Key of the line; empty if the text is not valid TOML.
        key: String,
        /// Description of the error.
        cause: String,
    },
    /// The configuration file cannot be read.
    #[error("{}: cannot be read: {cause}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error message of the system.
        cause: String,
    },
}
