//! `cargo xtask fuzz`: runs one or all targets of `fuzz/`, from their corpora.
//!
//! New inputs are kept in `target/fuzz`. `--keep` minimises them and puts those that reach new code
//! into `fuzz/corpus`, which `tests/targets` runs on stable Rust. Without a nightly tool chain or
//! cargo-fuzz that test runs instead, for the same time. Not here: the targets.

use crate::steps::{cargo, command, run};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The manifest of the targets' workspace.
pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";
const CORPUS: &str = "fuzz/corpus";
const FOUND: &str = "target/fuzz";
/// Largest size of an input that is kept in the tree, in bytes; and largest number of a target's
/// inputs.
const KEPT_BYTES: u64 = 600;
const KEPT: usize = 40;
/// Duration of a run by default, in seconds.
const SECONDS: &str = "60";

/// Runs the command: `TARGET [SECONDS]`, `--all SECONDS`, or `--keep`.
pub(crate) fn fuzz(words: &[&str]) -> Result<()> {
    let targets = targets()?;
    let (chosen, seconds) = match words {
        ["--all", seconds] => (targets, *seconds),
        ["--keep"] => return keep(&targets),
        [target] | [target, _] if targets.iter().any(|one| one == target) => {
            (vec![(*target).to_owned()], words.get(1).copied().unwrap_or(SECONDS))
        }
        _ => {
            bail!("fuzz TARGET [SECONDS] | --all SECONDS | --keep; targets: {}", targets.join(" "))
        }
    };
    if !is_possible() {
        return instead(seconds);
    }
    for target in chosen {
        let limit = format!("-max_total_time={seconds}");
        let found = found(&target)?;
        let words = ["run", &target, &found, &format!("../{CORPUS}/{target}"), "--", &limit];
        fuzzer(&format!("fuzz {target}"), &words)?;
    }
    Ok(())
}

/// Returns the names of all targets.
fn targets() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(MANIFEST).context(MANIFEST)?;
    let manifest: toml::Value = toml::from_str(&text).context(MANIFEST)?;
    let bins = manifest["bin"].as_array().context("no targets")?;
    Ok(bins.iter().filter_map(|bin| Some(bin.get("name")?.as_str()?.to_owned())).collect())
}

/// Returns the folder of a target's new inputs.
fn found(target: &str) -> Result<String> {
    let folder = std::path::absolute(Path::new(FOUND).join(target))?;
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder.to_string_lossy().into_owned())
}

fn fuzzer(what: &str, words: &[&str]) -> Result<()> {
    let mut all = vec!["cargo", "+nightly", "fuzz"];
    all.extend(words);
    run(what, command(&all).current_dir("fuzz"))
}

/// Returns true if there is a nightly toolchain with cargo-fuzz; otherwise prints how to install
/// one.
fn is_possible() -> bool {
    let version = command(&["cargo", "+nightly", "fuzz", "--version"]).output();
    let is_possible = version.is_ok_and(|output| output.status.success());
    if !is_possible {
        eprintln!(
            "   fuzzing needs a nightly tool chain and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz"
        );
    }
    is_possible
}

/// Runs all targets with random changes of their corpora, on stable Rust.
fn instead(seconds: &str) -> Result<()> {
    eprintln!("   instead: all targets with random changes of their corpora, blindly");
    let mut test =
        cargo(&["test", "-p", "sojourn-targets", "--test", "corpora", "--", "--nocapture"]);
    run("targets", test.env("SOJOURN_TARGETS_SECONDS", seconds))
}

/// Replaces each corpus by the smallest set of inputs that reach the same code as all inputs
/// together; prefers short inputs.
fn keep(targets: &[String]) -> Result<()> {
    if !is_possible() {
        bail!("what is of use cannot be known without");
    }
    for target in targets {
        let merged = std::path::absolute(Path::new(FOUND).join(format!("{target}-merged")))?;
        if merged.exists() {
            std::fs::remove_dir_all(&merged)?;
        }
        std::fs::create_dir_all(&merged)?;
        let (into, found) = (merged.to_string_lossy().into_owned(), found(target)?);
        let corpus = format!("../{CORPUS}/{target}");
        let words = ["run", target, &into, &corpus, &found, "--", "-merge=1"];
        fuzzer(&format!("merge {target}"), &words)?;
        replace(&Path::new(CORPUS).join(target), &merged)?;
    }
    Ok(())
}

/// Replaces the files of a corpus by short files of another folder. Seeds that were written by hand
/// stay; their names are no hashes.
fn replace(corpus: &Path, merged: &Path) -> Result<()> {
    let by_len = |folder: &Path| -> Result<BTreeMap<(u64, PathBuf), ()>> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            files.insert((path.metadata()?.len(), path), ());
        }
        Ok(files)
    };
    let is_hash = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut seeds = Vec::new();
    for ((_, old), ()) in by_len(corpus)? {
        match is_hash(&old) {
            true => std::fs::remove_file(old)?,
            false => seeds.push(std::fs::read(old)?),
        }
    }
    let mut new = Vec::new();
    for ((len, path), ()) in by_len(merged)? {
        if len <= KEPT_BYTES && !seeds.contains(&std::fs::read(&path)?) {
            new.push(path);
        }
    }
    for path in spread(&new, KEPT.saturating_sub(seeds.len())) {
        std::fs::copy(path, corpus.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Chooses so many files from a list in the order of their lengths: from all of it, because each
/// reaches code that no shorter one does.
fn spread(files: &[PathBuf], count: usize) -> impl Iterator<Item = &PathBuf> {
    let count = count.min(files.len());
    (0..count).map(move |at| &files[at * files.len() / count])
}
