//! The other holders of an end, found by a look through `/proc`.
//!
//! A process holds an end if its table of descriptors has it. The number of its descriptors does
//! not matter: the library knows its own duplicates. One look serves any number of questions. A
//! look cannot see descriptors on their way in a Unix socket (a library never offers again an end
//! that it has passed on), and threads with a table of their own (unshare(2), `CLONE_FILES`).
//!
//! # Processes that may not be inspected
//! Processes of other users, and programs that gained privileges, may not be inspected (ptrace(2),
//! "Ptrace access mode checking"). Descriptors are inherited by `fork`, so only kin of the asker
//! could hold its end. Such a process **matters** if it, or one of its living forebears, is the
//! asker or is in the asker's session (setsid(2)); if one that matters may not be inspected, the
//! answer is [`ReasonT::HoldersUnknown`]. Age does not help: the kernel does not tell when a socket
//! was made. The rule does not see kin whose whole line back to the asker's session has ended.
//! Where `/proc` hides processes (`hidepid`, proc(5)) and this is not root's server, or shows those
//! of another process name space, every answer is `HoldersUnknown`.
//!
//! A process that has entered this process name space from outside (setns(2)) and is still in a
//! session of there has kin that cannot be seen at all: the answer about its ends, and its
//! children's, is `HoldersUnknown`, too.
//!
//! # FIFOs
//! While a pipe had a name anybody may have opened it. So every process that may not be inspected
//! matters, those outside this process name space do, and a descriptor that only names the pipe
//! counts as both ends, which its holder can open. An administrator may know better, and say that
//! the rule of pipes without a name is enough ([`FifoHolders::Kin`]). An end is found by its inode
//! number, which may be that of a FIFO in another file system, too: then there is one holder too
//! many, never too few.
//!
//! Not here: the thread that looks (`scanner`).

#[cfg(test)]
mod tests;

use core::mem::MaybeUninit;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxFlags, openat, statat, statx};
use rustix::io::Errno;
use rustix::process::Uid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};
use sojourn_session::{Inode, ProcessId, ReasonT};
use std::collections::HashMap;
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// The object of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// The socket with this inode.
    Socket {
        /// Inode.
        inode: Inode,
    },
    /// One end of the pipe with this inode.
    Pipe {
        /// Inode, of both ends.
        inode: Inode,
        /// The end that writes.
        writes: bool,
    },
    /// One end of the pipe with this inode, which has, or had, a name in a file system.
    Fifo {
        /// Inode, of both ends.
        inode: Inode,
        /// The end that writes.
        writes: bool,
    },
}

/// The processes that may hold an end of a FIFO although they may not be inspected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FifoHolders {
    /// Any process of the host.
    #[default]
    All,
    /// Only kin of the asker, as of any pipe.
    Kin,
}

/// A question: is this process the only holder of the object?
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The process that should be the only holder. The asker makes sure that the number was still
    /// this process's after the look (`service::counted`); the numbers of the others are only
    /// compared with each other, within one look.
    pub pid: ProcessId,
    /// The object that it should hold.
    pub object: Object,
}

/// The time for one look: whoever has very many descriptors makes nobody wait longer for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The most descriptors of a process that are looked at, unless it is an asker. One with more
/// counts as one that may not be inspected.
const FDS_MAX: usize = 1 << 16;
/// Descriptors after which the time is looked at.
const FDS_SOME: usize = 1 << 10;
/// The number of forebears after which a process counts as one that does not matter.
const FOREBEARS_MAX: usize = 64;
/// The most bytes that a link of `/proc` has (`do_proc_readlink`).
const LINK_MAX: usize = 4096;
/// The end of the name of a file that has none any more. Only such files are looked at: all holders
/// of a FIFO that can move have it under such a name, and a look at others could make a network
/// file system ask its server (`d_weak_revalidate`).
const DELETED: &[u8] = b" (deleted)";
/// The name of the process name space that has all processes of the host (`PROC_PID_INIT_INO`).
const FIRST_SPACE: &str = "pid:[4026531836]";

