//! The guest's threads: each is a thread of the host's C library, which jumps to the guest's stack.
//!
//! In this way the library finds its thread-local storage in each thread. The loader does the
//! kernel's work for the guest's thread: `CLONE_SETTLS`, `CLONE_PARENT_SETTID`,
//! `CLONE_CHILD_SETTID` and `CLONE_CHILD_CLEARTID` (clone(2)), and the list of robust mutexes
//! (`robust`). Not here: processes (`children`).

mod robust;

use crate::block::{Block, FRAME, Frame, here};
use crate::enter;
use crate::guest;
use crate::{raw, trap};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the host's stack of each thread.
pub(crate) const STACK: usize = 256 << 10;
/// Bytes of the host's stack that are in use above the guest's first frame.
const USED: usize = 4096;

/// The most bytes that other things take at the top of a stack: the C library's own data and
/// thread-local storage.
const MARGIN: usize = 32 << 10;

/// A thread with the properties that clone(2) describes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The flags `CLONE_...`.
    pub(crate) flags: usize,
    /// The thread's first stack pointer; 0 for that of the calling thread.
    pub(crate) stack: usize,
    /// The address of `CLONE_PARENT_SETTID`.
    pub(crate) parent_number: usize,
    /// The address of `CLONE_CHILD_SETTID` and `CLONE_CHILD_CLEARTID`.
    pub(crate) child_number: usize,
    /// The thread's FS base (`CLONE_SETTLS`).
    pub(crate) fs: usize,
}

impl Wanted {
    pub(crate) fn has(&self, flag: c_int) -> bool {
        self.flags & flag as usize != 0
    }
}

/// The arguments of a new thread. They lie on the stack of the calling thread, which waits.
struct Start {
    frame: Frame,
    wanted: Wanted,
    mask: u64,
    /// The thread's number; 0 until it has begun.
    number: AtomicU32,
}

/// Makes a thread. Returns its number, or the kernel's error.
#[inline(never)]
pub(crate) fn make(frame: &Frame, wanted: Wanted) -> isize {
    let mut own = *frame;
    own.rax = 0;
    if wanted.stack != 0 {
        own.rsp = wanted.stack;
    }
    if wanted.has(libc::CLONE_SETTLS) {
        own.fs = wanted.fs;
    }
    let mask = raw::block_signals();
    let mut start = Start { frame: own, wanted, mask, number: AtomicU32::new(0) };
    let made = create(&mut start);
    if made == 0 {
        wait(&start.number);
    }
    raw::set_mask(mask);
    match made {
        0 => start.number.load(Ordering::Relaxed) as isize,
        error => -(error as isize),
    }
}

