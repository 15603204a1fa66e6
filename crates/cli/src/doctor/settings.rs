//! The configuration in force, with the origin of each value.

use serde::Serialize;
use sojourn_session::config::{self, SETTINGS, Setting};
use sojourn_session::{Config, ConfigError};
use std::ffi::OsString;
use std::path::Path;

/// One setting.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Value {
    pub(super) setting: &'static str,
    /// The value as a flag of the command line has it.
    pub(super) value: String,
    /// `default`, a variable's name or a file's path.
    pub(super) from: String,
}

/// All settings of this process.
pub(super) fn in_force() -> Result<Vec<Value>, ConfigError> {
    values(|name| std::env::var_os(name))
}

fn values(variable: impl Fn(&str) -> Option<OsString>) -> Result<Vec<Value>, ConfigError> {
    let merged = config::load([], &variable)?;
    let file = config::default_paths(&variable).into_iter().find(|path| path.exists());
    let keys = file.as_deref().map(keys).unwrap_or_default();
    let has_key = |name: &str| keys.iter().any(|key| key == name);
    let from = |setting: &Setting| {
        let general = general_of(setting);
        let names = [Some(setting), general];
        let set = names.iter().flatten().find(|setting| variable(&setting.variable()).is_some());
        if let Some(setting) = set {
            return setting.variable();
        }
        let in_file = names.iter().flatten().any(|setting| has_key(setting.name));
        match (&file, in_file) {
            (Some(path), true) => path.display().to_string(),
            _ => "default".into(),
        }
    };
    let shown = |setting: &'static Setting| {
        let show: fn(&Config) -> String = setting.show?;
        Some(Value { setting: setting.name, value: show(&merged), from: from(setting) })
    };
    Ok(SETTINGS.iter().filter_map(shown).collect())
}

/// Returns the general setting that also sets this one, if there is one.
fn general_of(setting: &Setting) -> Option<&'static Setting> {
    let is_general =
        |other: &&Setting| other.show.is_none() && setting.name.starts_with(other.name);
    SETTINGS.iter().find(is_general)
}

/// Returns the keys of a configuration file. The file was read without an error, so it has no
/// tables and each key begins a line.
fn keys(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let key = |line: &str| {
        let (key, _) = line.split_once('=')?;
        Some(key.trim().trim_matches(['"', '\'']).to_owned())
    };
    text.lines().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::Scratch;

    #[test]
    fn each_value_says_where_it_comes_from() {
        let scratch = Scratch::new("settings");
        let path = scratch.path("sojourn.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "spin = \"never\"\nring_bytes = 8192\ntcp = true\n").unwrap();
        let values = values(|name| match name {
            "SOJOURN_CONFIG" => Some(path.clone().into()),
            "SOJOURN_SPIN" => Some("always".into()),
            "SOJOURN_PIPE" => Some("off".into()),
            _ => None,
        })
        .unwrap();
        let of = |name: &str| {
            let value = values.iter().find(|value| value.setting == name).unwrap();
            (value.value.as_str(), value.from.as_str())
        };
        let file = path.to_str().unwrap();
        assert_eq!(of("spin"), ("always", "SOJOURN_SPIN"));
        assert_eq!(of("pipe"), ("false", "SOJOURN_PIPE"));
        assert_eq!(of("ring_bytes_unix"), ("8192", file));
        assert_eq!(of("tcp"), ("true", file));
        assert_eq!(of("move_after_calls"), ("32", "default"));
    }
}
