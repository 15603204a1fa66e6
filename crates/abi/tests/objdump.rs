//! Compares the sites found in real programs with the system calls that objdump finds.
//!
//! Each rewritten site must be a system call for objdump. Each system call of objdump's must be
//! found, even if it is left to the trap. `SOJOURN_ABI_PROGRAMS=1000` tests that many files instead
//! of a few; they are taken evenly from the folders of programs and libraries.

#![allow(clippy::unwrap_used, reason = "tests")]

use sojourn_abi::elf::Image;
use sojourn_abi::sites::{Found, Rewrite, Text, find};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of files that are tested by default.
const FEW: usize = 24;
const LARGEST: u64 = 64 << 20;

/// Addresses of system calls, and ranges of code.
type Disassembled = (BTreeSet<u64>, Vec<(u64, u64)>);

/// Disassembles a file with objdump. Returns the addresses of system calls, and the disassembled
/// ranges.
fn disassembled(file: &Path) -> Option<Disassembled> {
    let headers = Command::new("objdump").arg("-h").arg("-w").arg(file).output().ok()?;
    let ranges = String::from_utf8_lossy(&headers.stdout)
        .lines()
        .filter(|line| line.contains("CODE"))
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| u64::from_str_radix(words.get(at)?, 16).ok();
            Some((number(3)?, number(3)? + number(2)?))
        })
        .collect();
    let options = ["-d", "-w", "--no-show-raw-insn"];
    let listing = Command::new("objdump").args(options).arg(file).output().ok()?;
    let calls = String::from_utf8_lossy(&listing.stdout)
        .lines()
        .filter(|line| line.split('\t').nth(1).is_some_and(|text| text.trim() == "syscall"))
        .filter_map(|line| u64::from_str_radix(line.trim().split(':').next()?, 16).ok())
        .collect();
    Some((calls, ranges))
}

fn looked_at(file: &Path) -> Option<Vec<Found>> {
    let bytes = std::fs::read(file).ok()?;
    let image = Image::read(&bytes).ok()?;
    let executable = image.segments.iter().filter(|one| one.is_executable);
    let text = |one: &sojourn_abi::elf::Segment| {
        let start = one.offset as usize;
        let bytes = bytes.get(start..start + one.file_len as usize)?;
        Some(find(Text { address: one.address, bytes }))
    };
    executable.map(text).collect()
}

fn files() -> Vec<PathBuf> {
    let most = std::env::var("SOJOURN_ABI_PROGRAMS").ok().and_then(|most| most.parse().ok());
    let most = most.unwrap_or(FEW);
    let folders = ["/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu"];
    let mut all: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| std::fs::canonicalize(entry.ok()?.path()).ok())
        .filter(|path| std::fs::metadata(path).is_ok_and(|file| file.is_file()))
        .filter(|path| std::fs::metadata(path).is_ok_and(|file| file.len() < LARGEST))
        .filter(|path| std::fs::read(path).is_ok_and(|bytes| Image::read(&bytes).is_ok()))
        .collect();
    all.sort();
    all.dedup();
    let step = all.len().div_ceil(most).max(1);
    // These files have more sites than most.
    let known = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
    let known = known.iter().chain(&["/usr/local/go/bin/go", "/lib/ld-musl-x86_64.so.1"]);
    let known = known.map(PathBuf::from).filter(|path| path.exists());
    all.into_iter().step_by(step).chain(known).collect()
}

#[test]
fn sites_are_those_that_objdump_sees() {
    if Command::new("objdump").arg("--version").output().is_err() {
        eprintln!("skipped: no objdump");
        return;
    }
    let (files, next) = (files(), AtomicUsize::new(0));
    let compare_some = || {
        let mut counts = Counts::default();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            counts.compare(file);
        }
        counts
    };
    // On two threads: objdump takes most of the time.
    let [one, other] = std::thread::scope(|scope| {
        [scope.spawn(compare_some), scope.spawn(compare_some)].map(|half| half.join().unwrap())
    });
    let looked = one.looked + other.looked;
    let sure = one.rewritten + other.rewritten;
    let (left, seen) = (one.left + other.left, one.seen + other.seen);
    println!("{looked} files, objdump sees {seen} calls; {sure} are rewritten, {left} left");
    assert!(looked > 0 && sure > 0);
}

/// Numbers of files and of system calls.
#[derive(Default)]
struct Counts {
    /// Files that were compared.
    looked: usize,
    /// Calls that objdump sees.
    seen: usize,
    /// Sites that are rewritten.
    rewritten: usize,
    /// Sites that are left as they are.
    left: usize,
}

impl Counts {
    /// Compares the sites of a file with what objdump sees, if both can read it.
    fn compare(&mut self, file: &Path) {
        let Some(found) = looked_at(file) else { return };
        let Some((calls, ranges)) = disassembled(file) else { return };
        let is_covered = |at: u64| ranges.iter().any(|(start, end)| (*start..*end).contains(&at));
        let all: Vec<_> = found.iter().flat_map(|found| &found.sites).collect();
        for site in &all {
            let is_rewritten = site.rewrite != Rewrite::Unchanged;
            assert!(
                !is_rewritten || !is_covered(site.at) || calls.contains(&site.at),
                "{}: {:#x} is no system call for objdump",
                file.display(),
                site.at
            );
            *(if is_rewritten { &mut self.rewritten } else { &mut self.left }) += 1;
        }
        let ours: BTreeSet<u64> = all.iter().map(|site| site.at).collect();
        let missed: Vec<_> = calls.iter().filter(|at| !ours.contains(at)).collect();
        assert!(missed.is_empty(), "{}: {missed:#x?} were not found", file.display());
        self.looked += 1;
        self.seen += calls.len();
    }
}
