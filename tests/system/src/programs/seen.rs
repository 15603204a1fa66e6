//! What can be seen of a script's programs and sessions while it runs.
//!
//! Programs are found in `/proc`: their files tell the class, their mappings the door by which
//! their calls come to the library. The server tells which sessions are away, `sojourn ss` why
//! others are not. A program that ends between two looks is not seen.

use crate::Admin;
use sojourn_abi::elf::Image;
use sojourn_lab::Sandbox;
use sojourn_session::KindT;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(15);
/// Bytes at the beginning of a program's file that tell its class.
const FIRST: usize = 4096;
/// Programs of the scripts themselves, which no row is about.
const HELPERS: [&str; 8] =
    ["bash", "dash", "sleep", "timeout", "env", "sojourn", "mkdir", "sha256sum"];
/// The loader, as its mappings and processes are named.
const LOADER: &str = "sojourn-abi";
const LIBRARY: &str = "libsojourn_preload.so";

/// The class of a program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Linked dynamically with the GNU C library.
    Glibc,
    /// Linked statically with the GNU C library.
    Static,
    /// Linked with musl, statically or dynamically.
    Musl,
    /// Made by Go's tool chain.
    Go,
}

impl Class {
    /// Returns the word for it in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Static => "static glibc",
            Self::Musl => "musl",
            Self::Go => "Go",
        }
    }

    /// Returns the class of a program whose file begins with `first`; `None` for scripts.
    #[must_use]
    pub fn of(first: &[u8]) -> Option<Self> {
        /// Header and name of the note with which the GNU C library's start-up code says what
        /// kernel it needs.
        const GNU_ABI: &[u8] = b"\x04\0\0\0\x10\0\0\0\x01\0\0\0GNU\0";
        let image = Image::read(first).ok()?;
        let has = |part: &[u8]| first.windows(part.len()).any(|bytes| bytes == part);
        if image.is_go {
            return Some(Self::Go);
        }
        match image.interpreter_in(first) {
            Some(path) if path.windows(8).any(|part| part == b"ld-linux") => Some(Self::Glibc),
            Some(_) => Some(Self::Musl),
            None if has(GNU_ABI) => Some(Self::Static),
            None => Some(Self::Musl),
        }
    }
}

/// What was seen of one run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Number of streams, by kind.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Classes of the programs.
    pub classes: BTreeSet<Class>,
    /// How the library came into them: `preload`, `loader`.
    pub doors: BTreeSet<&'static str>,
    /// Reasons of sessions that are in the kernel, with the number of sessions.
    pub reasons: BTreeMap<String, usize>,
}

/// What to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing, so that nothing disturbs the time.
    Away,
    /// Programs and sessions that are away.
    Programs,
    /// Reasons as well, which takes a process for each look.
    Reasons,
}

