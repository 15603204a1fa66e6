//! Processes and what they have open, from `/proc`.
//!
//! Only what we may see: other users' processes are passed over unless we are root. A process can end while we look; what
//! cannot be read then is not there. See proc(5).

use crate::beside::LIBRARY;
use sojourn_session::Config;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where the kernel tells of processes.
pub(crate) const PROC: &str = "/proc";

/// A kernel object that a descriptor stands for; for pipes, which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Object {
    /// By inode.
    Socket(u64),
    /// By inode.
    Pipe {
        /// Its number.
        inode: u64,
        /// The end that writes.
        writes: bool,
    },
}

impl Object {
    pub(super) fn inode(self) -> u64 {
        match self {
            Self::Socket(inode) | Self::Pipe { inode, .. } => inode,
        }
    }
}

/// A process that we may look into.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) program: String,
    /// The names by which `programs` may mean it; of a program under Sojourn only.
    pub(super) names: Vec<String>,
    /// Each once, in order.
    pub(super) objects: Vec<Object>,
    /// What is standard error and nothing else: that never moves.
    pub(super) errors: Option<Object>,
    /// It runs under Sojourn.
    pub(super) has_library: bool,
    /// What it was started with; of a program under Sojourn only.
    pub(super) config: Option<Config>,
    /// Its network name space, as the kernel names it.
    pub(super) network: String,
}

/// All processes.
pub(super) fn all(proc: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| process(proc, pid)).collect()
}

fn process(proc: &Path, pid: u32) -> Option<Process> {
    let directory = proc.join(pid.to_string());
    let (objects, errors) = objects(&directory)?;
    let has_library = has_library(&directory);
    let network = fs::read_link(directory.join("ns/net")).unwrap_or_default();
    let program = program(proc, pid)?;
    Some(Process {
        pid,
        uid: fs::metadata(&directory).ok()?.uid(),
        names: if has_library { names(&directory, &program) } else { Vec::new() },
        program,
        config: has_library.then(|| config(&directory)).flatten(),
        has_library,
        network: network.to_string_lossy().into_owned(),
        objects,
        errors,
    })
}

/// The configuration in a process's first environment, which is what its library goes by.
fn config(directory: &Path) -> Option<Config> {
    let environment = fs::read(directory.join("environ")).ok()?;
    let pairs = environment.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&pair[..at]), OsStr::from_bytes(&pair[at + 1..])))
    });
    Some(Config::from_env(pairs))
}

/// What a process is called: by its file, by the link that it was started by, and by ps(1). The library goes by the same.
fn names(directory: &Path, program: &str) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let file = fs::read_link(directory.join("exe")).ok();
    let line = fs::read(directory.join("cmdline")).unwrap_or_default();
    let link = line.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
    let names = [file.map(|file| text(file.as_os_str().as_bytes())), link.map(text)];
    names.into_iter().flatten().chain([program.to_owned()]).collect()
}

/// A process's name, as ps(1) shows it.
pub(super) fn program(proc: &Path, pid: u32) -> Option<String> {
    let name = fs::read(proc.join(pid.to_string()).join("comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

fn has_library(directory: &Path) -> bool {
    let maps = fs::read(directory.join("maps")).unwrap_or_default();
    let name = LIBRARY.as_bytes();
    // A library that was installed anew since is still the library.
    maps.split(|byte| *byte == b'\n').any(|line| {
        let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
        line.ends_with(name) && line.get(line.len() - name.len() - 1) == Some(&b'/')
    })
}

/// Each object once, in order, and what only standard error stands for.
fn objects(directory: &Path) -> Option<(Vec<Object>, Option<Object>)> {
    let (mut objects, mut errors) = (Vec::new(), None);
    for entry in fs::read_dir(directory.join("fd")).ok()?.filter_map(Result::ok) {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Some(target) = target.to_str() else { continue };
        let object = if let Some(inode) = number_in(target, "socket:[") {
            Some(Object::Socket(inode))
        } else if let Some(inode) = number_in(target, "pipe:[") {
            let info = directory.join("fdinfo").join(entry.file_name());
            writes(&info).map(|writes| Object::Pipe { inode, writes })
        } else {
            None
        };
        if entry.file_name() == "2" {
            errors = object;
        } else {
            objects.extend(object);
        }
    }
    let errors = errors.filter(|errors| !objects.contains(errors));
    objects.extend(errors);
    objects.sort_unstable();
    objects.dedup();
    Some((objects, errors))
}

fn number_in(text: &str, prefix: &str) -> Option<u64> {
    text.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok()
}

/// Whether a descriptor is the end that writes; none if it is both.
fn writes(info: &Path) -> Option<bool> {
    let text = fs::read_to_string(info).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    match u32::from_str_radix(flags.trim(), 8).ok()? & 3 {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Who has an object open.
pub(super) fn holders(processes: &[Process]) -> HashMap<Object, Vec<usize>> {
    let mut holders: HashMap<Object, Vec<usize>> = HashMap::new();
    for (index, process) in processes.iter().enumerate() {
        for object in &process.objects {
            holders.entry(*object).or_default().push(index);
        }
    }
    holders
}
