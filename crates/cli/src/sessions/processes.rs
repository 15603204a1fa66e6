//! Processes and their open sockets and pipes, from `/proc`.
//!
//! Processes that this user may not inspect are left out, which are other users' unless the user is
//! root. A process may end while its files are read; files that cannot be read count as absent. See
//! proc(5).

use crate::beside::{LIBRARY, LOADER};
use crate::living_thread;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::process::{Gid, Uid};
use sojourn_session::config::NamedValue;
use sojourn_session::{Config, Inode, ProcessId, ReasonT, notice};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The mount point of proc(5).
pub(crate) const PROC: &str = "/proc";

/// The beginnings of the names of file systems whose files are on other hosts.
const REMOTE: [&str; 6] = ["nfs", "9p", "cifs", "smb", "ceph", "afs"];

/// The kernel object of a descriptor; a pipe's two ends are different objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Object {
    /// Identified by inode.
    Socket(Inode),
    /// Identified by inode.
    Pipe {
        /// The pipe's inode.
        inode: Inode,
        /// True for the end that writes.
        writes: bool,
    },
    /// A pipe that has, or had, a name; likewise.
    Fifo {
        /// Its number.
        inode: Inode,
        /// The end that writes.
        writes: bool,
    },
}

impl Object {
    pub(super) fn inode(self) -> Inode {
        match self {
            Self::Socket(inode) | Self::Pipe { inode, .. } | Self::Fifo { inode, .. } => inode,
        }
    }
}

/// A process that this user may inspect.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: ProcessId,
    pub(super) uid: Uid,
    pub(super) program: String,
    /// The names that the setting `programs` is matched with; only for programs under Sojourn.
    pub(super) names: Vec<String>,
    /// The process's sockets and pipes, each once, in order.
    pub(super) objects: Vec<Object>,
    /// The object of standard error, if no other descriptor has it: it never moves.
    pub(super) errors: Option<Object>,
    /// The process has the preload library mapped.
    pub(super) has_library: bool,
    /// The reason why a process that was started under Sojourn has no library.
    pub(super) loss: Option<ReasonT>,
    /// The reason, reported by its library, why no session of the process moves any more.
    pub(super) notice: Option<ReasonT>,
    /// The configuration that the process was started with; only for programs under Sojourn.
    pub(super) config: Option<Config>,
    /// `XDG_RUNTIME_DIR` of the process's first environment; only for programs under Sojourn.
    pub(super) runtime: Option<PathBuf>,
    /// The kernel's names of the network and process name spaces, and the depth of the process name
    /// space relative to this process's, which is 1.
    pub(super) network: String,
    pub(super) processes: String,
    pub(super) depth: usize,
    /// The parent process, and the groups.
    pub(super) parent: ProcessId,
    pub(super) gid: Option<Gid>,
    pub(super) groups: Vec<Gid>,
}

impl Process {
    /// Returns true if the process was started under Sojourn, also if the library was not loaded.
    pub(super) fn is_under_sojourn(&self) -> bool {
        self.has_library || self.loss.is_some()
    }
}

/// Returns all processes that this user may inspect.
pub(super) fn all(proc: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut all: Vec<Process> = pids.filter_map(|pid| process(proc, pid)).collect();
    note_losses(&mut all);
    all
}

