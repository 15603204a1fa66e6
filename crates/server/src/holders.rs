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
//! Where `/proc` hides processes (`hidepid`, proc(5)) and this is not root's server, every answer
//! is `HoldersUnknown`.
//!
//! Not here: the thread that looks (`scanner`).

use core::mem::MaybeUninit;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};
use sojourn_session::ReasonT;
use std::collections::HashMap;

/// The object of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// The socket with this inode.
    Socket {
        /// Inode.
        inode: u64,
    },
    /// One end of the pipe with this inode.
    Pipe {
        /// Inode, of both ends.
        inode: u64,
        /// The end that writes.
        writes: bool,
    },
}

/// A question: is this process the only holder of the object?
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The process that should be the only holder. The asker makes sure that the number was still
    /// this process's after the look (`service::counted`); the numbers of the others are only
    /// compared with each other, within one look.
    pub pid: u32,
    /// The object that it should hold.
    pub object: Object,
}

/// The number of forebears after which a process counts as one that does not matter.
const FOREBEARS_MAX: usize = 64;
/// More bytes than `socket:[N]` and `pipe:[N]` have.
const LINK_MAX: usize = 64;

/// Answers all questions with one look: `Ok` if no other process holds the end, else the reason why
/// the end cannot be joined. `servers`: processes of the server's beside this one, which hold what
/// programs have sent.
#[must_use]
pub fn look(questions: &[Question], servers: &[u32]) -> Vec<Result<(), ReasonT>> {
    let mut scan = Scan { servers: servers.to_vec(), ..Scan::default() };
    for question in questions {
        scan.holders.entry(question.object).or_default();
        scan.note_kin(question.pid);
    }
    if hides_processes() || scan.run().is_err() {
        return vec![Err(ReasonT::HoldersUnknown); questions.len()];
    }
    questions.iter().map(|question| scan.verdict(*question)).collect()
}