/// Looks until `is_over`. `runs` are the names of the programs that count; empty: all but the
/// script's helpers.
#[must_use]
pub fn watch(sandbox: &Sandbox, look: Look, runs: &[String], is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut streams = HashMap::new();
    let mut reasons = HashMap::new();
    let mut processes = Processes::new(sandbox.folder(), runs);
    let mut admin = Admin::new(sandbox).ok();
    while look != Look::Away && !is_over.load(Ordering::SeqCst) {
        let away = admin.as_mut().and_then(|admin| admin.away().ok()).unwrap_or_default();
        streams.extend(away.into_iter().map(|session| (session.stream, session.kind)));
        processes.look(&mut seen);
        if look == Look::Reasons {
            in_kernel(sandbox, &processes, &mut reasons);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    for kind in streams.into_values() {
        *seen.kinds.entry(kind_word(kind)).or_default() += 1;
    }
    for reason in reasons.into_values() {
        *seen.reasons.entry(reason).or_default() += 1;
    }
    seen
}

fn kind_word(kind: KindT) -> &'static str {
    match kind {
        KindT::Tcp => "tcp",
        KindT::Unix => "unix",
        KindT::Pipe => "pipe",
        _ => "udp",
    }
}

/// Adds the reasons of the script's sessions that are in the kernel, by inode; the last one seen
/// counts. Sessions with this process, which reads the script's output, are left out.
fn in_kernel(sandbox: &Sandbox, processes: &Processes, reasons: &mut HashMap<String, String>) {
    let Ok(list) = sandbox.sessions() else { return };
    for session in list["sessions"].as_array().into_iter().flatten() {
        let is_output = session["peer_pid"].as_u64() == Some(std::process::id().into());
        let pid = session["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let is_counted = pid.is_some_and(|pid| processes.counted.contains(&pid));
        if let (Some(inode), Some(reason)) = (session["inode"].as_str(), session["reason"].as_str())
            && is_counted
            && !is_output
            && reason != "none"
        {
            reasons.insert(inode.into(), reason.into());
        }
    }
}

/// The processes of a sandbox that are known so far.
struct Processes<'a> {
    folder: String,
    runs: &'a [String],
    /// Processes of others.
    foreign: HashSet<u32>,
    /// Processes of the script's: the file that each runs, once its door is known.
    known: HashMap<u32, String>,
    /// Those of them that run programs that count.
    counted: HashSet<u32>,
}

impl<'a> Processes<'a> {
    fn new(folder: &Path, runs: &'a [String]) -> Self {
        let folder = folder.to_string_lossy().into_owned();
        let (foreign, known, counted) = (HashSet::new(), HashMap::new(), HashSet::new());
        Self { folder, runs, foreign, known, counted }
    }

    fn look(&mut self, seen: &mut Seen) {
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            if self.foreign.contains(&pid) {
                continue;
            }
            match self.known.contains_key(&pid).then_some(true).or_else(|| self.is_ours(pid)) {
                Some(true) => self.look_at(pid, seen),
                Some(false) => _ = self.foreign.insert(pid),
                None => {}
            }
        }
    }

    /// Returns `None` if nothing can be said: a process that is just being replaced by another
    /// program has no environment.
    fn is_ours(&self, pid: u32) -> Option<bool> {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        // The server has no such variable.
        let name = format!("SOJOURN_SERVER={}/", self.folder);
        let mut entries = environment.split(|byte| *byte == 0);
        let is_ours = entries.any(|entry| entry.starts_with(name.as_bytes()));
        (!environment.is_empty()).then_some(is_ours)
    }

    fn look_at(&mut self, pid: u32, seen: &mut Seen) {
        let Ok(file) = fs::read_link(format!("/proc/{pid}/exe")) else { return };
        let file = file.to_string_lossy().into_owned();
        if self.known.get(&pid) == Some(&file) {
            return;
        }
        let is_loaded = file.ends_with(LOADER);
        let name = if is_loaded { first_argument(pid) } else { file.clone() };
        let name = name.rsplit('/').next().unwrap_or_default();
        if !self.counts(name) {
            self.counted.remove(&pid);
            self.known.insert(pid, file);
            return;
        }
        self.counted.insert(pid);
        if !is_loaded {
            seen.classes.extend(class_of(&file));
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let door = match (is_loaded, maps.contains(LIBRARY)) {
            (true, _) => Some("loader"),
            (false, true) => Some("preload"),
            (false, false) => None,
        };
        // A process that has just begun has not all its mappings, so it is looked at again.
        if door.is_some() {
            self.known.insert(pid, file);
        }
        seen.doors.extend(door);
    }

    fn counts(&self, name: &str) -> bool {
        if self.runs.is_empty() {
            return !HELPERS.contains(&name);
        }
        self.runs.iter().any(|run| run == name)
    }
}

fn first_argument(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = words.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(first).into_owned()
}

fn class_of(file: &str) -> Option<Class> {
    use std::io::Read as _;
    let mut first = Vec::new();
    fs::File::open(file).ok()?.take(FIRST as u64).read_to_end(&mut first).ok()?;
    Class::of(&first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn this_program_is_of_the_c_library_and_a_script_of_none() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(class_of(&own.to_string_lossy()), Some(Class::Glibc));
        assert_eq!(Class::of(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn static_programs_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("sojourn-class-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let source = folder.join("x.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        for (compiler, class) in [("gcc", Class::Static), ("musl-gcc", Class::Musl)] {
            let program = folder.join(compiler);
            let made = std::process::Command::new(compiler)
                .args(["-static", "-o"])
                .arg(&program)
                .arg(&source)
                .status();
            assert!(made.unwrap().success());
            assert_eq!(class_of(&program.to_string_lossy()), Some(class));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
