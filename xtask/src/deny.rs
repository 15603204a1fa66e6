//! The check of licences, sources and advisories of all dependencies.
//!
//! `deny.toml` has the rules. Licences and sources are checked here, from `cargo metadata`, so that
//! the check needs no other tool. cargo-deny checks advisories; the step prints a message if that
//! is skipped. Not here: dependencies between the workspace's crates (`layers`).

use crate::steps::{self, cargo, command, output};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;

const RULES: &str = "deny.toml";
/// Folder of the advisories that cargo-deny has fetched, below cargo's folder in the user's home.
const ADVISORIES: &str = "advisory-dbs";

/// The allowed licences and registries of `deny.toml`.
struct Rules {
    licences: Vec<String>,
    registries: Vec<String>,
}

/// Fails with every dependency that `deny.toml` does not allow.
pub(crate) fn check() -> Result<()> {
    let text = std::fs::read_to_string(RULES).context(RULES)?;
    let rules = read_rules(&text)?;
    let wrong: Vec<String> =
        packages()?.iter().flat_map(|package| wrongs(package, &rules)).collect();
    if !wrong.is_empty() {
        bail!("{} dependencies are not allowed by {RULES}:\n{}", wrong.len(), wrong.join("\n"));
    }
    advisories()
}

/// Returns every package that is built on this platform, including the workspace's own.
fn packages() -> Result<Vec<Value>> {
    // Without a platform cargo needs the sources of packages for other platforms too.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words =
        ["metadata", "--locked", "--format-version", "1", "--filter-platform", platform.as_str()];
    let metadata: Value = serde_json::from_str(&output(&mut cargo(&words))?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    Ok(packages.clone())
}

/// Reads the lists of `deny.toml` that are checked here.
fn read_rules(text: &str) -> Result<Rules> {
    let table: toml::Table = text.parse().context(RULES)?;
    let list = |section: &str, key: &str| -> Result<Vec<String>> {
        let values = table.get(section).and_then(|section| section.get(key));
        let values = values.and_then(toml::Value::as_array);
        let values = values.with_context(|| format!("{RULES}: no list {section}.{key}"))?;
        Ok(values.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
    };
    Ok(Rules {
        licences: list("licenses", "allow")?,
        registries: list("sources", "allow-registry")?,
    })
}

/// Returns the violations of one package.
fn wrongs(package: &Value, rules: &Rules) -> Vec<String> {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let name = format!("{} {}", text("name"), text("version"));
    let mut wrong = Vec::new();
    if !is_allowed(text("license"), &rules.licences) {
        wrong.push(format!("{name}: licence `{}`", text("license")));
    }
    // Packages of the workspace have no source.
    if let Some(source) = package["source"].as_str() {
        let registry = source.strip_prefix("registry+");
        if !registry.is_some_and(|registry| rules.registries.iter().any(|one| one == registry)) {
            wrong.push(format!("{name}: source `{source}`"));
        }
    }
    wrong
}

/// Returns true if an SPDX expression can be satisfied with the allowed licences only.
///
/// `AND` binds closer than `OR`; the old form `MIT/Apache-2.0` means `OR`. An expression that this
/// parser does not understand is not allowed.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let is_met = any(&mut words, allowed);
    words.is_empty() && is_met
}

fn any(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    let mut is_met = all(words, allowed);
    while words.last() == Some(&"OR") {
        words.pop();
        is_met |= all(words, allowed);
    }
    is_met
}

fn all(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    let mut is_met = one(words, allowed);
    while words.last() == Some(&"AND") {
        words.pop();
        is_met &= one(words, allowed);
    }
    is_met
}

fn one(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    match words.pop() {
        Some("(") => any(words, allowed) & (words.pop() == Some(")")),
        Some(name) => {
            let mut licence = name.to_owned();
            if words.last() == Some(&"WITH") {
                words.pop();
                licence = format!("{name} WITH {}", words.pop().unwrap_or_default());
            }
            allowed.contains(&licence)
        }
        None => false,
    }
}

/// Checks for known vulnerabilities, if cargo-deny and its fetched data are there.
fn advisories() -> Result<()> {
    let is_there = output(&mut command(&["cargo", "deny", "--version"])).is_ok();
    let home = std::env::var_os("CARGO_HOME").map(std::path::PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let has_data = home.is_some_and(|home: std::path::PathBuf| has_entries(&home.join(ADVISORIES)));
    if !is_there || !has_data {
        let (what, next) = if is_there {
            ("no advisories were fetched", "cargo deny fetch")
        } else {
            ("cargo-deny is not installed", "cargo install cargo-deny && cargo deny fetch")
        };
        eprintln!("   advisories: skipped, {what}; to have them checked: {next}");
        return Ok(());
    }
    let words = ["cargo", "deny", "check", "--disable-fetch", "advisories"];
    steps::run("advisories", &mut command(&words))
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let text = "[licenses]\nallow = ['MIT', 'Apache-2.0 WITH LLVM-exception', 'Unicode-3.0']\n\
                    [sources]\nallow-registry = ['https://index']\n";
        read_rules(text).unwrap()
    }

    #[test]
    fn an_expression_is_met_with_allowed_licences_only() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("MIT/GPL-3.0-only", true),
            ("MIT AND GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT AND Unicode-3.0", true),
            ("(GPL-3.0-only OR MIT) AND Unicode-3.0", true),
            ("(MIT OR GPL-3.0-only) AND Zlib", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("", false),
            ("(MIT", false),
            ("MIT)", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(is_allowed(expression, &rules().licences), expected, "{expression}");
        }
    }

    #[test]
    fn a_package_of_another_source_or_licence_is_named() {
        let package = |licence: &str, source: Option<&str>| {
            serde_json::json!({
                "name": "a", "version": "1.0.0", "license": licence, "source": source,
            })
        };
        let found = |licence, source| wrongs(&package(licence, source), &rules());
        assert!(found("MIT", None).is_empty());
        assert!(found("MIT", Some("registry+https://index")).is_empty());
        assert_eq!(found("GPL-3.0-only", None), ["a 1.0.0: licence `GPL-3.0-only`"]);
        let source = "git+https://index";
        assert_eq!(found("MIT", Some(source)), [format!("a 1.0.0: source `{source}`")]);
    }
}
