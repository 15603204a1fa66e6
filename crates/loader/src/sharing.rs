//! Children that share the guest's memory while their parent goes on: clone(2) with `CLONE_VM`, but
//! neither `CLONE_VFORK` nor `CLONE_THREAD`.
//!
//! Two processes cannot both be a thread of one C library. So such a child is *alone*: it makes its
//! calls itself, as without Sojourn, and has a block of its own for the few that must not reach the
//! kernel as they are. What it does with descriptors goes unseen, so the parent's sessions are home
//! from then on. Its block stays when it ends, because nobody tells. Not here: all other children
//! (`children`).

use crate::block::{Block, FRAME, Frame};
use crate::class::{Target, target};
use crate::guest::{self, guest};
use crate::raw::{self, refusal};
use crate::threads::Wanted;
use crate::{kinds, memory};
use core::arch::global_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};

global_asm!(
    ".pushsection .text.sojourn_share, \"ax\", @progbits",
    ".globl sojourn_share",
    ".hidden sojourn_share, sojourn_begin",
    // share(flags, frame, parent_number, child_number, block, mask): the child begins as the guest,
    // with its frame's address for a stack pointer.
    "sojourn_share:",
    "push rbx",
    "mov rbx, r9",
    "mov r10, rcx",
    "mov r9, r8",
    "xor r8d, r8d",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "pop rbx",
    "ret",
    "2: wrgsbase r9",
    "mov rdi, rsp",
    "mov rsi, rbx",
    "jmp sojourn_begin",
    ".popsection",
);

unsafe extern "C" {
    fn sojourn_share(
        flags: usize,
        frame: *mut Frame,
        parent_number: usize,
        child_number: usize,
        block: *mut c_void,
        mask: *const u64,
    ) -> isize;
}

/// Bytes of a child's block and stack.
const ROOM: usize = 32 << 10;

/// What a child has of its own, at the beginning of its room; its stack is behind it.
#[repr(C)]
struct Own {
    block: Block,
    mask: u64,
}

const _: () = assert!(size_of::<Own>() + FRAME < ROOM / 4);

/// Makes a child. Returns its number, or the kernel's error.
pub(crate) fn make(frame: &Frame, wanted: Wanted, is_structure: bool) -> isize {
    let flags = wanted.flags & !(libc::CLONE_SETTLS as usize);
    // What only clone3(2) can ask for; and a stack that both would use.
    let is_odd = is_structure && (wanted.has(libc::CLONE_PIDFD) || flags >> 32 != 0);
    if is_odd || wanted.stack == 0 {
        return refusal(libc::EINVAL);
    }
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let how = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: the kernel chooses an address that is not in use.
    let room = unsafe { raw::call(libc::SYS_mmap, [0, ROOM, access, how, usize::MAX, 0]) };
    let Ok(room) = usize::try_from(room) else { return room };
    close_library();
    let mask = raw::block_signals();
    let own = room as *mut Own;
    // SAFETY: the new mapping has room for all of it, and is aligned.
    let made = unsafe {
        let block = &raw mut (*own).block;
        block.write(Block::new(room + size_of::<Own>()..room + ROOM, room + ROOM));
        (*block).this = block;
        (*block).is_alone = true;
        (*block).kinds = kinds::all_but(&[libc::SYS_brk, libc::SYS_execve]);
        (&raw mut (*own).mask).write(mask);
        let place = (*block).next as *mut Frame;
        place.write(*frame);
        (*place).rax = 0;
        (*place).rsp = wanted.stack;
        if wanted.has(libc::CLONE_SETTLS) {
            (*place).fs = wanted.fs;
        }
        let [parent, child] = [wanted.parent_number, wanted.child_number];
        sojourn_share(flags, place, parent, child, block.cast(), &raw const (*own).mask)
    };
    raw::set_mask(mask);
    if made < 0 {
        // SAFETY: there is no child that uses it.
        unsafe { raw::call(libc::SYS_munmap, [room, ROOM, 0, 0, 0, 0]) };
    }
    made
}

/// Has all sessions go home, for good.
fn close_library() {
    static IS_CLOSED: AtomicBool = AtomicBool::new(false);
    if !IS_CLOSED.swap(true, Ordering::Relaxed) {
        (guest::door().vfork_begins)();
    }
}

/// Serves a call of such a child's, without the library.
#[cold]
pub(crate) fn serve(frame: &mut Frame) -> isize {
    let mut arguments = frame.arguments();
    match frame.rax as i64 {
        libc::SYS_brk => memory::grow_break(arguments[0]),
        libc::SYS_execve => {
            if matches!(target(arguments[0]), Target::Own) {
                arguments[0] = guest().file.as_ptr() as usize;
            }
            // SAFETY: the guest's own call.
            unsafe { raw::call(libc::SYS_execve, arguments) }
        }
        _ => {
            // The guest makes the call itself, by the `syscall` in front of where it goes on.
            frame.back -= 2;
            frame.rax as isize
        }
    }
}
