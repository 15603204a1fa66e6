//! `cargo xtask programs`: runs real programs plain and under Sojourn, and writes the table in
//! `docs/use/programs.md`.
//!
//! This module installs the programs. The second line of each script in `tests/system/programs/`
//! names the packages it needs (`#: deb=nginx,curl pip=pyzmq npm=ws go=MODULE@VERSION made=smol`).
//! Debian packages are installed as for every other step; packages of PyPI and npm and modules of
//! Go go into the folder `target/programs`. What `made` names is built once, by the script of that
//! name in `tests/system/programs/made/`. Not here: running and comparing
//! (`tests/system/src/programs.rs`).

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
    /// Modules of Go, with their versions.
    go: BTreeSet<String>,
    /// Programs that are built from source.
    made: BTreeSet<String>,
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
                "go" => &mut self.go,
                "made" => &mut self.made,
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

    /// Adds what the programs need that are built from source.
    fn add_made(&mut self) -> Result<()> {
        for name in self.made.clone() {
            let script = format!("{SCRIPTS}/made/{name}.sh");
            self.add(&std::fs::read_to_string(&script).context(script)?);
        }
        Ok(())
    }

    fn install(&self) -> Result<()> {
        let debian: Vec<&str> = self.debian.iter().map(String::as_str).collect();
        ensure(&debian)?;
        std::fs::create_dir_all(TOOLS)?;
        self.install_python()?;
        self.install_node()?;
        self.install_go()?;
        self.made.iter().try_for_each(|name| make(name))
    }

    fn install_python(&self) -> Result<()> {
        if self.pip.is_empty() {
            return Ok(());
        }
        let python = format!("{TOOLS}/python");
        if !Path::new(&python).exists() {
            run("python3 -m venv", &mut command(&["/usr/bin/python3", "-m", "venv", &python]))?;
        }
        let pip = format!("{python}/bin/pip");
        let mut words = vec![pip.as_str(), "-q", "--disable-pip-version-check", "install"];
        words.extend(self.pip.iter().map(String::as_str));
        run("pip install", &mut command(&words))
    }

    fn install_node(&self) -> Result<()> {
        if self.npm.is_empty() {
            return Ok(());
        }
        if command(&["npm", "--version"]).output().is_err() {
            ensure(&["npm"])?;
        }
        let folder = format!("{TOOLS}/node");
        let mut words = vec!["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund"];
        words.push("--silent");
        words.extend(self.npm.iter().map(String::as_str));
        run("npm install", &mut command(&words))
    }

    /// Fetches modules for Debian's Go into a module whose `go.mod` and `go.sum` scripts copy.
    fn install_go(&self) -> Result<()> {
        if self.go.is_empty() {
            return Ok(());
        }
        let tools = std::fs::canonicalize(TOOLS)?;
        let folder = tools.join("go-client");
        std::fs::create_dir_all(&folder)?;
        let go = |words: &[&str]| {
            let all = [&["/usr/bin/go"], words].concat();
            let mut command = command(&all);
            command.current_dir(&folder).env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
            command.env("GOMODCACHE", tools.join("go-modules"));
            run(&all.join(" "), &mut command)
        };
        if !folder.join("go.mod").exists() {
            go(&["mod", "init", "programs"])?;
        }
        let mut words = vec!["get"];
        words.extend(self.go.iter().map(String::as_str));
        go(&words)?;
        go(&["mod", "download"])
    }
}

/// Builds a program from source unless its script is the one that it was built by.
fn make(name: &str) -> Result<()> {
    let script = std::fs::canonicalize(format!("{SCRIPTS}/made/{name}.sh"))?;
    let made = std::fs::canonicalize(TOOLS)?.join("made");
    let (folder, recipe) = (made.join(format!("build-{name}")), made.join(format!("{name}.sh")));
    let text = std::fs::read(&script)?;
    if std::fs::read(&recipe).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let mut bash = command(&["bash"]);
    bash.arg(&script).current_dir(&folder).env("MADE", &made).stdout(std::process::Stdio::null());
    run(&format!("building {name}"), &mut bash)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(std::fs::write(&recipe, text)?)
}

/// Installs the packages, builds, and runs the scripts.
///
/// The table is written only if all scripts are run, because the table has a line for each.
pub(crate) fn programs(words: &[&str]) -> Result<()> {
    let only = names(words)?;
    ensure(TEST)?;
    let mut needs = Needs::of(&only)?;
    needs.add_made()?;
    needs.install()?;
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
        needs.add("# A thing.\n#: deb=a,b pip=c npm=d,e@npm:f go=g.h/i@v1 made=j limit=7\n");
        needs.add("# No program.\necho deb=x\n");
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(names(&needs.debian), "a b");
        assert_eq!((names(&needs.pip), names(&needs.npm)), ("c".into(), "d e@npm:f".into()));
        assert_eq!((names(&needs.go), names(&needs.made)), ("g.h/i@v1".into(), "j".into()));
    }

    #[test]
    fn only_some_are_run() {
        let words = ["--only", "redis", "--json", "x"];
        assert_eq!(names(&words).ok(), Some(vec!["redis"]));
        assert!(names(&["--only"]).is_err() && names(&["redis"]).is_err());
    }
}
