//! One submission of a ring: the descriptors that it concerns, and the messages to the library
//! about them.
//!
//! Opcodes and fields are those of include/uapi/linux/io_uring.h. An opcode that this file does not
//! know concerns the descriptor that it names, as nearly all opcodes do. Not here: the rings, and
//! the moments at which submissions are checked (`rings`).

use crate::library::{EpollEvent, Library};
use crate::{buffers, messages};
use libc::msghdr;

/// `IOSQE_FIXED_FILE`: the descriptor is an index into the registered files.
const FIXED_FILE: u8 = 1;
/// `IOSQE_IO_DRAIN`, `IOSQE_IO_LINK`, `IOSQE_IO_HARDLINK`: the submission waits for others, or
/// others wait for it.
const CHAINED: u8 = 2 | 4 | 8;
/// `SPLICE_F_FD_IN_FIXED`: the source is an index into the registered files.
const FROM_FIXED: u32 = 1 << 31;
/// The most descriptors that one call registers; the kernel has the same limit
/// (`IORING_MAX_FIXED_FILES`).
const FILES_MAX: usize = 1 << 20;

/// The opcodes `IORING_OP_…`.
mod op {
    pub(super) const NOP: u8 = 0;
    pub(super) const READV: u8 = 1;
    pub(super) const WRITE_FIXED: u8 = 5;
    pub(super) const POLL_REMOVE: u8 = 7;
    pub(super) const SYNC_FILE_RANGE: u8 = 8;
    pub(super) const SENDMSG: u8 = 9;
    pub(super) const TIMEOUT: u8 = 11;
    pub(super) const TIMEOUT_REMOVE: u8 = 12;
    pub(super) const ASYNC_CANCEL: u8 = 14;
    pub(super) const LINK_TIMEOUT: u8 = 15;
    pub(super) const FALLOCATE: u8 = 17;
    pub(super) const OPENAT: u8 = 18;
    pub(super) const CLOSE: u8 = 19;
    pub(super) const FILES_UPDATE: u8 = 20;
    pub(super) const STATX: u8 = 21;
    pub(super) const READ: u8 = 22;
    pub(super) const WRITE: u8 = 23;
    pub(super) const FADVISE: u8 = 24;
    pub(super) const MADVISE: u8 = 25;
    pub(super) const OPENAT2: u8 = 28;
    pub(super) const EPOLL_CTL: u8 = 29;
    pub(super) const SPLICE: u8 = 30;
    pub(super) const PROVIDE_BUFFERS: u8 = 31;
    pub(super) const REMOVE_BUFFERS: u8 = 32;
    pub(super) const TEE: u8 = 33;
    pub(super) const RENAMEAT: u8 = 35;
    pub(super) const LINKAT: u8 = 39;
    pub(super) const MSG_RING: u8 = 40;
    pub(super) const FSETXATTR: u8 = 41;
    pub(super) const SETXATTR: u8 = 42;
    pub(super) const FGETXATTR: u8 = 43;
    pub(super) const GETXATTR: u8 = 44;
    pub(super) const SOCKET: u8 = 45;
    pub(super) const SENDMSG_ZC: u8 = 48;
    pub(super) const WAITID: u8 = 50;
    pub(super) const FUTEX_WAITV: u8 = 53;
    pub(super) const FIXED_FD_INSTALL: u8 = 54;
    pub(super) const FTRUNCATE: u8 = 55;
    pub(super) const PIPE: u8 = 62;
}

/// `struct io_uring_sqe`. Fields have the names that they have for most opcodes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    rw_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    /// `splice_fd_in`; for `CLOSE`, the index of a registered file + 1.
    from: i32,
    rest: [u64; 2],
}

/// The subject of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// No descriptor that can be a session.
    Nothing,
    /// Up to two descriptors; a negative number means none.
    Numbers([i32; 2]),
    /// A descriptor that is closed.
    Close(i32),
    /// A change of an epoll set.
    Set,
    /// Descriptors that cannot be determined here.
    Unknown,
}

impl Submission {
    pub(super) fn concern(&self) -> Concern {
        match self.opcode {
            op::NOP | op::POLL_REMOVE | op::TIMEOUT | op::TIMEOUT_REMOVE | op::ASYNC_CANCEL => {
                Concern::Nothing
            }
            op::LINK_TIMEOUT | op::OPENAT | op::STATX | op::MADVISE | op::OPENAT2 => {
                Concern::Nothing
            }
            op::PROVIDE_BUFFERS | op::REMOVE_BUFFERS | op::SETXATTR | op::GETXATTR => {
                Concern::Nothing
            }
            op::RENAMEAT..=op::LINKAT | op::WAITID..=op::FUTEX_WAITV => Concern::Nothing,
            op::MSG_RING | op::SOCKET | op::PIPE => Concern::Nothing,
            op::CLOSE if self.from == 0 => Concern::Close(self.fd),
            op::CLOSE => Concern::Nothing,
            op::EPOLL_CTL => Concern::Set,
            op::FIXED_FD_INSTALL => Concern::Unknown,
            op::FILES_UPDATE => Concern::Numbers([-1, -1]),
            op::SPLICE | op::TEE if self.rw_flags & FROM_FIXED == 0 => {
                Concern::Numbers([self.number(), self.from])
            }
            _ => Concern::Numbers([self.number(), -1]),
        }
    }

    /// Returns the descriptor that the submission names; -1 for a registered file, whose session
    /// went home when the file was registered.
    fn number(&self) -> i32 {
        if self.flags & FIXED_FILE == 0 { self.fd } else { -1 }
    }

