//! Reading settings from flags and environment variables, and writing them as variables.
//!
//! Not here: the file (`file`), and the syntax of a value (`settings`).

use super::error::ConfigError;
use super::names::{nearest_setting, unknown};
use super::settings::{PREFIX, SETTINGS, Setting};
use super::values::Config;
use std::ffi::OsStr;

impl Config {
    /// Returns the configuration in the variables that the starter of this program has left in its
    /// environment.
    ///
    /// A variable that cannot be read counts as not set: the starter has reported it to its user,
    /// and this program must run on. Each variable is looked at once, and only values of settings
    /// are copied.
    pub fn from_env<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut config = Self::default();
        for (setting, value) in of_env(variables) {
            if let Some(value) = value {
                let _ = (setting.read)(&mut config, &value);
            }
        }
        config
    }

    /// Applies the settings in the variables.
    ///
    /// # Errors
    /// [`ConfigError::Variable`] for the first variable that cannot be read. All other variables
    /// are applied nevertheless.
    pub fn apply_env<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<(), ConfigError> {
        let mut first = Ok(());
        for (setting, value) in of_env(variables) {
            let read = match &value {
                Some(value) => (setting.read)(self, value),
                None => Err("not valid UTF-8".into()),
            };
            if let Err(cause) = read {
                let error = ConfigError::Variable { variable: setting.variable(), cause };
                first = first.and(Err(error));
            }
        }
        first
    }

    /// Applies one flag. `flag` is its name without the leading dashes, written with `-` or `_`.
    ///
    /// # Errors
    /// [`ConfigError::Flag`] if no such setting exists or the value cannot be read.
    pub fn apply_flag(&mut self, flag: &str, value: &str) -> Result<(), ConfigError> {
        let error = |cause| ConfigError::Flag { flag: flag.to_owned(), cause };
        let setting = Setting::named(&flag.replace('-', "_"))
            .ok_or_else(|| error(unknown(&flag.replace('-', "_"))))?;
        (setting.read)(self, value).map_err(error)
    }

    /// Returns the settings that differ from their defaults, as names and values of variables.
    ///
    /// [`Config::from_env`] makes an equal configuration of them.
    #[must_use]
    pub fn to_env(&self) -> Vec<(String, String)> {
        let default = Self::default();
        let mut pairs = Vec::new();
        for setting in SETTINGS {
            let Some(show) = setting.show else { continue };
            let value = show(self);
            if value != show(&default) {
                pairs.push((setting.variable(), value));
            }
        }
        pairs
    }
}

/// Returns the settings among variables, each with its value, or with `None` for a value that is
/// not valid UTF-8.
///
/// The order is that of the table, in which a general setting comes before the special ones. So a
/// special setting wins in whatever order the environment has the variables.
fn of_env<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    variables: impl IntoIterator<Item = (K, V)>,
) -> impl Iterator<Item = (&'static Setting, Option<String>)> {
    let mut found: [Option<Option<String>>; SETTINGS.len()] = [const { None }; SETTINGS.len()];
    for (name, value) in variables {
        let name = name.as_ref().as_encoded_bytes();
        let Some(rest) = name.strip_prefix(PREFIX.as_bytes()) else { continue };
        let is_it = |setting: &Setting| setting.name.as_bytes().eq_ignore_ascii_case(rest);
        let is_upper = !rest.iter().any(u8::is_ascii_lowercase);
        if let Some(at) = SETTINGS.iter().position(is_it).filter(|_| is_upper) {
            found[at] = Some(value.as_ref().to_str().map(str::to_owned));
        }
    }
    SETTINGS.iter().zip(found).filter_map(|(setting, value)| Some((setting, value?)))
}

/// Returns an error for each variable whose name is nearly that of a setting.
///
/// Without this report a misspelt variable would be ignored silently. A variable that resembles no
/// setting is not reported, because it may belong to another program.
pub fn misspelt<K: AsRef<OsStr>>(
    names: impl IntoIterator<Item = K>,
) -> impl Iterator<Item = ConfigError> {
    names.into_iter().filter_map(|variable| {
        let variable = variable.as_ref().to_str()?;
        let name = variable.strip_prefix(PREFIX)?;
        let meant = nearest_setting(&name.to_ascii_lowercase())?.variable();
        let cause = format!("there is no such setting; did you mean {meant}?");
        (meant != variable).then(|| ConfigError::Variable { variable: variable.into(), cause })
    })
}
