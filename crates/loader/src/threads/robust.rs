//! Robust mutexes of a thread that ends: the kernel's work at the end of a thread
//! (`exit_robust_list` in kernel/futex/core.c), done while the thread is still the host's.

use crate::block::Block;
use crate::raw;

/// `struct robust_list_head`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    first: usize,
    offset: isize,
    pending: usize,
}

/// `ROBUST_LIST_LIMIT` of include/uapi/linux/futex.h: the kernel follows at most this many entries.
const MOST: usize = 2048;
const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const OWNER: u32 = 0x3fff_ffff;

/// Returns this thread's list and its length, as the kernel has them (get_robust_list(2)).
pub(super) fn list() -> [usize; 2] {
    let mut found = [0usize; 2];
    let at = &raw mut found;
    let arguments = [0, at as usize, at as usize + size_of::<usize>(), 0, 0, 0];
    // SAFETY: `found` has room for both words.
    unsafe { raw::call(libc::SYS_get_robust_list, arguments) };
    found
}

/// Copies from the guest's memory, which may be inaccessible by now.
fn copied<T: Copy>(at: usize) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    let len = size_of::<T>();
    let local = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: len };
    let (local, remote) = ((&raw const local) as usize, (&raw const remote) as usize);
    let process = raw::process_number() as usize;
    // SAFETY: copies into `value` only.
    let got = unsafe { raw::call(libc::SYS_process_vm_readv, [process, local, 1, remote, 1, 0]) };
    // SAFETY: all bytes were written; only plain data is copied this way.
    (got == len as isize).then(|| unsafe { value.assume_init() })
}

/// Gives up the mutexes that the thread holds, and gives the kernel the host's list again.
pub(super) fn end(block: &mut Block) {
    if block.robust == 0 {
        return;
    }
    // SAFETY: the thread's own list, which the guest has given to the kernel.
    let head = unsafe { (block.robust as *const Head).read_unaligned() };
    // The list is mostly empty, and a guest may have forbidden the call that `copied` makes.
    if head.first & !1 != block.robust || head.pending != 0 {
        walk(block.robust, head);
    }
    let [at, len] = block.host_robust;
    // SAFETY: the host's own list.
    unsafe { raw::call(libc::SYS_set_robust_list, [at, len, 0, 0, 0, 0]) };
    block.robust = 0;
}

fn walk(at: usize, head: Head) {
    let give = |entry: usize| died(((entry & !1).wrapping_add_signed(head.offset)) as *mut u32);
    let mut entry = head.first;
    for _ in 0..MOST {
        if entry & !1 == at {
            break;
        }
        let next = copied::<usize>(entry & !1);
        if entry & !1 != head.pending & !1 {
            give(entry);
        }
        let Some(next) = next else { break };
        entry = next;
    }
    if head.pending != 0 {
        give(head.pending);
    }
}

/// Marks a mutex whose owner is this thread as the mutex of a dead owner, and wakes a waiter.
fn died(word: *mut u32) {
    let Some(value) = copied::<u32>(word as usize) else { return };
    if value & OWNER != raw::thread_number().cast_unsigned() {
        return;
    }
    // SAFETY: readable a moment ago; the guest's memory, as for the kernel.
    let word = unsafe { core::sync::atomic::AtomicU32::from_ptr(word) };
    use core::sync::atomic::Ordering::SeqCst;
    let mark = |now: u32| (now & OWNER == value & OWNER).then_some(now & WAITERS | OWNER_DIED);
    if word.fetch_update(SeqCst, SeqCst, mark).is_ok_and(|before| before & WAITERS != 0) {
        raw::wake(word.as_ptr(), 1);
    }
}
