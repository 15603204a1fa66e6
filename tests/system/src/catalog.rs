//! The real programs of `programs/*.sh`, as the second line of each script declares them.
//!
//! `#: deb=redis-server,redis-tools pip=pyzmq npm=ws limit=60 load=on runs=redis-server`: the
//! packages to be installed, the seconds after which the script counts as hanging, settings that it
//! needs, and the programs that it is about. A third line `#= ...` says why nothing of it moves. A
//! script without a second line of this form is a part of the tests rather than a program. Not
//! here: installing (`xtask`), running (`programs`).

use crate::world::programs;
use anyhow::{Context, Result};
use std::time::Duration;

/// Time limit of a script that declares none, in seconds.
const LIMIT_S: u64 = 60;

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name of the script without its ending.
    pub name: String,
    /// The script's first line, which describes it.
    pub about: String,
    /// Time after which the script counts as hanging.
    pub limit: Duration,
    /// Settings that it needs under Sojourn: `LOAD` or `REWRITE`.
    pub settings: Vec<&'static str>,
    /// Names of the program files that it is about; empty: all that it starts.
    pub runs: Vec<String>,
    /// Why nothing of it moves, where no command can tell; empty if there is no such note.
    pub note: String,
}

/// Returns all scripts that declare their needs, ordered by name.
///
/// # Errors
/// If they cannot be read.
pub fn all() -> Result<Vec<Program>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(programs()).context("the folder of the scripts")? {
        let path = entry?.path();
        let is_script = path.extension().is_some_and(|ending| ending == "sh");
        if let (true, Some(name)) = (is_script, path.file_stem()) {
            let text = std::fs::read_to_string(&path)?;
            found.extend(parse(&name.to_string_lossy(), &text));
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn parse(name: &str, text: &str) -> Option<Program> {
    let mut lines = text.lines();
    let about = lines.next()?.strip_prefix("# ")?;
    let words: Vec<&str> = lines.next()?.strip_prefix("#: ")?.split(' ').collect();
    let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
    let limit = value("limit=").and_then(|value| value.parse().ok());
    let settings = [("load=on", "LOAD"), ("rewrite=on", "REWRITE")];
    Some(Program {
        name: name.into(),
        about: about.into(),
        limit: Duration::from_secs(limit.unwrap_or(LIMIT_S)),
        settings: settings
            .iter()
            .filter_map(|(word, setting)| words.contains(word).then_some(*setting))
            .collect(),
        runs: value("runs=")
            .map(|names| names.split(',').map(str::to_owned).collect())
            .unwrap_or_default(),
        note: lines.next().and_then(|line| line.strip_prefix("#= ")).unwrap_or_default().into(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_script_says_what_it_is() {
        let program = parse("x", "# What.\n#: deb=a,b limit=7\ntrue\n").unwrap();
        assert_eq!((program.about.as_str(), program.limit), ("What.", Duration::from_secs(7)));
        assert!(program.settings.is_empty() && program.runs.is_empty() && program.note.is_empty());
        let other = parse("x", "# What.\n#: pip=a load=on runs=a,b\n#= Why.\n").unwrap();
        assert_eq!(other.limit.as_secs(), LIMIT_S);
        assert_eq!((other.settings, other.note.as_str()), (vec!["LOAD"], "Why."));
        assert_eq!(other.runs, ["a", "b"]);
        assert_eq!(parse("prelude", "# What.\nset -u\n"), None);
    }

    #[test]
    fn there_are_forty_and_more() {
        let all = all().unwrap();
        assert!(all.len() >= 40, "{}", all.len());
    }
}
