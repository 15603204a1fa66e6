//! Processes and what they have open, from `/proc`.
//!
//! Only what we may see: other users' processes are passed over unless we are root. A process can
//! end while we look; what cannot be read then is not there. See proc(5).

use crate::beside::LIBRARY;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use sojourn_session::{Config, ReasonT, notice};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where the kernel tells of processes.
pub(crate) const PROC: &str = "/proc";

/// The beginnings of the names of file systems whose files are on other hosts.
const REMOTE: [&str; 6] = ["nfs", "9p", "cifs", "smb", "ceph", "afs"];

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
    /// A pipe that has, or had, a name; likewise.
    Fifo {
        /// Its number.
        inode: u64,
        /// The end that writes.
        writes: bool,
    },
}

impl Object {
    pub(super) fn inode(self) -> u64 {
        match self {
            Self::Socket(inode) | Self::Pipe { inode, .. } | Self::Fifo { inode, .. } => inode,
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
    /// Why it has not the library, though it was started under Sojourn.
    pub(super) loss: Option<ReasonT>,
    /// What its library says: nothing of it moves any more.
    pub(super) notice: Option<ReasonT>,
    /// What it was started with; of a program under Sojourn only.
    pub(super) config: Option<Config>,
    /// The folder of its user's sockets that it was started with, likewise.
    pub(super) runtime: Option<PathBuf>,
    /// Its network and its process name space, as the kernel names them, and how deep the latter is
    /// from here: 1 is ours.
    pub(super) network: String,
    pub(super) processes: String,
    pub(super) depth: usize,
    /// Its parent, and its groups.
    parent: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

impl Process {
    /// It was started under Sojourn, whatever became of that.
    pub(super) fn is_under_sojourn(&self) -> bool {
        self.has_library || self.loss.is_some()
    }
}

/// All processes.
pub(super) fn all(proc: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut all: Vec<Process> = pids.filter_map(|pid| process(proc, pid)).collect();
    note_losses(&mut all);
    all
}

/// Finds those that descend from a program under Sojourn and have not got the library on.
fn note_losses(all: &mut [Process]) {
    let kin: HashMap<u32, (u32, bool)> =
        all.iter().map(|one| (one.pid, (one.parent, one.has_library))).collect();
    let descends = |mut pid: u32| {
        // Numbers come again while we look: what is read need not be a tree.
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

fn process(proc: &Path, pid: u32) -> Option<Process> {
    let directory = proc.join(pid.to_string());
    let (objects, errors) = objects(&directory)?;
    let maps = fs::read(directory.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let has_library = maps.lines().any(is_library);
    let space = |of: &str| {
        let link = fs::read_link(directory.join("ns").join(of)).unwrap_or_default();
        link.to_string_lossy().into_owned()
    };
    let program = program(proc, pid)?;
    let variables = Variables::read(&directory);
    let status = Status::read(&directory)?;
    Some(Process {
        pid,
        uid: fs::metadata(&directory).ok()?.uid(),
        names: if has_library { names(&directory, &program) } else { Vec::new() },
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

/// A process's first environment, which is what its library goes by. Empty if we may not see it.
struct Variables(Vec<u8>);

impl Variables {
    fn read(directory: &Path) -> Self {
        Self(fs::read(directory.join("environ")).unwrap_or_default())
    }

    fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.split(|byte| *byte == 0).filter_map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            Some((OsStr::from_bytes(&pair[..at]), OsStr::from_bytes(&pair[at + 1..])))
        })
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        self.pairs().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    fn config(&self) -> Option<Config> {
        (!self.0.is_empty()).then(|| Config::from_env(self.pairs()))
    }

    /// Whether the dynamic loader was to load the library.
    fn name_library(&self) -> bool {
        let Some(value) = self.get("LD_PRELOAD") else { return false };
        let names = value.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
        names
            .into_iter()
            .any(|name| name.rsplit(|byte| *byte == b'/').next() == Some(LIBRARY.as_bytes()))
    }
}

/// What `/proc/PID/status` says, as far as it matters here.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) parent: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    /// How many numbers the process has: one in each process name space from ours down.
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
        Self {
            parent: numbers("PPid").first().copied().unwrap_or(0),
            // Real, effective, saved, that of files.
            gid: numbers("Gid").get(3).copied().unwrap_or(u32::MAX),
            groups: numbers("Groups"),
            depth: numbers("NSpid").len(),
        }
    }
}

/// What a process is called: by its file, by the link that it was started by, and by ps(1). The
/// library goes by the same.
fn names(directory: &Path, program: &str) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let file = fs::read_link(directory.join("exe")).ok();
    let line = fs::read(directory.join("cmdline")).unwrap_or_default();
    let link = line.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
    let names = [file.map(|file| text(file.as_os_str().as_bytes())), link.map(text)];
    names.into_iter().flatten().chain([program.to_owned()]).collect()
}

/// A process's name, as ps(1) shows it.
pub(crate) fn program(proc: &Path, pid: u32) -> Option<String> {
    let name = fs::read(proc.join(pid.to_string()).join("comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

/// Whether a line of `/proc/PID/maps` is of the library.
fn is_library(line: &str) -> bool {
    // One that was installed anew since is still the library.
    let line = line.strip_suffix(" (deleted)").unwrap_or(line);
    line.strip_suffix(LIBRARY).is_some_and(|folder| folder.ends_with('/'))
}

/// Each object once, in order, and what only standard error stands for.
fn objects(directory: &Path) -> Option<(Vec<Object>, Option<Object>)> {
    let (mut objects, mut errors) = (Vec::new(), None);
    let mounts = fs::read_to_string(directory.join("mountinfo")).unwrap_or_default();
    let mounts = remote_mounts(&mounts);
    for entry in fs::read_dir(directory.join("fd")).ok()?.filter_map(Result::ok) {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Some(target) = target.to_str() else { continue };
        let object = if let Some(inode) = number_in(target, "socket:[") {
            Some(Object::Socket(inode))
        } else if let Some(inode) = number_in(target, "pipe:[") {
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
    Some((objects, errors))
}

/// The inode of a descriptor's file, if that is a FIFO. No file system is asked that might not
/// answer.
fn fifo(path: &Path, info: &Path, mounts: &HashSet<u32>) -> Option<u64> {
    let text = fs::read_to_string(info).ok()?;
    let mount = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
    if mounts.contains(&mount) {
        return None;
    }
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    let is_fifo = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Fifo;
    is_fifo.then_some(found.stx_ino)
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

#[cfg(any(debug_assertions, fuzzing))]
/// Text of any file about a process, for fuzzing.
pub(super) fn fuzz_text(text: &str) {
    let _ = Status::parse(text);
    let _ = text.lines().filter(|line| is_library(line)).count();
    let _ = remote_mounts(text);
    let _ = text.lines().filter_map(|line| number_in(line, "socket:[")).count();
    let variables = Variables(text.as_bytes().to_vec());
    let _ = (variables.name_library(), variables.config());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let text = "Name:\tx\nPPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t20 30 \nNSpid:\t900\t5\n";
        let status = Status::parse(text);
        assert_eq!((status.parent, status.gid, status.depth), (7, 8, 2));
        assert_eq!(status.groups, [20, 30]);
        let damaged = Status::parse("PPid: x\nGid: 1\n");
        assert_eq!((damaged.parent, damaged.gid, damaged.depth), (0, u32::MAX, 0));
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
        let one = |pid, parent, has_library| Process { pid, parent, has_library, ..blank() };
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
        let lost: Vec<_> = all.iter().filter(|one| one.loss.is_some()).map(|one| one.pid).collect();
        assert_eq!(lost, [11, 12]);
    }

    fn blank() -> Process {
        Process {
            pid: 0,
            uid: 0,
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
            parent: 0,
            gid: 0,
            groups: Vec::new(),
        }
    }
}