fn create(start: &mut Start) -> c_int {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let at = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialized first.
    unsafe {
        libc::pthread_attr_init(at);
        libc::pthread_attr_setdetachstate(at, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(at, STACK);
        let start = core::ptr::from_mut(start).cast();
        let made = libc::pthread_create(thread.as_mut_ptr(), at, run, start);
        libc::pthread_attr_destroy(at);
        made
    }
}

/// Waits until a word is not 0.
fn wait(word: &AtomicU32) {
    // SYNC: acquire; pairs with the release in `run`: the thread has read `Start` and written its
    // number.
    while word.load(Ordering::Acquire) == 0 {
        let at = (&raw const *word) as usize;
        let arguments = [at, (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize, 0, 0, 0, 0];
        // SAFETY: waits only while the word is 0.
        unsafe { raw::call(libc::SYS_futex, arguments) };
    }
}

/// The start function of a thread, which begins with all signals blocked.
extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: the calling thread waits, so that `Start` lives until `number` is set.
    let start = unsafe { &*start.cast::<Start>() };
    let Start { frame, wanted, mask, .. } = *start;
    let local = 0u8;
    let top = (&raw const local) as usize;
    let mut block = Block::new(top - STACK + MARGIN..top, top - USED);
    let block = &mut block;
    block.host_robust = robust::list();
    if wanted.has(libc::CLONE_CHILD_CLEARTID) {
        block.cleared = wanted.child_number as *mut u32;
    }
    block.install();
    let number = raw::thread_number().cast_unsigned();
    for (flag, at) in [
        (libc::CLONE_PARENT_SETTID, wanted.parent_number),
        (libc::CLONE_CHILD_SETTID, wanted.child_number),
    ] {
        if wanted.has(flag) {
            // SAFETY: the guest's memory, as for the kernel.
            unsafe { (at as *mut u32).write_volatile(number) };
        }
    }
    trap::arm();
    // SYNC: release; pairs with the acquire in `wait`.
    start.number.store(number, Ordering::Release);
    let word = &raw const start.number;
    // `Start` may be gone already, if the calling thread did not have to wait; then no thread is
    // woken.
    private_wake(word.cast());
    let place = block.next as *mut Frame;
    const { assert!(FRAME < USED) };
    // SAFETY: the frame's place is on this stack, below all that is in use.
    unsafe {
        place.write(frame);
        enter::begin(place, mask);
    }
    core::ptr::null_mut()
}

fn private_wake(word: *const u32) {
    let how = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: wakes threads, and does not access the word.
    unsafe { raw::call(libc::SYS_futex, [word as usize, how, 1, 0, 0, 0]) };
}

/// Serves exit(2): ends the guest's thread.
pub(crate) fn end(status: usize) -> ! {
    let block = here();
    (guest::door().thread_ends)(status as c_int);
    if block.is_first {
        loop {
            // SAFETY: ends the thread, as the guest asks; the kernel has the thread's lists.
            unsafe { raw::call(libc::SYS_exit, [status, 0, 0, 0, 0, 0]) };
        }
    }
    // From here on the guest considers this thread gone.
    raw::block_signals();
    robust::end(block);
    if !block.cleared.is_null() {
        // SAFETY: the guest's memory, as for the kernel.
        unsafe { block.cleared.write_volatile(0) };
        raw::wake(block.cleared, 1);
    }
    // SAFETY: the frames from here to `run` have nothing to drop.
    unsafe { enter::leave() }
}

/// Serves set_tid_address(2).
pub(crate) fn clear_at(block: &mut Block, arguments: &[usize; 6]) -> isize {
    if block.is_first {
        // SAFETY: the kernel clears the word when the thread ends.
        return unsafe { raw::call(libc::SYS_set_tid_address, *arguments) };
    }
    block.cleared = arguments[0] as *mut u32;
    raw::thread_number() as isize
}

/// Serves set_robust_list(2). The kernel keeps the guest's list while the thread runs, in case the
/// thread is killed.
pub(crate) fn set_robust(block: &mut Block, arguments: &[usize; 6]) -> isize {
    // SAFETY: the guest's list, as for the kernel.
    let result = unsafe { raw::call(libc::SYS_set_robust_list, *arguments) };
    if result == 0 {
        block.robust = arguments[0];
    }
    result
}

/// The C library's internal signals: `SIGCANCEL` and `SIGSETXID`.
const INTERNAL: [usize; 2] = [32, 33];

/// Prepares for a handler of the guest's for `signal`. The host's C library installs handlers for
/// its internal signals when they are first needed. Making a thread now lets it do so before the
/// guest does, not over the guest's handler.
pub(crate) fn settle(signal: usize) {
    static IS_SETTLED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
        core::ptr::null_mut()
    }
    if !INTERNAL.contains(&signal) || IS_SETTLED.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let mask = raw::block_signals();
    // SAFETY: makes a thread that ends at once.
    unsafe {
        let nobody = core::ptr::null_mut();
        if libc::pthread_create(thread.as_mut_ptr(), core::ptr::null(), nothing, nobody) == 0 {
            libc::pthread_join(thread.assume_init(), core::ptr::null_mut());
        }
    }
    raw::set_mask(mask);
}
