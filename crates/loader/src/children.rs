//! The guest's children: fork(2), vfork(2), clone(2), clone3(2).
//!
//! A child with its own memory is made as the host's C library makes one, which has library and
//! heap in order. One that shares the guest's memory while its parent waits is made by the guest's
//! own system call: nothing of ours may be on any stack that both use.

use crate::block::{Block, Frame};
use crate::guest::{call, guest};
use crate::raw::refusal;
use crate::threads::{self, Wanted};
use crate::{raw, trap};

/// A child as it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    wanted: Wanted,
    /// The arguments as they came, for the kernel; clone3's are a structure.
    raw: Option<[usize; 2]>,
}

/// `struct clone_args`, as much as its first version has.
#[repr(C)]
#[derive(Clone, Copy)]
struct Structure {
    flags: u64,
    pidfd: u64,
    child_number: u64,
    parent_number: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

impl Asked {
    fn plain(flags: i32) -> Self {
        let flags = flags as usize;
        let wanted = Wanted { flags, stack: 0, parent_number: 0, child_number: 0, fs: 0 };
        Self { wanted, raw: None }
    }

    pub(crate) fn fork() -> Self {
        Self::plain(libc::SIGCHLD)
    }

    pub(crate) fn vfork() -> Self {
        Self::plain(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD)
    }

    pub(crate) fn of_clone(arguments: &[usize; 6]) -> Self {
        let [flags, stack, parent_number, child_number, fs, _] = *arguments;
        let flags = flags & 0xffff_ffff;
        Self { wanted: Wanted { flags, stack, parent_number, child_number, fs }, raw: None }
    }

    /// Reads the structure; an error of the kernel's if there is none.
    pub(crate) fn of_clone3(arguments: &[usize; 6]) -> Result<Self, isize> {
        let [at, len, ..] = *arguments;
        if len < size_of::<Structure>() {
            return Err(refusal(libc::EINVAL));
        }
        if at == 0 {
            return Err(refusal(libc::EFAULT));
        }
        // SAFETY: the guest's own, as for the kernel; copied once.
        let asked = unsafe { (at as *const Structure).read_unaligned() };
        let stack = match asked.stack {
            0 => 0,
            lowest => (lowest + asked.stack_size) as usize,
        };
        let wanted = Wanted {
            flags: (asked.flags | asked.exit_signal) as usize,
            stack,
            parent_number: asked.parent_number as usize,
            child_number: asked.child_number as usize,
            fs: asked.tls as usize,
        };
        Ok(Self { wanted, raw: Some([at, len]) })
    }
}

/// Makes a thread or a child; in the child 0.
#[inline(never)]
pub(crate) fn clone(frame: &mut Frame, block: &mut Block, asked: Asked) -> isize {
    let wanted = asked.wanted;
    if wanted.has(libc::CLONE_THREAD) {
        return threads::make(frame, wanted);
    }
    if wanted.has(libc::CLONE_VM) {
        // Two processes in one memory, at a time, would both be this thread to the host.
        if !wanted.has(libc::CLONE_VFORK) {
            return refusal(libc::EINVAL);
        }
        if !trap::is_trapped(frame.back) {
            return share(frame, block);
        }
    }
    fork(frame, block, asked)
}

/// vfork(2) and its kind: the guest goes on at its own `syscall` instruction.
fn share(frame: &mut Frame, block: &mut Block) -> isize {
    // In a child that shares memory itself, the library is closed already.
    if block.vforking == 0 {
        (guest().door.vfork_begins)();
        block.vforking = raw::process_number();
    }
    frame.back -= 2;
    frame.rax as isize
}

/// A child made by this thread may be over, which the parent finds at its next call.
#[cold]
pub(crate) fn look(block: &mut Block) {
    if block.vforking == raw::process_number() {
        block.vforking = 0;
        (guest().door.vfork_ends)();
    }
}

/// What a child with its own memory may have asked for and still be the C library's `fork`.
const OF_FORK: i32 =
    libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
/// What is done here.
const OURS: i32 = OF_FORK | libc::CLONE_SETTLS | libc::CLONE_VM | libc::CLONE_VFORK;

fn fork(frame: &mut Frame, block: &mut Block, asked: Asked) -> isize {
    let wanted = asked.wanted;
    let rest = wanted.flags & !(OURS as usize);
    let child = match (asked.raw, rest == libc::SIGCHLD as usize) {
        (_, true) => {
            // SAFETY: the child goes on as the guest, in its own memory.
            let child = unsafe { libc::fork() };
            // SAFETY: the C library's error.
            if child < 0 { refusal(unsafe { *libc::__errno_location() }) } else { child as isize }
        }
        (None, false) => {
            // Also where the child's descriptor goes.
            let number = wanted.parent_number;
            // SAFETY: the guest's own call; with its own memory the child has this stack, too.
            unsafe { call(libc::SYS_clone, &[rest, 0, number, 0, 0, 0]) }
        }
        // A stack of its own would take it away from here.
        (Some(_), false) if wanted.stack != 0 => refusal(libc::EINVAL),
        (Some([at, len]), false) => {
            // SAFETY: as above.
            unsafe { call(libc::SYS_clone3, &[at, len, 0, 0, 0, 0]) }
        }
    };
    if child > 0 && wanted.has(libc::CLONE_PARENT_SETTID) {
        // SAFETY: the guest's own, as for the kernel.
        unsafe { (wanted.parent_number as *mut i32).write_unaligned(child as i32) };
    }
    if child == 0 {
        became_child(frame, block, wanted);
    }
    child
}

/// This is the child, and its only thread.
fn became_child(frame: &mut Frame, block: &mut Block, wanted: Wanted) {
    block.is_first = true;
    block.vforking = 0;
    block.robust = 0;
    block.cleared = core::ptr::null_mut();
    let at = wanted.child_number;
    if wanted.has(libc::CLONE_CHILD_SETTID) {
        // SAFETY: the guest's own, as for the kernel.
        unsafe { (at as *mut i32).write_unaligned(raw::thread_number()) };
    }
    let cleared = if wanted.has(libc::CLONE_CHILD_CLEARTID) { at } else { 0 };
    // SAFETY: cleared when the child's thread ends.
    unsafe { raw::call(libc::SYS_set_tid_address, [cleared, 0, 0, 0, 0, 0]) };
    if wanted.stack != 0 {
        frame.rsp = wanted.stack;
    }
    if wanted.has(libc::CLONE_SETTLS) {
        frame.fs = wanted.fs;
    }
    trap::arm();
}
