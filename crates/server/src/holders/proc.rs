//! What `/proc` tells of processes: their users, kin, and tables of descriptors.
//!
//! Not here: the look at all of them (`holders`), whose share it goes on (`shares`).

use core::mem::MaybeUninit;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::process::Uid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};
use sojourn_session::ProcessId;

/// The name of the process name space that has all processes of the host (`PROC_PID_INIT_INO`).
const FIRST_SPACE: &str = "pid:[4026531836]";

/// Returns the user as which a process runs now; `None` if it has ended, or `/proc` does not show
/// it.
#[must_use]
pub fn user_of(pid: ProcessId) -> Option<Uid> {
    // The owner of the process's directory is no help: it is root for programs that have changed
    // their user.
    user_at(pid, 1)
}

/// Returns the user who started a process, or as whom it has made itself run; `None` as of
/// [`user_of`].
fn real_user_of(pid: ProcessId) -> Option<Uid> {
    user_at(pid, 0)
}

/// Returns the real (0) or effective (1) user of a process.
fn user_at(pid: ProcessId, at: usize) -> Option<Uid> {
    let text = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The line has the real, effective, saved and file system user.
    let users = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(at)?.parse().ok().map(Uid::from_raw_unchecked)
}

/// Returns the user on whose share a look at a process goes. The owner of its table (`table`) is
/// its effective user, or root if it may not be inspected: then it is who started it, since anybody
/// can start programs that run as root.
pub(super) fn payer(pid: ProcessId, table: impl AsFd) -> Option<Uid> {
    let owner = Uid::from_raw(rustix::fs::fstat(table).ok()?.st_uid);
    if owner.is_root() { real_user_of(pid) } else { Some(owner) }
}

/// The parent and session of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lineage {
    pub(super) parent: ProcessId,
    pub(super) session: ProcessId,
}

/// Room for the names of a directory. Most directories fit, and take one system call; the others
/// take one for each piece.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<u8>);

impl Names {
    const LEN: usize = 16 << 10;

    pub(super) fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        self.0.clear();
        self.0.reserve(Self::LEN);
        self.0.spare_capacity_mut()
    }
}

pub(super) fn open_directory(
    at: impl AsFd,
    path: impl rustix::path::Arg,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

/// Returns true if the numbers in `/proc` are those of this process name space. They are another's
/// where a name space was made without a `/proc` of its own.
pub(super) fn shows_own_space() -> bool {
    let own = rustix::fs::readlink("/proc/self", Vec::new());
    own.is_ok_and(|own| number(own.as_bytes()) == Some(ProcessId::own().0))
}

/// Returns true if a process has more than one thread. The directory of its threads has two links
/// of its own and one for each.
pub(super) fn has_threads(proc: &OwnedFd, pid: ProcessId) -> Result<bool, Errno> {
    let tasks = statat(proc, format!("{pid}/task"), AtFlags::empty())?;
    Ok(tasks.st_nlink > 3)
}

/// Returns parent and session of a process; `None` if it has ended.
pub(super) fn kin_of(pid: ProcessId) -> Option<Lineage> {
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
pub(super) fn hides_processes() -> bool {
    let looks = |held: CapabilitySets| held.effective.contains(CapabilitySet::SYS_PTRACE);
    if rustix::process::geteuid().is_root() || capabilities(None).is_ok_and(looks) {
        return false;
    }
    // Process 1 belongs to root and always exists.
    std::fs::read("/proc/1/stat").is_err()
}

/// Returns true if no process of the host is outside this process name space.
pub(super) fn sees_all_processes() -> bool {
    let space = rustix::fs::readlink("/proc/self/ns/pid", Vec::new());
    space.is_ok_and(|space| space.as_bytes() == FIRST_SPACE.as_bytes())
}

pub(super) fn bracketed(link: &[u8], prefix: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn number(digits: &[u8]) -> Option<u32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}
