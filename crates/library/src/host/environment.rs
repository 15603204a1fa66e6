//! The environment variables that configure the library, copied when the program starts.
//!
//! The library reads its configuration late, and by then some programs have cleared their
//! environment (nginx does so in its workers) or written over it (to change the name that they are
//! listed under). So the shell hands over the variables at the start, while they are untouched, and
//! only copies of these are interpreted later; a program without any costs nothing. The library
//! never looks at the environment itself: the program may be changing it at that moment, in another
//! thread or in the code that a handler interrupted. Not here: the meaning of the variables
//! (`policy::hot` reads them).

use sojourn_session::config::NamedValue;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The variable with the folder in which a user's server is, if `SOJOURN_SERVER` does not say.
const RUNTIME: &[u8] = b"XDG_RUNTIME_DIR";

/// The kept variables, as `NAME=VALUE` with a zero byte behind each.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    text: Vec<u8>,
}

impl Kept {
    /// Keeps those of `variables` (`NAME=VALUE`) that configure the library.
    pub(crate) fn of<'a>(variables: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut kept = Self::default();
        for variable in variables.filter(|variable| counts(variable)) {
            kept.text.extend_from_slice(variable);
            kept.text.push(0);
        }
        kept
    }

    /// Iterates over the variables, `NAME=VALUE` each.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &CStr> {
        let strings = self.text.split_inclusive(|byte| *byte == 0);
        strings.filter_map(|one| CStr::from_bytes_with_nul(one).ok())
    }

    /// Iterates over the variables by name and value.
    pub(crate) fn named_values(&self) -> impl Iterator<Item = NamedValue<'_>> {
        self.text.split(|byte| *byte == 0).filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&variable[..at], &variable[at + 1..]);
            Some(NamedValue { name: OsStr::from_bytes(name), value: OsStr::from_bytes(value) })
        })
    }

    /// Returns the user's runtime folder (`XDG_RUNTIME_DIR`), if it is set and not empty.
    pub(crate) fn runtime(&self) -> Option<PathBuf> {
        let is_it = |one: &NamedValue<'_>| one.name.as_bytes() == RUNTIME && !one.value.is_empty();
        self.named_values().find(is_it).map(|one| PathBuf::from(one.value))
    }
}

/// Returns true for a variable that configures the library. Inlined into the constructor of the
/// preload library, which must not touch the pages of this crate's code.
#[inline(always)]
pub(crate) fn counts(variable: &[u8]) -> bool {
    variable.starts_with(b"SOJOURN_")
        || variable.strip_prefix(RUNTIME).is_some_and(|rest| rest.first() == Some(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(variables: &[&str]) -> Kept {
        Kept::of(variables.iter().map(|variable| variable.as_bytes()))
    }

    #[test]
    fn what_counts_is_kept_and_nothing_else() {
        let none = kept(&["PATH=/bin", "XDG_RUNTIME_DIRS=/x", "LD_PRELOAD=y"]);
        assert_eq!(none.named_values().count(), 0);
        let kept = kept(&["A=b", "SOJOURN_SERVER=/s=1", "SOJOURN_SPIN=", "XDG_RUNTIME_DIR=/run/7"]);
        let named = |name, value| NamedValue { name: OsStr::new(name), value: OsStr::new(value) };
        let all: Vec<_> = kept.named_values().collect();
        assert_eq!(all[..2], [named("SOJOURN_SERVER", "/s=1"), named("SOJOURN_SPIN", "")]);
        assert_eq!((all.len(), kept.runtime()), (3, Some(PathBuf::from("/run/7"))));
    }

    #[test]
    fn values_of_any_length_are_kept() {
        let long = format!("SOJOURN_PROGRAMS={}", "x".repeat(100_000));
        let kept = kept(&[&long, "SOJOURN_SPIN=never"]);
        let lengths: Vec<_> = kept.named_values().map(|one| one.value.len()).collect();
        assert_eq!(lengths, [100_000, 5]);
    }
}