/// Answers all questions with one look: `Ok` if no other process holds the end, else the reason why
/// the end cannot be joined. `servers`: processes of the server's beside this one, which hold what
/// programs have sent.
#[must_use]
pub fn find_holders(
    questions: &[Question],
    servers: &[ProcessId],
    fifos: FifoHolders,
) -> Vec<Result<(), ReasonT>> {
    let until = Instant::now().checked_add(LIMIT);
    let mut scan = Scan { servers: servers.to_vec(), fifos, until, ..Scan::default() };
    for question in questions {
        scan.holders.entry(question.object).or_default();
        scan.note_kin(question.pid);
        scan.askers.push(question.pid);
        scan.has_fifos |= matches!(question.object, Object::Fifo { .. });
    }
    scan.is_partial = scan.has_fifos && !sees_all_processes();
    if hides_processes() || !shows_own_space() || scan.run().is_err() {
        return vec![Err(ReasonT::HoldersUnknown); questions.len()];
    }
    questions.iter().map(|question| scan.verdict(*question)).collect()
}

/// Returns the user as which a process runs now; `None` if it has ended, or `/proc` does not show
/// it.
#[must_use]
pub fn user_of(pid: ProcessId) -> Option<Uid> {
    let text = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The line has the real, effective, saved and file system user; the second counts. (The owner
    // of the process's directory is no help: it is root for programs that have changed their user.)
    let users = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok().map(Uid::from_raw_unchecked)
}

/// The parent and session of a process.
#[derive(Clone, Copy, Debug)]
struct Lineage {
    parent: ProcessId,
    session: ProcessId,
}

#[derive(Debug, Default)]
struct Scan {
    /// The holders of the objects in question. A number appears once.
    holders: HashMap<Object, Vec<ProcessId>>,
    /// The askers, the processes that may not be inspected, and the forebears of both.
    kin: HashMap<ProcessId, Lineage>,
    /// Processes that may not be inspected.
    closed: Vec<ProcessId>,
    /// Processes that are passed over.
    servers: Vec<ProcessId>,
    /// Some of the objects are FIFOs, which are found by a look at each file.
    has_fifos: bool,
    fifos: FifoHolders,
    /// A file, or a process, may be a FIFO's holder and could not be looked at.
    is_partial: bool,
    askers: Vec<ProcessId>,
    until: Option<Instant>,
}

/// Room for the names of a directory. Most directories fit, and take one system call; the others
/// take one for each piece.
#[derive(Debug, Default)]
struct Names(Vec<u8>);

impl Names {
    const LEN: usize = 16 << 10;

    fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        self.0.clear();
        self.0.reserve(Self::LEN);
        self.0.spare_capacity_mut()
    }
}