/// Marks processes that descend from a program under Sojourn and do not have the library.
fn note_losses(all: &mut [Process]) {
    let kin: HashMap<ProcessId, (ProcessId, bool)> =
        all.iter().map(|one| (one.pid, (one.parent, one.has_library))).collect();
    let descends = |mut pid: ProcessId| {
        // Process numbers may be reused during the scan, so the parents may form a cycle: the walk
        // is bounded.
        for _ in 0..kin.len() {
            match kin.get(&pid) {
                Some((_, true)) => return true,
                Some((parent, false)) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    for one in all.iter_mut().filter(|one| !one.is_under_sojourn()) {
        one.loss = descends(one.parent).then_some(ReasonT::LostLibrary);
    }
}

fn process(proc: &Path, pid: ProcessId) -> Option<Process> {
    let directory = proc.join(pid.to_string());
    let seen = living_thread::folder(proc, pid);
    let Held { objects, errors } = held(&seen)?;
    let maps = fs::read(seen.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let has_library = maps.lines().any(|line| is_library(line) || is_loader(line));
    let space = |of: &str| {
        let link = fs::read_link(seen.join("ns").join(of)).unwrap_or_default();
        link.to_string_lossy().into_owned()
    };
    let program = program(proc, pid)?;
    let variables = Variables::read(&seen);
    let status = Status::read(&directory)?;
    Some(Process {
        pid,
        uid: Uid::from_raw(fs::metadata(&directory).ok()?.uid()),
        names: if has_library { names(&seen, &program) } else { Vec::new() },
        program,
        loss: (!has_library && variables.name_library()).then_some(ReasonT::NotLoaded),
        notice: has_library
            .then(|| notice::find(&maps, rustix::param::page_size() as u64, is_library))
            .flatten(),
        config: has_library.then(|| variables.config()).flatten(),
        runtime: variables.get("XDG_RUNTIME_DIR").map(PathBuf::from),
        has_library,
        network: space("net"),
        processes: space("pid"),
        depth: status.depth,
        parent: status.parent,
        gid: status.gid,
        groups: status.groups,
        objects,
        errors,
    })
}

/// A process's first environment, from which its library takes its settings. Empty if this user may
/// not read it.
struct Variables(Vec<u8>);

impl Variables {
    fn read(directory: &Path) -> Self {
        Self(fs::read(directory.join("environ")).unwrap_or_default())
    }

    fn named_values(&self) -> impl Iterator<Item = NamedValue<'_>> {
        self.0.split(|byte| *byte == 0).filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&variable[..at], &variable[at + 1..]);
            Some(NamedValue { name: OsStr::from_bytes(name), value: OsStr::from_bytes(value) })
        })
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        self.named_values().find(|one| one.name == name).map(|one| one.value)
    }

    fn config(&self) -> Option<Config> {
        (!self.0.is_empty()).then(|| Config::from_env(self.named_values()))
    }

    /// Returns true if `LD_PRELOAD` names the library.
    fn name_library(&self) -> bool {
        let Some(value) = self.get("LD_PRELOAD") else { return false };
        let names = value.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
        names
            .into_iter()
            .any(|name| name.rsplit(|byte| *byte == b'/').next() == Some(LIBRARY.as_bytes()))
    }
}

/// The used fields of `/proc/PID/status`.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) parent: ProcessId,
    pub(super) gid: Option<Gid>,
    pub(super) groups: Vec<Gid>,
    /// The number of the process's numbers: one in each process name space from this one inwards.
    pub(super) depth: usize,
}

impl Status {
    pub(super) fn read(directory: &Path) -> Option<Self> {
        Some(Self::parse(&String::from_utf8_lossy(&fs::read(directory.join("status")).ok()?)))
    }

    fn parse(text: &str) -> Self {
        let numbers = |name: &str| -> Vec<u32> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let words = line.unwrap_or_default().split_ascii_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        // Group -1 is none.
        let group = |number| (number != u32::MAX).then(|| Gid::from_raw(number));
        Self {
            parent: numbers("PPid").first().copied().map(ProcessId).unwrap_or_default(),
            // The line has the real, effective, saved and file system group.
            gid: numbers("Gid").get(3).copied().and_then(group),
            groups: numbers("Groups").into_iter().filter_map(group).collect(),
            depth: numbers("NSpid").len(),
        }
    }
}

