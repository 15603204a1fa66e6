//! Reading settings from flags and environment variables, and writing them as variables.
//!
//! Not here: the file (`file`), and the syntax of a value (`settings`).

use super::error::ConfigError;
use super::names::{nearest_setting, unknown};
use super::settings::{PREFIX, SETTINGS, Setting};
use super::values::Config;
use std::ffi::{OsStr, OsString};

/// An environment variable, as a program finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedValue<'a> {
    /// The variable's name.
    pub name: &'a OsStr,
    /// Its value.
    pub value: &'a OsStr,
}

/// An environment variable with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The variable's name.
    pub name: String,
    /// The setting's value, as `Config::from_env` reads it.
    pub value: String,
}

impl Config {
    /// Returns the configuration in the variables that the starter of this program has left in its
    /// environment.
    ///
    /// A variable that cannot be read counts as not set: the starter has reported it to its user,
    /// and this program must run on. Each variable is looked at once; of several with one name the
    /// last counts.
    pub fn from_env<'a>(variables: impl IntoIterator<Item = NamedValue<'a>>) -> Self {
        let mut found = [None; SETTINGS.len()];
        for NamedValue { name, value } in variables {
            let Some(rest) = name.as_encoded_bytes().strip_prefix(PREFIX.as_bytes()) else {
                continue;
            };
            let is_it = |setting: &Setting| setting.name.as_bytes().eq_ignore_ascii_case(rest);
            let is_upper = !rest.iter().any(u8::is_ascii_lowercase);
            if let Some(at) = SETTINGS.iter().position(is_it).filter(|_| is_upper) {
                found[at] = value.to_str();
            }
        }
        let mut config = Self::default();
        // In the order of the table a general setting comes before the special ones, which win.
        for (setting, value) in SETTINGS.iter().zip(found) {
            if let Some(value) = value {
                let _ = (setting.read)(&mut config, value);
            }
        }
        config
    }

    /// Applies the settings in the variables; `variable` returns the value of one.
    ///
    /// # Errors
    /// [`ConfigError::Variable`] for the first variable that cannot be read. All other variables
    /// are applied nevertheless.
    pub fn apply_env(
        &mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), ConfigError> {
        let mut first = Ok(());
        // The order is that of `from_env`.
        for setting in SETTINGS {
            let Some(value) = variable(&setting.variable()) else { continue };
            let read = match value.to_str() {
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

    /// Returns the variables of the settings that differ from their defaults.
    ///
    /// [`Config::from_env`] makes an equal configuration of them.
    #[must_use]
    pub fn to_env(&self) -> Vec<Variable> {
        let default = Self::default();
        let mut variables = Vec::new();
        for setting in SETTINGS {
            let Some(show) = setting.show else { continue };
            let value = show(self);
            if value != show(&default) {
                variables.push(Variable { name: setting.variable(), value });
            }
        }
        variables
    }
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