/// Returns the user as which a process runs now; `None` if it has ended, or `/proc` does not show
/// it.
#[must_use]
pub fn user_of(pid: u32) -> Option<u32> {
    let text = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The line has the real, effective, saved and file system user; the second counts. (The owner
    // of the process's directory is no help: it is root for programs that have changed their user.)
    let users = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The parent and session of a process.
#[derive(Clone, Copy, Debug)]
struct Lineage {
    parent: u32,
    session: u32,
}

#[derive(Debug, Default)]
struct Scan {
    /// The holders of the objects in question. A number appears once.
    holders: HashMap<Object, Vec<u32>>,
    /// The askers, the processes that may not be inspected, and the forebears of both.
    kin: HashMap<u32, Lineage>,
    /// Processes that may not be inspected.
    closed: Vec<u32>,
    /// Processes that are passed over.
    servers: Vec<u32>,
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
        let own = std::process::id();
        let proc = open_directory(CWD, c"/proc")?;
        let mut names = Names::default();
        let mut entries = Names::default();
        let mut list = RawDir::new(&proc, names.room());
        while let Some(entry) = list.next() {
            let entry = entry?;
            let Some(pid) = number(entry.file_name().to_bytes()) else { continue };
            // The server's own duplicates last no longer than the look at an offer.
            if pid == own || self.servers.contains(&pid) {
                continue;
            }
            match self.inspect(&proc, pid, &mut entries) {
                // The process has ended meanwhile.
                Ok(()) | Err(Errno::NOENT | Errno::SRCH) => {}
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
    fn note_kin(&mut self, pid: u32) {
        let mut pid = pid;
        while pid > 1
            && !self.kin.contains_key(&pid)
            && let Some(kin) = kin_of(pid)
        {
            self.kin.insert(pid, kin);
            pid = kin.parent;
        }
    }

    /// Looks at the descriptors of one process.
    fn inspect(&mut self, proc: &OwnedFd, pid: u32, names: &mut Names) -> Result<(), Errno> {
        let directory = open_directory(proc, format!("{pid}/fd"))?;
        let mut list = RawDir::new(&directory, names.room());
        while let Some(entry) = list.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes().first() == Some(&b'.') {
                continue;
            }
            let mut link = [0u8; LINK_MAX];
            let link = match rustix::fs::readlinkat_raw(&directory, name, &mut link[..]) {
                Ok(len) => link.get(..len).unwrap_or(&[]),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            };
            if let Some(inode) = bracketed(link, b"socket:[") {
                self.found(Object::Socket { inode }, pid);
            } else if let Some(inode) = bracketed(link, b"pipe:[") {
                self.found_pipe(&directory, name, inode, pid);
            }
        }
        Ok(())
    }

    fn found(&mut self, object: Object, pid: u32) {
        // The descriptors of one process are read in a row, so its number can only be the last one.
        if let Some(holders) = self.holders.get_mut(&object)
            && holders.last() != Some(&pid)
        {
            holders.push(pid);
        }
    }

    /// Finds the ends that a descriptor of a pipe is, by the mode of its link: readable, writable
    /// or both (proc(5), `/proc/pid/fd`).
    fn found_pipe(&mut self, directory: &OwnedFd, name: &std::ffi::CStr, inode: u64, pid: u32) {
        let ends = [false, true].map(|writes| Object::Pipe { inode, writes });
        if !ends.iter().any(|end| self.holders.contains_key(end)) {
            return;
        }
        let mode = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|found| found.st_mode);
        // The descriptor was closed meanwhile: it holds nothing any more.
        let Ok(mode) = mode else { return };
        for (end, bit) in ends.into_iter().zip([0o400, 0o200]) {
            if mode & bit != 0 {
                self.found(end, pid);
            }
        }
    }

    fn verdict(&self, question: Question) -> Result<(), ReasonT> {
        let holders = self.holders.get(&question.object).map_or(&[][..], Vec::as_slice);
        match holders {
            [] => Err(ReasonT::Closed),
            [only] if *only == question.pid => {
                let is_unknown = self.closed.iter().any(|pid| self.matters(*pid, question.pid));
                if is_unknown { Err(ReasonT::HoldersUnknown) } else { Ok(()) }
            }
            _ => Err(ReasonT::SeveralHolders),
        }
    }

    /// Returns true if the process matters, by the rule at the head of this file. An asker without
    /// known kin has ended, or is hidden; then every process could matter.
    fn matters(&self, pid: u32, asker: u32) -> bool {
        let Some(session) = self.kin.get(&asker).map(|kin| kin.session) else { return true };
        let in_session = |pid: u32| self.kin.get(&pid).is_some_and(|kin| kin.session == session);
        let mut pid = pid;
        for _ in 0..FOREBEARS_MAX {
            if in_session(pid) || pid == asker {
                return true;
            }
            match self.kin.get(&pid) {
                Some(kin) if kin.parent > 1 => pid = kin.parent,
                // The process had ended before its kin was read, or the line ends at the root.
                _ => return false,
            }
        }
        false
    }
}

/// Returns parent and session of a process; `None` if it has ended.
fn kin_of(pid: u32) -> Option<Lineage> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the name, which may contain any byte but ends at the last bracket: state,
    // parent, group, session (proc(5), `/proc/pid/stat`).
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat[after..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let parent = number(fields.nth(1)?)?;
    let session = number(fields.nth(1)?)?;
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

fn bracketed(link: &[u8], prefix: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

fn number(digits: &[u8]) -> Option<u32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    /// A program that holds the descriptor as its standard input, until it is killed.
    struct Holder(Child);

    impl Holder {
        /// In a session (setsid(2)) of this test's own: tests may run among kin that nobody here
        /// may inspect.
        fn of(end: impl AsFd) -> Self {
            let _ = rustix::process::setsid();
            let end = end.as_fd().try_clone_to_owned().unwrap();
            let mut child = Command::new("/bin/sh")
                .args(["-c", "echo there; exec sleep 600"])
                .stdin(Stdio::from(end))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            Self(child)
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn ask(pid: u32, object: Object) -> Result<(), ReasonT> {
        look_for(&[Question { pid, object }], &[Ok(())])[0]
    }

    /// Asks until the answer is `wanted`, for a while: a child that another test is starting has,
    /// between fork and exec, all that this process has.
    fn look_for(
        questions: &[Question],
        wanted: &[Result<(), ReasonT>],
    ) -> Vec<Result<(), ReasonT>> {
        let mut verdicts = look(questions, &[]);
        for _ in 0..100 {
            if verdicts == wanted {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            verdicts = look(questions, &[]);
        }
        verdicts
    }

    fn inode(fd: &impl AsFd) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    #[test]
    fn one_holder_is_sole_and_two_are_not() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let object = Object::Socket { inode: inode(&a) };
        // This process counts as the server: its own descriptors do not matter.
        let first = Holder::of(&a);
        assert_eq!(ask(first.0.id(), object), Ok(()));
        assert_eq!(ask(first.0.id(), Object::Socket { inode: inode(&b) }), Err(ReasonT::Closed));
        let second = Holder::of(&a);
        assert_eq!(ask(first.0.id(), object), Err(ReasonT::SeveralHolders));
        drop(second);
        assert_eq!(ask(first.0.id(), object), Ok(()));
        assert_eq!(ask(1, object), Err(ReasonT::SeveralHolders), "held by another than the asker");
    }

    #[test]
    fn the_ends_of_a_pipe_are_told_apart() {
        let (reader, writer): (OwnedFd, OwnedFd) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let of = |writes| Object::Pipe { inode: inode(&reader), writes };
        let reading = Holder::of(&reader);
        let writing = Holder::of(&writer);
        assert_eq!(ask(reading.0.id(), of(false)), Ok(()));
        assert_eq!(ask(writing.0.id(), of(true)), Ok(()));
        assert_eq!(ask(writing.0.id(), of(false)), Err(ReasonT::SeveralHolders));
    }

    #[test]
    fn one_look_answers_many_questions() {
        let ends: Vec<_> =
            (0..3).map(|_| std::os::unix::net::UnixStream::pair().unwrap().0).collect();
        let holders: Vec<_> = ends.iter().map(Holder::of).collect();
        let question = |(end, holder): (&std::os::unix::net::UnixStream, &Holder)| Question {
            pid: holder.0.id(),
            object: Object::Socket { inode: inode(end) },
        };
        let questions: Vec<_> = ends.iter().zip(&holders).map(question).collect();
        assert_eq!(look_for(&questions, &[Ok(()); 3]), [Ok(()); 3]);
    }

    #[test]
    fn what_may_not_be_inspected_matters_if_it_is_kin() {
        // 10 is a session's leader, 11 and 12 its children; 20 another session; 13 (closed) is in
        // the session, 14 (closed) a child of 12 with a session of its own, 21 (closed) a child
        // of 20.
        let tree = [
            (10, 1, 10),
            (11, 10, 10),
            (12, 10, 10),
            (13, 10, 10),
            (14, 12, 14),
            (20, 1, 20),
            (21, 20, 21),
        ];
        let kin = tree.map(|(pid, parent, session)| (pid, Lineage { parent, session }));
        let object = Object::Socket { inode: 7 };
        let scan = |closed: &[u32]| Scan {
            servers: Vec::new(),
            holders: HashMap::from([(object, vec![11])]),
            kin: HashMap::from(kin),
            closed: closed.to_vec(),
        };
        let question = Question { pid: 11, object };
        assert_eq!(scan(&[]).verdict(question), Ok(()));
        assert_eq!(scan(&[13]).verdict(question), Err(ReasonT::HoldersUnknown));
        assert_eq!(scan(&[14]).verdict(question), Err(ReasonT::HoldersUnknown));
        assert_eq!(scan(&[20, 21]).verdict(question), Ok(()));
    }
}
