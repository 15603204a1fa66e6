//! Settings from flags and variables, and as variables.
//!
//! Not here: the file (`file`), and how a value is read (`settings`).

use super::error::ConfigError;
use super::names::{near, unknown};
use super::settings::{PREFIX, SETTINGS, Setting};
use super::values::Config;
use std::ffi::OsStr;

impl Config {
    /// The configuration that whoever started this program left in its environment. A variable that
    /// cannot be read counts as not set: the starter has told its user, and this program must run
    /// on. Looks at each variable once and allocates for lists and the server's address only.
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

    /// Takes what the variables say.
    ///
    /// # Errors
    /// The first variable that cannot be read, [`ConfigError::Variable`]; the others count.
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

    /// Takes one flag; `flag` without its dashes, with `-` or `_`.
    ///
    /// # Errors
    /// [`ConfigError::Flag`]: there is no such setting, or its value cannot be read.
    pub fn apply_flag(&mut self, flag: &str, value: &str) -> Result<(), ConfigError> {
        let error = |cause| ConfigError::Flag { flag: flag.to_owned(), cause };
        let setting = Setting::named(&flag.replace('-', "_"))
            .ok_or_else(|| error(unknown(&flag.replace('-', "_"))))?;
        (setting.read)(self, value).map_err(error)
    }

    /// The variables that say what differs from the defaults: with them [`Config::from_env`] gives
    /// the same.
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

/// The settings among variables, in the order of the table, so that a general setting comes before
/// the special ones whatever the order of the environment. `None`: not text.
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

/// What to tell the user of variables that are nearly settings: a name with a letter wrong counts
/// for nothing otherwise. Variables that are like none may be somebody else's.
pub fn misspelt<K: AsRef<OsStr>>(
    names: impl IntoIterator<Item = K>,
) -> impl Iterator<Item = ConfigError> {
    names.into_iter().filter_map(|variable| {
        let variable = variable.as_ref().to_str()?;
        let name = variable.strip_prefix(PREFIX)?;
        let meant = near(&name.to_ascii_lowercase())?.variable();
        let cause = format!("there is no such setting; did you mean {meant}?");
        (meant != variable).then(|| ConfigError::Variable { variable: variable.into(), cause })
    })
}