fn open_directory(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

impl Scan {
    fn run(&mut self) -> Result<(), Errno> {
        let own = ProcessId::own();
        let proc = open_directory(CWD, c"/proc")?;
        let mut names = Names::default();
        let mut entries = Names::default();
        let mut list = RawDir::new(&proc, names.room());
        while let Some(entry) = list.next() {
            let entry = entry?;
            let Some(pid) = number(entry.file_name().to_bytes()).map(ProcessId) else { continue };
            // The server's own duplicates last no longer than the look at an offer.
            if pid == own || self.servers.contains(&pid) {
                continue;
            }
            match self.inspect(&proc, pid, &mut entries) {
                // The process has ended meanwhile.
                Ok(()) | Err(Errno::NOENT | Errno::SRCH) => {}
                Err(Errno::TIMEDOUT) => return Err(Errno::TIMEDOUT),
                Err(_) => {
                    self.closed.push(pid);
                    self.note_kin(pid);
                }
            }
        }
        Ok(())
    }

    /// Reads the kin of a process. That costs as much as a look at its descriptors, so it is done
    /// only for processes whose kin matters.
    fn note_kin(&mut self, pid: ProcessId) {
        let mut pid = pid;
        while pid.0 > 1
            && !self.kin.contains_key(&pid)
            && let Some(kin) = kin_of(pid)
        {
            self.kin.insert(pid, kin);
            pid = kin.parent;
        }
    }

    /// Looks at the descriptors of one process.
    fn inspect(&mut self, proc: &OwnedFd, pid: ProcessId, names: &mut Names) -> Result<(), Errno> {
        let has_any = self.inspect_table(open_directory(proc, format!("{pid}/fd"))?, pid, names)?;
        if has_any || !has_threads(proc, pid)? {
            return Ok(());
        }
        // Its first thread may have ended, and has no descriptors any more (pthread_exit(3)).
        let tasks = open_directory(proc, format!("{pid}/task"))?;
        let mut list = Names::default();
        let mut list = RawDir::new(&tasks, list.room());
        while let Some(entry) = list.next() {
            let Some(thread) = number(entry?.file_name().to_bytes()) else { continue };
            let table = open_directory(&tasks, format!("{thread}/fd"));
            match table.and_then(|table| self.inspect_table(table, pid, names)) {
                // The thread has ended meanwhile, or is about to.
                Ok(false) | Err(Errno::NOENT | Errno::SRCH) => {}
                // The others have the same table.
                Ok(true) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Looks at the descriptors of a table. Returns false if there are none.
    fn inspect_table(
        &mut self,
        directory: OwnedFd,
        pid: ProcessId,
        names: &mut Names,
    ) -> Result<bool, Errno> {
        let mut count = 0;
        let mut list = RawDir::new(&directory, names.room());
        let mut room = [0u8; LINK_MAX];
        while let Some(entry) = list.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes().first() == Some(&b'.') {
                continue;
            }
            count += 1;
            if count % FDS_SOME == 1 {
                self.check(pid, count)?;
            }
            let link = match rustix::fs::readlinkat_raw(&directory, name, &mut room[..]) {
                Ok(len) => room.get(..len).unwrap_or(&[]),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            };
            if let Some(inode) = bracketed(link, b"socket:[").map(Inode) {
                self.found(Object::Socket { inode }, pid);
            } else if let Some(inode) = bracketed(link, b"pipe:[").map(Inode) {
                let ends = [false, true].map(|writes| Object::Pipe { inode, writes });
                self.found_ends(&directory, name, ends, pid);
            } else if self.has_fifos && link.ends_with(DELETED) {
                self.found_file(&directory, name, pid);
            }
        }
        Ok(count > 0)
    }

    /// Fails if a look at so many descriptors of a process takes too long.
    fn check(&self, pid: ProcessId, count: usize) -> Result<(), Errno> {
        if self.until.is_some_and(|until| Instant::now() > until) {
            return Err(Errno::TIMEDOUT);
        }
        if count > FDS_MAX && !self.askers.contains(&pid) { Err(Errno::MFILE) } else { Ok(()) }
    }

    fn found(&mut self, object: Object, pid: ProcessId) {
        // The descriptors of one process are read in a row, so its number can only be the last one.
        if let Some(holders) = self.holders.get_mut(&object)
            && holders.last() != Some(&pid)
        {
            holders.push(pid);
        }
    }

    /// Finds the ends that a descriptor of a file is, if the file is a FIFO. The file system is not
    /// asked: see `identity::fifo`.
    fn found_file(&mut self, directory: &OwnedFd, name: &CStr, pid: ProcessId) {
        let wanted = StatxFlags::TYPE | StatxFlags::INO;
        match statx(directory, name, AtFlags::STATX_DONT_SYNC, wanted) {
            Ok(found) if FileType::from_raw_mode(found.stx_mode.into()) == FileType::Fifo => {
                let inode = Inode(found.stx_ino);
                let ends = [false, true].map(|writes| Object::Fifo { inode, writes });
                self.found_ends(directory, name, ends, pid);
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(_) => self.is_partial = true,
        }
    }

    /// Finds which of the ends a descriptor is, by the mode of its link: readable, writable or both
    /// (proc(5), `/proc/pid/fd`).
    fn found_ends(&mut self, directory: &OwnedFd, name: &CStr, ends: [Object; 2], pid: ProcessId) {
        if !ends.iter().any(|end| self.holders.contains_key(end)) {
            return;
        }
        let mode = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|found| found.st_mode);
        // The descriptor was closed meanwhile: it holds nothing any more.
        let Ok(mode) = mode else { return };
        // Opened with `O_PATH` it is neither, but can be opened as both.
        let names = mode & 0o600 == 0 && matches!(ends[0], Object::Fifo { .. });
        for (end, bit) in ends.into_iter().zip([0o400, 0o200]) {
            if mode & bit != 0 || names {
                self.found(end, pid);
            }
        }
    }

    fn verdict(&self, question: Question) -> Result<(), ReasonT> {
        let holders = self.holders.get(&question.object).map_or(&[][..], Vec::as_slice);
        match holders {
            [] => Err(ReasonT::Closed),
            [only] if *only == question.pid => {
                let is_unknown = match question.object {
                    Object::Fifo { .. } if self.fifos == FifoHolders::All => {
                        self.is_partial || !self.closed.is_empty()
                    }
                    _ => {
                        self.has_kin_outside(question.pid)
                            || self.closed.iter().any(|pid| self.matters(*pid, question.pid))
                    }
                };
                if is_unknown { Err(ReasonT::HoldersUnknown) } else { Ok(()) }
            }
            _ => Err(ReasonT::SeveralHolders),
        }
    }

    /// Returns true if the asker has come from outside this process name space, or a forebear has,
    /// and is in a session of there. Such a process has no parent here.
    fn has_kin_outside(&self, asker: ProcessId) -> bool {
        let mut pid = asker;
        for _ in 0..FOREBEARS_MAX {
            match self.kin.get(&pid) {
                Some(kin) if kin.session != ProcessId::NONE => return false,
                Some(kin) if kin.parent == ProcessId::NONE => {
                    return pid.0 != 1 && !sees_all_processes();
                }
                Some(kin) => pid = kin.parent,
                None => return false,
            }
        }
        false
    }

    /// Returns true if the process matters, by the rule at the head of this file. An asker without
    /// known kin has ended, or is hidden; then every process could matter.
    fn matters(&self, pid: ProcessId, asker: ProcessId) -> bool {
        let Some(session) = self.kin.get(&asker).map(|kin| kin.session) else { return true };
        let in_session =
            |pid: ProcessId| self.kin.get(&pid).is_some_and(|kin| kin.session == session);
        let mut pid = pid;
        for _ in 0..FOREBEARS_MAX {
            if in_session(pid) || pid == asker {
                return true;
            }
            match self.kin.get(&pid) {
                Some(kin) if kin.parent.0 > 1 => pid = kin.parent,
                // The process had ended before its kin was read, or the line ends at the root.
                _ => return false,
            }
        }
        false
    }
}

/// Returns true if the numbers in `/proc` are those of this process name space. They are another's
/// where a name space was made without a `/proc` of its own.
fn shows_own_space() -> bool {
    let own = rustix::fs::readlink("/proc/self", Vec::new());
    own.is_ok_and(|own| number(own.as_bytes()) == Some(ProcessId::own().0))
}

/// Returns true if a process has more than one thread. The directory of its threads has two links
/// of its own and one for each.
fn has_threads(proc: &OwnedFd, pid: ProcessId) -> Result<bool, Errno> {
    let tasks = statat(proc, format!("{pid}/task"), AtFlags::empty())?;
    Ok(tasks.st_nlink > 3)
}

/// Returns parent and session of a process; `None` if it has ended.
fn kin_of(pid: ProcessId) -> Option<Lineage> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the name, which may contain any byte but ends at the last bracket: state,
    // parent, group, session (proc(5), `/proc/pid/stat`).
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat[after..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let parent = ProcessId(number(fields.nth(1)?)?);
    let session = ProcessId(number(fields.nth(1)?)?);
    Some(Lineage { parent, session })
}

/// Returns true if `/proc` shows only a user's own processes, and this process may not look into
/// all of them: neither is it root's, nor does it have `CAP_SYS_PTRACE` (proc(5), `hidepid`).
fn hides_processes() -> bool {
    let looks = |held: CapabilitySets| held.effective.contains(CapabilitySet::SYS_PTRACE);
    if rustix::process::geteuid().is_root() || capabilities(None).is_ok_and(looks) {
        return false;
    }
    // Process 1 belongs to root and always exists.
    std::fs::read("/proc/1/stat").is_err()
}

/// Returns true if no process of the host is outside this process name space.
fn sees_all_processes() -> bool {
    let space = rustix::fs::readlink("/proc/self/ns/pid", Vec::new());
    space.is_ok_and(|space| space.as_bytes() == FIRST_SPACE.as_bytes())
}

fn bracketed(link: &[u8], prefix: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

fn number(digits: &[u8]) -> Option<u32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}
