//! `cargo xtask programs`: runs real programs plain and under Sojourn, and writes the table in
//! `docs/use/programs.md`.
//!
//! This module installs the programs. The second line of each script in `tests/system/programs/`
//! names the packages it needs (`#: deb=nginx,curl pip=pyzmq npm=ws`). Debian packages are
//! installed as for every other step; packages of PyPI and npm go into the folder
//! `target/programs`. Not here: running and comparing (`tests/system/src/bin/programs.rs`).

use crate::packages::{TEST, ensure};
use crate::steps::{cargo, command, run};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;

const SCRIPTS: &str = "tests/system/programs";
const TOOLS: &str = "target/programs";
const TABLE: &str = "docs/use/programs.md";

/// Packages that scripts need.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    debian: BTreeSet<String>,
    pip: BTreeSet<String>,
    npm: BTreeSet<String>,
}

impl Needs {
    /// Adds the packages that a script's second line names. A script without such a line needs
    /// none.
    fn add(&mut self, text: &str) {
        let Some(line) = text.lines().nth(1).and_then(|line| line.strip_prefix("#: ")) else {
            return;
        };
        for word in line.split(' ') {
            let (kind, names) = word.split_once('=').unwrap_or((word, ""));
            let set = match kind {
                "deb" => &mut self.debian,
                "pip" => &mut self.pip,
                "npm" => &mut self.npm,
                _ => continue,
            };
            set.extend(names.split(',').map(str::to_owned));
        }
    }

    /// Returns the packages of the scripts with these names, or of all scripts if `only` is empty.
    fn of(only: &[&str]) -> Result<Self> {
        let mut needs = Self::default();
        for entry in std::fs::read_dir(SCRIPTS).context(SCRIPTS)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_script = path.extension().is_some_and(|ending| ending == "sh");
            if is_script && (only.is_empty() || only.contains(&name.as_str())) {
                needs.add(&std::fs::read_to_string(&path)?);
            }
        }
        Ok(needs)
    }

    fn install(&self) -> Result<()> {
        let debian: Vec<&str> = self.debian.iter().map(String::as_str).collect();
        ensure(&debian)?;
        std::fs::create_dir_all(TOOLS)?;
        if !self.pip.is_empty() {
            let python = format!("{TOOLS}/python");
            if !Path::new(&python).exists() {
                run("python3 -m venv", &mut command(&["/usr/bin/python3", "-m", "venv", &python]))?;
            }
            let pip = format!("{python}/bin/pip");
            let mut words = vec![pip.as_str(), "-q", "--disable-pip-version-check", "install"];
            words.extend(self.pip.iter().map(String::as_str));
            run("pip install", &mut command(&words))?;
        }
        if !self.npm.is_empty() {
            if command(&["npm", "--version"]).output().is_err() {
                ensure(&["npm"])?;
            }
            let folder = format!("{TOOLS}/node");
            let mut words = vec!["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund"];
            words.push("--silent");
            words.extend(self.npm.iter().map(String::as_str));
            run("npm install", &mut command(&words))?;
        }
        Ok(())
    }
}

/// Installs the packages, builds, and runs the scripts.
///
/// The table is written only if all scripts are run, because the table has a line for each.
pub(crate) fn programs(words: &[&str]) -> Result<()> {
    let only = names(words)?;
    ensure(TEST)?;
    Needs::of(&only)?.install()?;
    crate::build::everything()?;
    let mut all = vec!["run", "--release", "--quiet", "-p", "sojourn-system", "--bin", "programs"];
    all.push("--");
    all.extend(words);
    if only.is_empty() {
        all.extend(["--table", TABLE]);
    }
    run("programs", &mut cargo(&all))
}

/// Returns the names after `--only`; all words are passed on.
fn names<'a>(words: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut only = Vec::new();
    for pair in words.chunks(2) {
        match pair {
            ["--only", name] => only.push(*name),
            ["--json" | "--jobs", _] => {}
            other => {
                bail!("programs [--only NAME]... [--jobs N] [--json FILE]: not {}", other.join(" "))
            }
        }
    }
    Ok(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_say_what_they_need() {
        let mut needs = Needs::default();
        needs.add("# A thing.\n#: deb=a,b pip=c npm=d,e@npm:f limit=7\n");
        needs.add("# No program.\necho deb=x\n");
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(names(&needs.debian), "a b");
        assert_eq!((names(&needs.pip), names(&needs.npm)), ("c".into(), "d e@npm:f".into()));
    }

    #[test]
    fn only_some_are_run() {
        let words = ["--only", "redis", "--json", "x"];
        assert_eq!(names(&words).ok(), Some(vec!["redis"]));
        assert!(names(&["--only"]).is_err() && names(&["redis"]).is_err());
    }
}