    /// Returns true if the submission waits for no other, and no other waits for it.
    pub(super) fn is_alone(&self) -> bool {
        self.flags & CHAINED == 0 && self.personality == 0
    }

    /// Returns true if the submission is a file operation and stays harmless even if its descriptor
    /// is replaced later. `concern` is the result of [`Submission::concern`].
    pub(super) fn is_of_files(&self, concern: &Concern) -> bool {
        match concern {
            Concern::Nothing => true,
            Concern::Close(fd) => !is_stream(*fd),
            Concern::Set | Concern::Unknown => false,
            Concern::Numbers([fd, _]) => {
                let is_known = matches!(
                    self.opcode,
                    op::READV
                        ..=op::WRITE_FIXED
                            | op::SYNC_FILE_RANGE
                            | op::FALLOCATE
                            | op::READ
                            | op::WRITE
                            | op::FADVISE
                            | op::FSETXATTR
                            | op::FGETXATTR
                            | op::FTRUNCATE
                );
                is_known && self.flags & FIXED_FILE == 0 && !is_stream(*fd)
            }
        }
    }

    /// Moves the sessions that the submission concerns into the kernel for good.
    pub(super) fn send_home(&self, library: &'static Library, concern: &Concern) {
        match concern {
            Concern::Nothing | Concern::Unknown => {}
            Concern::Close(fd) => library.closing(*fd),
            Concern::Set => {
                library.ring_uses(self.fd);
                library.ring_uses(self.offset as i32);
            }
            Concern::Numbers(numbers) => {
                numbers.iter().filter(|fd| **fd >= 0).for_each(|fd| library.ring_uses(*fd));
                if self.opcode == op::FILES_UPDATE {
                    files(library, self.address as usize, self.len as usize);
                }
                if matches!(self.opcode, op::SENDMSG | op::SENDMSG_ZC) {
                    // SAFETY: plain data, which the program leaves alone until it is sent.
                    let header = unsafe { buffers::structure(self.address as *const msghdr) };
                    if let Some(header) = header.filter(|header| !header.msg_control.is_null()) {
                        messages::each_passed(&header, |fd| library.passing(fd));
                    }
                }
            }
        }
    }

    /// Makes the submitted change of an epoll set. Returns false if the change is not possible;
    /// then the kernel reports the error.
    pub(super) fn change_set(&self, library: &'static Library) -> bool {
        let change = self.len as i32;
        // SAFETY: plain data, which the program leaves alone until it is submitted.
        let event = unsafe { buffers::structure(self.address as *const EpollEvent) };
        if self.flags & FIXED_FILE != 0 || event.is_none() && change != libc::EPOLL_CTL_DEL {
            return false;
        }
        library.epoll_ctl(self.fd, change, self.offset as i32, event.as_ref()).is_ok()
    }

    /// Returns a submission that does nothing in place of this one, with the same flags and the
    /// same `user_data`.
    pub(super) fn done(&self) -> Self {
        Self {
            opcode: op::NOP,
            priority: 0,
            fd: -1,
            offset: 0,
            address: 0,
            len: 0,
            rw_flags: 0,
            buffer: 0,
            from: 0,
            rest: [0; 2],
            ..*self
        }
    }
}

/// Returns true if `fd` is a socket or a pipe.
fn is_stream(fd: i32) -> bool {
    let Ok(fd) = u32::try_from(fd) else { return false };
    matches!(crate::raw::mode(fd as usize) & libc::S_IFMT, libc::S_IFSOCK | libc::S_IFIFO)
}

/// Sends home the sessions of descriptors that a ring registers: the ring then uses them without
/// their numbers.
fn files(library: &'static Library, at: usize, count: usize) {
    // SAFETY: plain data, which the program leaves alone during the call.
    let all = unsafe { buffers::structures(at as *const i32, count.min(FILES_MAX)) };
    all.unwrap_or_default().iter().filter(|fd| **fd >= 0).for_each(|fd| library.ring_uses(*fd));
}

/// Handles io_uring_register(2) with operation `what`. Returns false if the operation makes the
/// ring unseen, or may do so.
pub(super) fn register(library: &'static Library, what: usize, at: usize, count: usize) -> bool {
    const FILES: usize = 2;
    const FILES_UPDATE: usize = 6;
    const FILES2: usize = 13;
    const FILES_UPDATE2: usize = 14;
    const RING_FDS: usize = 20;
    /// The last operation that this file knows. All up to it change nothing here, except those
    /// listed.
    const LAST: usize = 32;
    const SEND_MSG_RING: usize = 31;
    // SAFETY: plain data, which the program leaves alone during the call; the structures consist of
    // 8-byte words.
    let words = |number| unsafe { buffers::structures(at as *const u64, number) };
    match what {
        FILES => files(library, at, count),
        // `struct io_uring_files_update`: the offset, then the address of the descriptors.
        FILES_UPDATE => {
            words(2).into_iter().for_each(|of| files(library, of[1] as usize, count));
        }
        // `struct io_uring_rsrc_register`: the count and flags, a reserved word, the address of the
        // descriptors.
        FILES2 => {
            words(4)
                .into_iter()
                .for_each(|of| files(library, of[2] as usize, of[0] as u32 as usize));
        }
        // `struct io_uring_rsrc_update2`: the offset, the address of the descriptors, the address
        // of the tags, the count.
        FILES_UPDATE2 => {
            words(4)
                .into_iter()
                .for_each(|of| files(library, of[1] as usize, of[3] as u32 as usize));
        }
        RING_FDS | SEND_MSG_RING => return false,
        other => return other <= LAST,
    }
    true
}
