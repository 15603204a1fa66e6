//! The guest's children: fork(2), vfork(2), clone(2), clone3(2).
//!
//! The host's C library makes a child that has its own memory, because it prepares library and heap
//! for that. A child that shares the guest's memory while its parent waits is made by the guest's
//! own system call: no frame of the loader may be on a stack that both use. Not here: threads
//! (`threads`), children that share the memory of a parent that goes on (`sharing`).

use crate::block::{Block, Frame};
use crate::guest::{self, call};
use crate::raw::refusal;
use crate::threads::{self, Wanted};
use crate::{raw, sharing, trap};
use core::ffi::c_int;

/// A child with the properties that the guest asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    wanted: Wanted,
    /// The address and length of clone3's structure, for the kernel; `None` for the other calls.
    raw: Option<[usize; 2]>,
}

/// `struct clone_args` of its first version (clone(2), `CLONE_ARGS_SIZE_VER0`).
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

/// The most bytes that the kernel reads of the structure.
const PAGE: usize = 4096;

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

    /// Reads clone3's structure. Returns the kernel's error if the structure is missing or too
    /// short.
    pub(crate) fn of_clone3(arguments: &[usize; 6]) -> Result<Self, isize> {
        let [at, len, ..] = *arguments;
        if len < size_of::<Structure>() {
            return Err(refusal(libc::EINVAL));
        }
        if len > PAGE {
            return Err(refusal(libc::E2BIG));
        }
        if !raw::is_plausible(at) {
            return Err(refusal(libc::EFAULT));
        }
        // SAFETY: the guest's memory, as for the kernel; copied once.
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

/// Makes a thread or a child. Returns its number; 0 in the child.
#[inline(never)]
pub(crate) fn clone(frame: &mut Frame, block: &mut Block, asked: Asked) -> isize {
    let wanted = asked.wanted;
    if !makes_sense(wanted) {
        return refusal(libc::EINVAL);
    }
    if wanted.has(libc::CLONE_THREAD) {
        return threads::make(frame, wanted);
    }
    if wanted.has(libc::CLONE_VM) {
        if !wanted.has(libc::CLONE_VFORK) {
            return sharing::make(frame, wanted, asked.raw.is_some());
        }
        if !trap::is_trapped(frame.back) {
            return share(frame, block);
        }
    }
    fork(frame, block, asked)
}

/// Returns false for flags that the kernel refuses together (clone(2)), where it is not asked.
fn makes_sense(wanted: Wanted) -> bool {
    const NEW: c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWPID;
    let needs = |flag, other| !wanted.has(flag) || wanted.has(other);
    needs(libc::CLONE_THREAD, libc::CLONE_SIGHAND)
        && needs(libc::CLONE_SIGHAND, libc::CLONE_VM)
        && !(wanted.has(libc::CLONE_THREAD) && wanted.has(NEW))
}

/// Prepares vfork(2) and its relatives: the guest continues at its own `syscall` instruction.
fn share(frame: &mut Frame, block: &mut Block) -> isize {
    // In a child that shares memory itself, the library is closed already.
    if block.vforking == 0 {
        (guest::door().vfork_begins)();
        block.vforking = raw::process_number();
    }
    frame.back -= 2;
    frame.rax as isize
}

/// Notes the end of a child made by vfork(2). A child made by this thread is over when the parent
/// makes its next call.
#[cold]
pub(crate) fn look(block: &mut Block) {
    if block.vforking == raw::process_number() {
        block.vforking = 0;
        (guest::door().vfork_ends)();
    }
}

/// Flags that a child with its own memory may have and still be made by the C library's `fork`.
const OF_FORK: i32 =
    libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
/// Flags that the loader implements.
const OURS: i32 = OF_FORK | libc::CLONE_SETTLS | libc::CLONE_VM | libc::CLONE_VFORK;

fn fork(frame: &mut Frame, block: &mut Block, asked: Asked) -> isize {
    let wanted = asked.wanted;
    let rest = wanted.flags & !(OURS as usize);
    let child = match (asked.raw, rest == libc::SIGCHLD as usize) {
        (_, true) => {
            // SAFETY: the child continues as the guest, in its own memory.
            let child = unsafe { libc::fork() };
            // SAFETY: this thread's `errno`.
            if child < 0 { refusal(unsafe { *libc::__errno_location() }) } else { child as isize }
        }
        (None, false) => {
            // The number's address is also that of `CLONE_PIDFD` (clone(2)).
            let number = wanted.parent_number;
            // SAFETY: the guest's own call; a child with its own memory has a copy of this stack.
            unsafe { call(libc::SYS_clone, &[rest, 0, number, 0, 0, 0]) }
        }
        // On another stack the child could not continue in this function.
        (Some(_), false) if wanted.stack != 0 => refusal(libc::EINVAL),
        (Some([at, len]), false) => {
            // SAFETY: the guest's own call; a child with its own memory has a copy of this stack.
            unsafe { call(libc::SYS_clone3, &[at, len, 0, 0, 0, 0]) }
        }
    };
    if child > 0 && wanted.has(libc::CLONE_PARENT_SETTID) {
        // SAFETY: the guest's memory, as for the kernel.
        unsafe { (wanted.parent_number as *mut i32).write_unaligned(child as i32) };
    }
    if child == 0 {
        became_child(frame, block, wanted);
    }
    child
}

/// Completes the child's state, in the child, whose only thread this is.
fn became_child(frame: &mut Frame, block: &mut Block, wanted: Wanted) {
    threads::became_child();
    block.start = None;
    block.is_first = true;
    block.vforking = 0;
    block.robust = 0;
    block.cleared = core::ptr::null_mut();
    let at = wanted.child_number;
    if wanted.has(libc::CLONE_CHILD_SETTID) {
        // SAFETY: the guest's memory, as for the kernel.
        unsafe { (at as *mut i32).write_unaligned(raw::thread_number()) };
    }
    let cleared = if wanted.has(libc::CLONE_CHILD_CLEARTID) { at } else { 0 };
    // SAFETY: the kernel clears that word when the child's thread ends.
    unsafe { raw::call(libc::SYS_set_tid_address, [cleared, 0, 0, 0, 0, 0]) };
    if wanted.stack != 0 {
        frame.rsp = wanted.stack;
    }
    if wanted.has(libc::CLONE_SETTLS) {
        frame.fs = wanted.fs;
    }
    trap::arm();
}
