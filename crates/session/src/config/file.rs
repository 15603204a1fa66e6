//! The configuration file: TOML, one key for each setting, no tables.
//!
//! Values may be text as on the command line, numbers, `true` and `false`, or lists of these. Only
//! the first file of [`default_paths`] that is there is read. Not here: what the values mean; see
//! `settings`.

use super::error::ConfigError;
use super::names::unknown;
use super::settings::{SETTINGS, Setting};
use super::values::Config;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};

/// Where the file may be, the first that is there counts: `$SOJOURN_CONFIG` alone if it is set,
/// else `$XDG_CONFIG_HOME/sojourn.toml` (`~/.config/sojourn.toml`), else `/etc/sojourn.toml`.
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

/// The configuration by flags, variables and file, in this order of precedence. `flags` are names
/// without dashes, and values.
///
/// # Errors
/// [`ConfigError`], the first.
pub fn load<'a>(
    flags: impl IntoIterator<Item = (&'a str, &'a str)>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Config, ConfigError> {
    load_noting(flags, variable, |_| {})
}

/// As [`load`], and tells `note` of files that may be there, in directories that cannot be
/// searched. They count as not there: a program that changes its user and keeps `HOME` would else
/// not run.
///
/// # Errors
/// [`ConfigError`], the first.
pub fn load_noting<'a>(
    flags: impl IntoIterator<Item = (&'a str, &'a str)>,
    variable: impl Fn(&str) -> Option<OsString>,
    mut note: impl FnMut(ConfigError),
) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    let is_named = variable("SOJOURN_CONFIG").is_some_and(|path| !path.is_empty());
    for path in default_paths(&variable) {
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                config.apply_file(&path, &text)?;
                break;
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !is_named => {}
            Err(error) => {
                // The directory, or the file itself?
                let is_there = is_named || path.symlink_metadata().is_ok();
                let error = ConfigError::Read { path, cause: error.to_string() };
                if is_there {
                    return Err(error);
                }
                note(error);
            }
        }
    }
    let names = SETTINGS.iter().map(Setting::variable);
    config
        .apply_env(names.filter_map(|name| Some((variable(&name)?, name))).map(|(v, n)| (n, v)))?;
    for (flag, value) in flags {
        config.apply_flag(flag, value)?;
    }
    Ok(config)
}

impl Config {
    /// Takes what a file says; `path` is for errors.
    ///
    /// # Errors
    /// [`ConfigError::File`], the first.
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
        // In the order of the table, as everywhere.
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

/// Any text is an address and a number or a truth value becomes text, so these must be told apart
/// here.
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

/// A value as it would be written on the command line.
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
