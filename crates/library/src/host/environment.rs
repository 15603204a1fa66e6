//! What the starter left in the environment, kept from the program's start on.
//!
//! The configuration is read late, by then some programs have cleared their environment (nginx does
//! so in its workers) or written over it (to change how they are called). So the shell hands over
//! the variables that count while they are untouched. They are copied, not read; nothing is done in
//! a program that has none. Later nobody looks at the environment: the program may be changing it
//! at that moment, in another thread or in what a handler interrupted. Read `hot` for who reads
//! them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where a user's server is when nothing else is said.
const RUNTIME: &[u8] = b"XDG_RUNTIME_DIR";

/// Variables, as `NAME=VALUE` and a zero byte each.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    text: Vec<u8>,
}

impl Kept {
    /// Those of `variables` (`NAME=VALUE`) that count.
    pub(crate) fn of<'a>(variables: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut kept = Self::default();
        for variable in variables.filter(|variable| counts(variable)) {
            kept.text.extend_from_slice(variable);
            kept.text.push(0);
        }
        kept
    }

    /// Names and values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.text.split(|byte| *byte == 0).filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            Some((OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..])))
        })
    }

    /// The user's directory for such things as servers' sockets.
    pub(crate) fn runtime(&self) -> Option<PathBuf> {
        let is_it =
            |(name, value): &(&OsStr, &OsStr)| name.as_bytes() == RUNTIME && !value.is_empty();
        self.pairs().find(is_it).map(|(_, value)| PathBuf::from(value))
    }
}

fn counts(variable: &[u8]) -> bool {
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
        assert_eq!(none.pairs().count(), 0);
        let kept = kept(&["A=b", "SOJOURN_SERVER=/s=1", "SOJOURN_SPIN=", "XDG_RUNTIME_DIR=/run/7"]);
        let pairs: Vec<_> = kept.pairs().collect();
        assert_eq!(pairs[0], (OsStr::new("SOJOURN_SERVER"), OsStr::new("/s=1")));
        assert_eq!(pairs[1], (OsStr::new("SOJOURN_SPIN"), OsStr::new("")));
        assert_eq!((pairs.len(), kept.runtime()), (3, Some(PathBuf::from("/run/7"))));
    }

    #[test]
    fn values_of_any_length_are_kept() {
        let long = format!("SOJOURN_PROGRAMS={}", "x".repeat(100_000));
        let kept = kept(&[&long, "SOJOURN_SPIN=never"]);
        let lengths: Vec<_> = kept.pairs().map(|(_, value)| value.len()).collect();
        assert_eq!(lengths, [100_000, 5]);
    }
}
