//! Pipes with a name: what tells that the name is removed.
//!
//! Nothing here makes a file system answer, which one in user space might never do: the kernel says
//! what it knows already (`AT_STATX_DONT_SYNC`, statx(2)). Not here: what else keeps a pipe in the
//! kernel (`identity`), who else holds it (`holders`).

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use sojourn_session::Inode;

/// The end of the name of a file in `/proc` whose last path was removed (proc(5), `/proc/pid/fd`).
/// A file may be called so as well.
const DELETED: &[u8] = b" (deleted)";

/// A pipe with a name, or that once had one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fifo {
    pub(super) inode: Inode,
    links: u32,
}

impl Fifo {
    /// Returns true if no path leads to the pipe any more, so that nobody can open it by one.
    /// `name` is what `/proc` calls the descriptor. A count of no links alone would not do: some
    /// file systems in user space always say that. Once there is none, none can be made (link(2),
    /// `ENOENT`). What is left are `/proc/pid/fd`, as for any pipe, and a mount of the very file:
    /// who uses these is noticed by the pin (`pins`).
    pub(super) fn is_nameless(self, name: &[u8]) -> bool {
        self.links == 0 && name.ends_with(DELETED)
    }
}

/// Returns what is known of a pipe with a name; `None` for any other object.
pub(super) fn at(end: BorrowedFd<'_>) -> Option<Fifo> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK;
    let found = statx(end, c"", flags, wanted).ok()?;
    let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
    let is_fifo = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Fifo;
    (is_known && is_fifo).then_some(Fifo { inode: Inode(found.stx_ino), links: found.stx_nlink })
}

/// Returns true for a pipe that has a name, or once had one. Never waits.
pub fn is_fifo(end: BorrowedFd<'_>) -> bool {
    at(end).is_some()
}