/// Returns the names of a process: its file's, that of the link by which it was started, and
/// ps(1)'s. The library uses the same names.
fn names(directory: &Path, program: &str) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let file = fs::read_link(directory.join("exe")).ok();
    let line = fs::read(directory.join("cmdline")).unwrap_or_default();
    let link = line.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
    let names = [file.map(|file| text(file.as_os_str().as_bytes())), link.map(text)];
    names.into_iter().flatten().chain([program.to_owned()]).collect()
}

/// Returns a process's name, as ps(1) shows it.
pub(crate) fn program(proc: &Path, pid: ProcessId) -> Option<String> {
    let name = fs::read(proc.join(pid.to_string()).join("comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

/// Returns true if a line of `/proc/PID/maps` is a mapping of the library.
fn is_library(line: &str) -> bool {
    is_mapping_of(line, LIBRARY)
}

/// Returns true if a line of `/proc/PID/maps` is a mapping of the loader, into whose process the
/// library comes with the first call that needs it.
fn is_loader(line: &str) -> bool {
    is_mapping_of(line, LOADER)
}

fn is_mapping_of(line: &str, name: &str) -> bool {
    // A file that has been replaced since is still the same.
    let line = line.strip_suffix(" (deleted)").unwrap_or(line);
    line.strip_suffix(name).is_some_and(|folder| folder.ends_with('/'))
}

/// The objects of a process.
struct Held {
    /// Each once and in order.
    objects: Vec<Object>,
    /// The object that only standard error has.
    errors: Option<Object>,
}

/// Returns the objects of a process.
fn held(directory: &Path) -> Option<Held> {
    let (mut objects, mut errors) = (Vec::new(), None);
    let mounts = fs::read_to_string(directory.join("mountinfo")).unwrap_or_default();
    let mounts = remote_mounts(&mounts);
    for entry in fs::read_dir(directory.join("fd")).ok()?.filter_map(Result::ok) {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Some(target) = target.to_str() else { continue };
        let object = if let Some(number) = number_in(target, "socket:[") {
            Some(Object::Socket(Inode(number)))
        } else if let Some(inode) = number_in(target, "pipe:[").map(Inode) {
            let info = directory.join("fdinfo").join(entry.file_name());
            writes(&info).map(|writes| Object::Pipe { inode, writes })
        } else if target.starts_with('/') {
            let info = directory.join("fdinfo").join(entry.file_name());
            let inode = fifo(&entry.path(), &info, &mounts);
            inode.and_then(|inode| writes(&info).map(|writes| Object::Fifo { inode, writes }))
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
    Some(Held { objects, errors })
}

/// The inode of a descriptor's file, if that is a FIFO. No file system is asked that might not
/// answer.
fn fifo(path: &Path, info: &Path, mounts: &HashSet<u32>) -> Option<Inode> {
    let text = fs::read_to_string(info).ok()?;
    let mount = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
    if mounts.contains(&mount) {
        return None;
    }
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    let is_fifo = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Fifo;
    is_fifo.then_some(Inode(found.stx_ino))
}

/// The mounts that a process sees of file systems that ask another host for each file, by number
/// (proc(5), `/proc/pid/mountinfo`).
fn remote_mounts(text: &str) -> HashSet<u32> {
    let remote = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let kind = after.split(' ').next()?;
        let is_remote = REMOTE.iter().any(|name| kind.starts_with(name));
        is_remote.then(|| before.split(' ').next()?.parse().ok()).flatten()
    };
    text.lines().filter_map(remote).collect()
}

fn number_in(text: &str, prefix: &str) -> Option<u64> {
    text.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok()
}

/// Returns true if a pipe's descriptor is open for writing only; `None` if it is open for both.
fn writes(info: &Path) -> Option<bool> {
    let text = fs::read_to_string(info).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    match u32::from_str_radix(flags.trim(), 8).ok()? & 3 {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(any(debug_assertions, fuzzing))]
/// Parses text as each of a process's files, for fuzzing.
pub(super) fn fuzz_text(text: &str) {
    let _ = Status::parse(text);
    let _ = text.lines().filter(|line| is_library(line)).count();
    let _ = remote_mounts(text);
    let _ = text.lines().filter_map(|line| number_in(line, "socket:[")).count();
    let variables = Variables(text.as_bytes().to_vec());
    let _ = (variables.name_library(), variables.config());
}

/// Returns the processes that hold each object, by index.
pub(super) fn holders(processes: &[Process]) -> HashMap<Object, Vec<usize>> {
    let mut holders: HashMap<Object, Vec<usize>> = HashMap::new();
    for (index, process) in processes.iter().enumerate() {
        for object in &process.objects {
            holders.entry(*object).or_default().push(index);
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let text = "Name:\tx\nPPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t20 30 \nNSpid:\t900\t5\n";
        let status = Status::parse(text);
        assert_eq!((status.parent.0, status.gid.unwrap().as_raw(), status.depth), (7, 8, 2));
        assert_eq!(status.groups, [20, 30].map(Gid::from_raw));
        let damaged = Status::parse("PPid: x\nGid: 1\n");
        assert_eq!((damaged.parent, damaged.gid, damaged.depth), (ProcessId::NONE, None, 0));
    }

    #[test]
    fn a_program_that_the_loader_has_loaded_counts_as_one_with_the_library() {
        let line = |path: &str| format!("7f10000000-7f10100000 r-xp 00001000 08:01 77 {path}");
        assert!(is_loader(&line("/usr/lib/sojourn/sojourn-abi")));
        assert!(is_loader(&line("/usr/lib/sojourn/sojourn-abi (deleted)")));
        assert!(!is_loader(&line("/usr/lib/not-sojourn-abi")));
        assert!(!is_loader(&line("/usr/lib/libsojourn_preload.so")));
    }

    #[test]
    fn files_on_other_hosts_are_known_by_their_mounts() {
        let text = "22 1 0:5 / /a rw shared:1 - tmpfs t rw\n23 1 0:6 / /b rw - nfs4 h:/b rw\n\
                    24 1 0:7 / /c rw - 9p c rw\n25 - nfs\nx y - nfs h rw\n";
        assert_eq!(remote_mounts(text), HashSet::from([23, 24, 25]));
    }

    #[test]
    fn the_environment_says_whether_the_library_was_to_be_loaded() {
        let of = |value: &str| Variables(format!("A=1\0LD_PRELOAD={value}\0").into_bytes());
        assert!(of("/opt/libsojourn_preload.so").name_library());
        assert!(of("/lib/other.so /opt/libsojourn_preload.so").name_library());
        assert!(of("other.so:libsojourn_preload.so:x").name_library());
        assert!(!of("/opt/libsojourn_preload.so.d/other.so").name_library());
        assert!(!Variables(b"PATH=/libsojourn_preload.so\0".to_vec()).name_library());
    }

    #[test]
    fn losses_are_those_of_descendants() {
        let one = |pid, parent, has_library| {
            let [pid, parent] = [pid, parent].map(ProcessId);
            Process { pid, parent, has_library, ..blank() }
        };
        let mut all = vec![
            one(1, 0, false),
            one(10, 1, true),
            one(11, 10, false),
            one(12, 11, false),
            one(20, 1, false),
            one(30, 31, false),
            one(31, 30, false),
        ];
        note_losses(&mut all);
        let lost: Vec<_> = all.iter().filter(|p| p.loss.is_some()).map(|p| p.pid.0).collect();
        assert_eq!(lost, [11, 12]);
    }

    fn blank() -> Process {
        Process {
            pid: ProcessId::NONE,
            uid: Uid::ROOT,
            program: String::new(),
            names: Vec::new(),
            objects: Vec::new(),
            errors: None,
            has_library: false,
            loss: None,
            notice: None,
            config: None,
            runtime: None,
            network: String::new(),
            processes: String::new(),
            depth: 1,
            parent: ProcessId::NONE,
            gid: None,
            groups: Vec::new(),
        }
    }
}
