//! Runs every fuzz target with the inputs of its corpus (`fuzz/corpus/TARGET`) and with inputs
//! mutated from these. The seed of the mutations is fixed, so every run is the same.
//!
//! `cargo xtask fuzz` fuzzes further with a nightly toolchain. With `SOJOURN_TARGETS_SECONDS=N`
//! this test runs each target for that long instead, with another seed each time.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_targets::{ALL, Target};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

/// Largest length of an input (bytes).
const LEN_MAX: usize = 4096;
/// Longest time for one input, after which the target counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// Pseudo-random generator splitmix64, for runs that can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns the inputs of a target's corpus, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = fuzz().join("corpus").join(name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Returns a mutated input: one of the corpus with changes, two joined, or random bytes.
fn mutate(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    match random.below(8) {
        0 => bytes = (0..random.below(200)).map(|_| random.next() as u8).collect(),
        1 => {
            let other = &corpus[random.below(corpus.len())];
            bytes.truncate(random.below(bytes.len() + 1));
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        _ => {}
    }
    for _ in 0..random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at + 1),
            3 => bytes.insert(at, [0, 1, 4, 16, 127, 128, 255][random.below(7)]),
            4 => drop(bytes.remove(at)),
            5 => {
                let word = [0u32, 1, u32::MAX, i32::MIN as u32, i32::MAX as u32];
                let word = word[random.below(5)].to_ne_bytes();
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            _ => {
                let piece = bytes[at..bytes.len().min(at + 1 + random.below(40))].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes.truncate(LEN_MAX);
    bytes
}

/// Starts a thread that ends the process if no target has begun an input for [`LIMIT`].
fn watchdog() -> Sender<&'static str> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut last = "nothing";
        loop {
            match receiver.recv_timeout(LIMIT) {
                Ok(name) => last = name,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("{last} hangs");
                    std::process::abort();
                }
            }
        }
    });
    sender
}

/// Guard of one run: prints the target's name and the input if the target panics.
struct RunGuard<'i>(&'static str, &'i [u8]);

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} panics with {:?}", self.0, self.1);
        }
    }
}

fn run(target: &Target, bytes: &[u8], alive: &Sender<&'static str>) {
    alive.send(target.name).unwrap();
    let _told = RunGuard(target.name, bytes);
    (target.run)(bytes);
}

#[test]
fn every_target_with_its_corpus_and_what_is_made_of_it() {
    let alive = watchdog();
    let seconds = std::env::var("SOJOURN_TARGETS_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().unwrap()).map(Duration::from_secs);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    for target in ALL {
        let corpus = corpus(target.name);
        assert!(!corpus.is_empty(), "{}: no corpus", target.name);
        corpus.iter().for_each(|bytes| run(target, bytes, &alive));
        let mut random = Random(if seconds.is_some() { now } else { 5 });
        let begun = Instant::now();
        let mut count = 0;
        while seconds.map_or(count < target.runs, |limit| begun.elapsed() < limit) {
            run(target, &mutate(&corpus, &mut random), &alive);
            count += 1;
        }
        println!("{}: {} of the corpus, {count} more", target.name, corpus.len());
    }
}

#[test]
fn fuzzing_knows_all_of_them() {
    let text = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let manifest: toml::Value = toml::from_str(&text).unwrap();
    let name = |bin: &toml::Value| bin["name"].as_str().unwrap().to_owned();
    let bins: BTreeSet<String> = manifest["bin"].as_array().unwrap().iter().map(name).collect();
    let ours: BTreeSet<String> = ALL.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(bins, ours);
    let description = manifest["package"]["description"].as_str().unwrap();
    for name in &ours {
        let file = fuzz().join("fuzz_targets").join(name).with_extension("rs");
        assert!(file.exists(), "{}", file.display());
        assert!(description.contains(name.as_str()), "the description lacks {name}");
    }
}
