//! What the starter left in the environment, kept from the program's start on.
//!
//! The configuration is read late, by then some programs have cleared their environment (nginx does so in its workers)
//! or written over it (to change how they are called). So the shell hands over the variables that count while they are
//! untouched. They are copied, not read: no allocation, and nothing at all in a program that has none. Read `hot` for who reads them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes kept. What has no room is looked for in the environment as it is later.
const ROOM: usize = 2048;
/// Where a user's server is when nothing else is said.
const RUNTIME: &[u8] = b"XDG_RUNTIME_DIR";

/// Variables, as `NAME=VALUE` and a zero byte each.
#[derive(Debug)]
pub(crate) struct Kept {
    text: [u8; ROOM],
    len: usize,
}

impl Kept {
    /// Those of `variables` (`NAME=VALUE`) that count; `None` if there are none.
    pub(crate) fn of<'a>(variables: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut kept: Option<Self> = None;
        for variable in variables.filter(|variable| counts(variable)) {
            let kept = kept.get_or_insert(Self { text: [0; ROOM], len: 0 });
            let end = kept.len + variable.len();
            if end < ROOM {
                kept.text[kept.len..end].copy_from_slice(variable);
                // The zero byte after it is there already.
                kept.len = end + 1;
            }
        }
        kept
    }

    /// Names and values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.text[..self.len].split(|byte| *byte == 0).filter_map(|variable| {
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

    /// These, and after them, to be overruled by them, those of the environment as it is now.
    pub(crate) fn over_those_of_now(&self) -> Vec<(OsString, OsString)> {
        let kept = self.pairs().map(|(name, value)| (name.to_owned(), value.to_owned()));
        std::env::vars_os().chain(kept).collect()
    }
}

fn counts(variable: &[u8]) -> bool {
    variable.starts_with(b"SOJOURN_")
        || variable.strip_prefix(RUNTIME).is_some_and(|rest| rest.first() == Some(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(variables: &[&str]) -> Option<Kept> {
        Kept::of(variables.iter().map(|variable| variable.as_bytes()))
    }

    #[test]
    fn what_counts_is_kept_and_nothing_else() {
        assert!(kept(&["PATH=/bin", "XDG_RUNTIME_DIRS=/x", "LD_PRELOAD=y"]).is_none());
        let kept = kept(&["A=b", "SOJOURN_SERVER=/s=1", "SOJOURN_SPIN=", "XDG_RUNTIME_DIR=/run/7"]);
        let kept = kept.unwrap();
        let pairs: Vec<_> = kept.pairs().collect();
        assert_eq!(pairs[0], (OsStr::new("SOJOURN_SERVER"), OsStr::new("/s=1")));
        assert_eq!(pairs[1], (OsStr::new("SOJOURN_SPIN"), OsStr::new("")));
        assert_eq!((pairs.len(), kept.runtime()), (3, Some(PathBuf::from("/run/7"))));
    }

    #[test]
    fn what_has_no_room_is_left_out_whole() {
        let long = format!("SOJOURN_SERVER={}", "x".repeat(ROOM));
        let kept = kept(&[&long, "SOJOURN_SPIN=never"]).unwrap();
        let names: Vec<_> = kept.pairs().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(names, ["SOJOURN_SPIN"]);
    }

    #[test]
    fn the_start_overrules_what_the_program_set_since() {
        let all = kept(&["SOJOURN_SPIN=never"]).unwrap().over_those_of_now();
        assert_eq!(all.last().unwrap().1, "never");
    }
}
