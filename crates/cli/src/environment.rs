//! The environment of a program that is run under Sojourn. Pure.
//!
//! The variables have the merged configuration of files, flags and variables, because the preload
//! library reads variables only.

use sojourn_session::Config;
use sojourn_session::config::SETTINGS;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

const PRELOAD: &str = "LD_PRELOAD";
/// Variables for the loader: the file that it loads, and a flag against messages about files that
/// it cannot load. The loader removes the first before the program starts.
pub(crate) const LOADED: &str = "SOJOURN_ABI_FILE";
pub(crate) const QUIET: &str = "SOJOURN_ABI_QUIET";

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: OsString,
    pub(crate) value: OsString,
}

/// Returns the variables of this process.
pub(crate) fn inherited() -> Vec<Variable> {
    std::env::vars_os().map(|(name, value)| Variable { name, value }).collect()
}

/// Returns `variables` with the library in front of other preloaded libraries, and with all
/// settings in force.
pub(crate) fn preloaded(
    variables: Vec<Variable>,
    library: &Path,
    config: &Config,
) -> Vec<Variable> {
    let settings: Vec<String> = SETTINGS.iter().map(|setting| setting.variable()).collect();
    let is_setting = |name: &OsStr| settings.iter().any(|setting| name == setting.as_str());
    let mut present = None;
    let mut result: Vec<_> = variables
        .into_iter()
        .filter(|Variable { name, value }| {
            if name == PRELOAD && present.is_none() {
                present = Some(value.clone());
            }
            name != PRELOAD && !is_setting(name)
        })
        .collect();
    let value = preload(library, present.as_deref());
    result.push(Variable { name: PRELOAD.into(), value });
    let settings = config.to_env().into_iter();
    result.extend(settings.map(|set| Variable { name: set.name.into(), value: set.value.into() }));
    result
}

/// Returns the value of `LD_PRELOAD`: Sojourn's library first and only once, also in nested
/// `sojourn run`.
fn preload(library: &Path, present: Option<&OsStr>) -> OsString {
    let ours = library.as_os_str().as_bytes();
    let mut list = ours.to_vec();
    let present = present.unwrap_or_default().as_bytes();
    let is_gap = |byte: &u8| matches!(byte, b' ' | b':');
    for other in present.split(is_gap).filter(|other| !other.is_empty() && *other != ours) {
        list.push(b':');
        list.extend(other);
    }
    OsString::from_vec(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)], config: &Config) -> Vec<(String, String)> {
        let variable = |(name, value): &(&str, &str)| {
            let (name, value) = (name.into(), value.into());
            Variable { name, value }
        };
        let result =
            preloaded(pairs.iter().map(variable).collect(), Path::new("/lib/ours.so"), config);
        let text = |text: OsString| text.into_string().unwrap();
        result.into_iter().map(|one| (text(one.name), text(one.value))).collect()
    }

    #[test]
    fn the_library_comes_first_and_once() {
        let preload = |value: &str| of(&[("LD_PRELOAD", value)], &Config::default())[0].1.clone();
        assert_eq!(preload(""), "/lib/ours.so");
        assert_eq!(preload("/a.so b.so"), "/lib/ours.so:/a.so:b.so");
        assert_eq!(preload("/a.so:/lib/ours.so"), "/lib/ours.so:/a.so");
    }

    #[test]
    fn settings_are_those_in_force_and_the_rest_stays() {
        let mut config = Config::default();
        config.apply_flag("move-after-calls", "3").unwrap();
        let pairs = [
            ("PATH", "/bin"),
            ("SOJOURN_PIPE", "off"),
            ("SOJOURN_RING_BYTES", "4k"),
            ("SOJOURN_CONFIG", "/x"),
            ("SOJOURN_OTHER", "y"),
        ];
        let found = of(&pairs, &config);
        let expected = [
            ("PATH", "/bin"),
            ("SOJOURN_CONFIG", "/x"),
            ("SOJOURN_OTHER", "y"),
            ("LD_PRELOAD", "/lib/ours.so"),
            ("SOJOURN_MOVE_AFTER_CALLS", "3"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
