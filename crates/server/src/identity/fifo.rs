//! Pipes with a name: what tells that the name is removed.
//!
//! A file system in user space might never answer. What a FIFO is the kernel says from what it
//! knows already (`AT_STATX_DONT_SYNC`, statx(2)). Its file system is asked for its kind once,
//! where that harms nobody but who offers the end ([`Fifo::is_kernels`]): the watch that names it
//! (`pins`) asks for the right to read it, and must not wait for a file system of a user's (FUSE
//! with `default_permissions`), of another host's, or one that asks others (overlayfs). Not here:
//! what else keeps a pipe in the kernel (`identity`), who else holds it (`holders`).

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, FileType, StatxFlags, fstatfs, statx};
use sojourn_session::Inode;

/// The end of the name of a file in `/proc` whose last path was removed (proc(5), `/proc/pid/fd`).
/// A file may be called so as well.
const DELETED: &[u8] = b" (deleted)";

/// The file systems that know rights to their files without asking anybody (`linux/magic.h`, and of
/// XFS `xfs_format.h`): tmpfs, ext4, XFS, btrfs, F2FS.
const KERNELS: [u32; 5] = [0x0102_1994, 0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010];

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

    /// Returns true if the pipe is in a file system that answers by itself. The file system is
    /// asked, in the process that looks for this user (`proxy`): `end` is the pipe's.
    pub(super) fn is_kernels(end: BorrowedFd<'_>) -> bool {
        // The kinds have 32 bits; some C libraries extend their sign.
        fstatfs(end).is_ok_and(|found| KERNELS.contains(&(found.f_type as u32)))
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
