//! Configuration file: TOML with one key for each setting and no tables.
//!
//! A value is text as on the command line, a number, `true` or `false`, or a list of these. Only
//! the first existing file of [`default_paths`] is read. Not here: the meaning of the values; see
//! `settings`.

use super::error::ConfigError;
use super::names::unknown;
use super::settings::{SETTINGS, Setting};
use super::values::Config;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};

/// The longest file that is read (bytes).
const LEN_MAX: u64 = 1 << 20;

/// A setting as it stands on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag<'a> {
    /// The setting's name, written with `-` or `_`, without leading dashes.
    pub name: &'a str,
    /// The setting's value.
    pub value: &'a str,
}

/// Returns the paths at which the configuration file may be, most important first.
///
/// They are `$SOJOURN_CONFIG` alone if that variable is set, else `$XDG_CONFIG_HOME/sojourn.toml`
/// (by default `~/.config/sojourn.toml`) and `/etc/sojourn.toml`.
#[must_use]
pub fn default_paths(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let filled = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = filled("SOJOURN_CONFIG") {
        return vec![path];
    }
    let home = filled("XDG_CONFIG_HOME").or_else(|| Some(filled("HOME")?.join(".config")));
    let users = home.map(|directory| directory.join("sojourn.toml"));
    users.into_iter().chain([PathBuf::from("/etc/sojourn.toml")]).collect()
}

/// Reads the configuration from flags, variables and file, in this order of precedence.
///
/// # Errors
/// The first [`ConfigError`].
pub fn load<'a>(
    flags: impl IntoIterator<Item = Flag<'a>>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Config, ConfigError> {
    load_noting(flags, variable, |_| {})
}

/// Reads the configuration as [`load`] does, and calls `note` for each file in a directory that
/// cannot be searched.
///
/// Such a file counts as missing, although it may exist. Otherwise a program that changes its user
/// and keeps `HOME` would not run.
///
/// # Errors
/// The first [`ConfigError`].
pub fn load_noting<'a>(
    flags: impl IntoIterator<Item = Flag<'a>>,
    variable: impl Fn(&str) -> Option<OsString>,
    mut note: impl FnMut(ConfigError),
) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    let is_named = variable("SOJOURN_CONFIG").is_some_and(|path| !path.is_empty());
    for path in default_paths(&variable) {
        match read(&path, is_named) {
            Ok(text) => {
                config.apply_file(&path, &text)?;
                break;
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !is_named => {}
            Err(error) => {
                // If the directory cannot be searched, `lstat` fails as well; if only the file
                // cannot be read, `lstat` succeeds. A file that the user named counts as existing.
                let is_there = is_named || path.symlink_metadata().is_ok();
                let error = ConfigError::Read { path, cause: error.to_string() };
                if is_there {
                    return Err(error);
                }
                note(error);
            }
        }
    }
    config.apply_env(variable)?;
    for Flag { name, value } in flags {
        config.apply_flag(name, value)?;
    }
    Ok(config)
}

/// Reads a configuration file. Only one that the user named may be a pipe that has yet to be
/// written: root may have been left another user's `HOME`, where a pipe would be waited for.
fn read(path: &Path, is_named: bool) -> std::io::Result<String> {
    let flags = if is_named { 0 } else { OFlags::NONBLOCK.bits().cast_signed() };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut text = String::new();
    let len = file.take(LEN_MAX + 1).read_to_string(&mut text)?;
    match len as u64 > LEN_MAX {
        true => Err(std::io::Error::new(ErrorKind::FileTooLarge, "too long for a configuration")),
        false => Ok(text),
    }
}

impl Config {
    /// Applies the settings in the text of a file; `path` is only for errors.
    ///
    /// # Errors
    /// The first [`ConfigError::File`].
    pub fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let error = |offset: usize, key: &str, cause: String| ConfigError::File {
            path: path.into(),
            line: line_of(text, offset),
            key: key.into(),
            cause,
        };
        type Keys = BTreeMap<Spanned<String>, Spanned<Value>>;
        let keys: Keys = toml::from_str(text).map_err(|wrong| {
            error(wrong.span().map_or(0, |span| span.start), "", wrong.message().trim().into())
        })?;
        for key in keys.keys() {
            if Setting::named(key.as_ref()).is_none() {
                return Err(error(key.span().start, key.as_ref(), unknown(key.as_ref())));
            }
        }
        // The order is that of the table, in which general settings come before special ones.
        for setting in SETTINGS {
            let Some((key, value)) = keys.iter().find(|(key, _)| key.as_ref() == setting.name)
            else {
                continue;
            };
            is_of_its_type(setting, value.as_ref())
                .and_then(|()| as_text(value.as_ref()))
                .and_then(|value| (setting.read)(self, &value))
                .map_err(|cause| error(key.span().start, setting.name, cause))?;
        }
        Ok(())
    }
}

/// Checks that a value of the type ADDRESS is text in the file.
///
/// Any text is a valid address, so a number or truth value turned into text would be accepted.
fn is_of_its_type(setting: &Setting, value: &Value) -> Result<(), String> {
    match value {
        Value::String(_) => Ok(()),
        _ if setting.metavar != "ADDRESS" => Ok(()),
        other => Err(format!(
            "a value of type {} is no address: write a path or @name in quotation marks",
            other.type_str()
        )),
    }
}

/// Returns a value in the form that it has on the command line.
fn as_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Boolean(value) => Ok(value.to_string()),
        Value::Array(values) => {
            let parts: Result<Vec<_>, _> = values.iter().map(as_text).collect();
            Ok(parts?.join(","))
        }
        other => Err(format!("a {} is no value for a setting", other.type_str())),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
