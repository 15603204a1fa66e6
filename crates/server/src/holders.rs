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
//! # Very many descriptors
//! Processes of a user that has had its share of the time for a look (`shares`) count as ones that
//! may not be inspected, and whether ends of that user's own processes have other holders is
//! unknown. So who asks is looked at first. Of other users' ends such a user may hide a process of
//! its own, if that is no kin of who asks: no more than what it has on its way in a socket.
//!
//! Not here: the thread that looks (`scanner`).

mod proc;
mod shares;
#[cfg(test)]
mod tests;

pub use proc::user_of;

use proc::{
    Lineage, Names, bracketed, has_threads, hides_processes, kin_of, number, open_directory, payer,
    sees_all_processes, shows_own_space,
};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, RawDir, StatxFlags, statat, statx};
use rustix::io::Errno;
use rustix::process::Uid;
use shares::Shares;
use sojourn_session::{Inode, ProcessId, ReasonT};
use std::collections::{HashMap, HashSet};
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

/// The time for one look.
const LIMIT: Duration = Duration::from_secs(5);
/// The most descriptors of a process that are looked at, unless it is an asker. One with more
/// counts as one that may not be inspected.
const FDS_MAX: usize = 1 << 16;
/// The number of descriptors after which a process counts as one whose look takes time, and the
/// time after which any does.
const FDS_FEW: usize = 8;
const SHORT: Duration = Duration::from_micros(500);
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
/// Answers all questions with one look: `Ok` if no other process holds the end, else the reason why
/// the end cannot be joined. `servers`: processes of the server's beside this one, which hold what
/// programs have sent.
#[must_use]
pub fn find_holders(
    questions: &[Question],
    servers: &[ProcessId],
    fifos: FifoHolders,
) -> Vec<Result<(), ReasonT>> {
    find_within(LIMIT, questions, servers, fifos)
}

fn find_within(
    limit: Duration,
    questions: &[Question],
    servers: &[ProcessId],
    fifos: FifoHolders,
) -> Vec<Result<(), ReasonT>> {
    let mut scan = Scan::within(limit, servers, fifos);
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

#[derive(Debug)]
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
    shares: Shares,
    /// The time at which the look at the present process began, and who pays for it, once that is
    /// known.
    begun: Instant,
    payer: Option<Uid>,
}

impl Scan {
    fn within(limit: Duration, servers: &[ProcessId], fifos: FifoHolders) -> Self {
        let begun = Instant::now();
        Self {
            holders: HashMap::new(),
            kin: HashMap::new(),
            closed: Vec::new(),
            servers: servers.to_vec(),
            has_fifos: false,
            fifos,
            is_partial: false,
            askers: Vec::new(),
            until: begun.checked_add(limit),
            shares: Shares::of(limit),
            begun,
            payer: None,
        }
    }

    fn run(&mut self) -> Result<(), Errno> {
        let own = ProcessId::own();
        let proc = open_directory(CWD, c"/proc")?;
        let mut names = Names::default();
        let mut entries = Names::default();
        let passed_over: HashSet<ProcessId> = self.servers.iter().copied().chain([own]).collect();
        let first: HashSet<ProcessId> =
            self.askers.iter().copied().filter(|pid| !passed_over.contains(pid)).collect();
        for pid in &first {
            self.take(&proc, *pid, &mut entries)?;
        }
        let mut list = RawDir::new(&proc, names.room());
        while let Some(entry) = list.next() {
            let entry = entry?;
            let Some(pid) = number(entry.file_name().to_bytes()).map(ProcessId) else { continue };
            // The server's own duplicates last no longer than the look at an offer.
            if !passed_over.contains(&pid) && !first.contains(&pid) {
                self.take(&proc, pid, &mut entries)?;
            }
        }
        Ok(())
    }

    /// Looks at one process, on its user's share.
    fn take(&mut self, proc: &OwnedFd, pid: ProcessId, names: &mut Names) -> Result<(), Errno> {
        (self.begun, self.payer) = (Instant::now(), None);
        match self.inspect(proc, pid, names) {
            // The process has ended meanwhile.
            Ok(()) | Err(Errno::NOENT | Errno::SRCH) => {}
            Err(Errno::TIMEDOUT) => return Err(Errno::TIMEDOUT),
            Err(_) => {
                self.closed.push(pid);
                self.note_kin(pid);
            }
        }
        if self.payer.is_none() && self.begun.elapsed() > SHORT {
            self.payer = payer_of(proc, pid);
        }
        self.charge();
        Ok(())
    }

    /// Puts the time since the last call on the share of who pays.
    fn charge(&mut self) {
        let now = Instant::now();
        if let Some(user) = self.payer {
            self.shares.spend(user, now.saturating_duration_since(self.begun));
            self.begun = now;
        }
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
            if count == FDS_FEW {
                self.payer = payer(pid, &directory);
            }
            if count == FDS_FEW || count % FDS_SOME == 1 {
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
    fn check(&mut self, pid: ProcessId, count: usize) -> Result<(), Errno> {
        if self.until.is_some_and(|until| Instant::now() > until) {
            return Err(Errno::TIMEDOUT);
        }
        self.charge();
        if self.payer.is_some_and(|user| self.shares.is_over(user)) {
            return Err(Errno::MFILE);
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
        if self.shares.is_any_over() {
            let user = open_directory(CWD, c"/proc").ok().and_then(|p| payer_of(&p, question.pid));
            if user.is_none_or(|user| self.shares.is_over(user)) {
                return Err(ReasonT::HoldersUnknown);
            }
        }
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

/// Returns the user on whose share a look at the process goes; `None` if it has ended.
fn payer_of(proc: &OwnedFd, pid: ProcessId) -> Option<Uid> {
    payer(pid, open_directory(proc, format!("{pid}/fd")).ok()?)
}
