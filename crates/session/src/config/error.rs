//! Why a setting could not be read, in words for the user.

use std::path::PathBuf;

/// Why a setting could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A flag's value.
    #[error("--{flag}: {cause}")]
    Flag {
        /// Without its dashes.
        flag: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A variable's value.
    #[error("{variable}: {cause}")]
    Variable {
        /// Its name.
        variable: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A line of the file.
    #[error("{}:{line}: {key}{cause}", path.display(), key = if key.is_empty() { String::new() } else { format!("{key}: ") })]
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The key; empty where the text is not even TOML.
        key: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The file itself.
    #[error("{}: cannot be read: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
}
