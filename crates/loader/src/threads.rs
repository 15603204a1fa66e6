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
use crate::handed::{HandedSlots, Taken};
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

    /// Returns flags for unshare(2): what the thread does not share with its maker. The C library's
    /// threads share all of it.
    fn apart(&self) -> usize {
        (libc::CLONE_FILES | libc::CLONE_FS) as usize & !self.flags
    }
}

/// What a new thread begins with.
#[derive(Clone, Copy)]
struct Start {
    frame: Frame,
    wanted: Wanted,
    mask: u64,
    /// The word for the thread's number once it has begun, on the stack of the maker, which waits;
    /// null if the maker does not wait.
    begun: *const AtomicU32,
}

// SAFETY: the word is accessed only while its maker waits.
unsafe impl Send for Start {}

static STARTS: HandedSlots<Start> = HandedSlots::new();

/// Makes a thread. Returns its number, or the kernel's error.
///
/// A maker that wants the number in the guest's memory waits until the thread has begun and has
/// written it: later the thread may have ended, and that memory be gone. Others do not wait.
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
    let begun = AtomicU32::new(0);
    // What is copied for the thread is copied now, before its maker goes on.
    let waits = wanted.has(libc::CLONE_PARENT_SETTID) || wanted.apart() != 0 || !tells_numbers();
    let mask = raw::block_signals();
    let start =
        Start { frame: own, wanted, mask, begun: if waits { &begun } else { core::ptr::null() } };
    let made = STARTS.put(start).ok_or(libc::EAGAIN).and_then(|taken| {
        let made = create(taken);
        if waits && made.is_ok() {
            wait(&begun);
        }
        // The thread does not end before `made`.
        let number = made.map(|thread| match begun.load(Ordering::Relaxed) {
            0 => number_of(thread).unwrap_or(u32::MAX >> 1),
            number => number,
        });
        STARTS.made(taken, made.is_ok());
        number
    });
    raw::set_mask(mask);
    made.map_or_else(|error| -(error as isize), |number| number as isize)
}

fn create(taken: Taken) -> Result<libc::pthread_t, c_int> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let at = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialized first; the C library sets `thread` if it makes one.
    unsafe {
        libc::pthread_attr_init(at);
        libc::pthread_attr_setdetachstate(at, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(at, STACK);
        let made = libc::pthread_create(thread.as_mut_ptr(), at, run, taken.into_pointer());
        libc::pthread_attr_destroy(at);
        if made == 0 { Ok(thread.assume_init()) } else { Err(made) }
    }
}

/// Returns the number of a thread that has not ended, which the C library does not tell otherwise:
/// it is a part of the number of its clock (clock_getcpuclockid(3); the kernel's encoding).
fn number_of(thread: libc::pthread_t) -> Option<u32> {
    const OF_THREAD: libc::clockid_t = 6;
    let mut clock = 0;
    // SAFETY: the caller answers for the thread.
    let found = unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } == 0;
    (found && clock & 7 == OF_THREAD).then_some(!(clock >> 3) as u32)
}

/// Returns true if [`number_of`] works, as for this thread.
fn tells_numbers() -> bool {
    static TELLS: AtomicU32 = AtomicU32::new(0);
    if TELLS.load(Ordering::Relaxed) == 0 {
        // SAFETY: no arguments, no effect.
        let tells = number_of(unsafe { libc::pthread_self() });
        let is_right = tells == Some(raw::thread_number().cast_unsigned());
        TELLS.store(if is_right { 1 } else { 2 }, Ordering::Relaxed);
    }
    TELLS.load(Ordering::Relaxed) == 1
}

/// Waits until a word is not 0.
fn wait(word: &AtomicU32) {
    // SYNC: acquire; pairs with the release in `run`: the thread has written its number.
    while word.load(Ordering::Acquire) == 0 {
        let at = (&raw const *word) as usize;
        let arguments = [at, (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize, 0, 0, 0, 0];
        // SAFETY: waits only while the word is 0.
        unsafe { raw::call(libc::SYS_futex, arguments) };
    }
}

/// The start function of a thread. It begins with all signals blocked but the C library's own two,
/// which pthread_create(3) opens in every new thread. They are the guest's here, and have no frame
/// to interrupt before [`enter::begin`].
extern "C" fn run(start: *mut c_void) -> *mut c_void {
    raw::block_signals();
    let taken = Taken::from_pointer(start);
    let Start { frame, wanted, mask, begun } = STARTS.take(taken);
    let local = 0u8;
    let top = (&raw const local) as usize;
    let mut block = Block::new(top - STACK + MARGIN..top, top - USED);
    let block = &mut block;
    block.host_robust = robust::list();
    block.start = Some(taken);
    if wanted.has(libc::CLONE_CHILD_CLEARTID) {
        block.cleared = wanted.child_number as *mut u32;
    }
    block.install();
    if wanted.apart() != 0 {
        // SAFETY: gives this thread copies. The library, which knows one table, stands down.
        unsafe { guest::call(libc::SYS_unshare, &[wanted.apart(), 0, 0, 0, 0, 0]) };
    }
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
    if !begun.is_null() {
        // SYNC: release; pairs with the acquire in `wait`.
        // SAFETY: the maker waits until its word is set.
        unsafe { (*begun).store(number, Ordering::Release) };
        // The maker's stack may be gone already, if it did not have to wait; then no thread is
        // woken.
        private_wake(begun.cast());
    }
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
    if let Some(taken) = block.start {
        STARTS.end(taken);
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

/// Prepares for a handler of the guest's for `signal`. The host's C library installs a handler for
/// `SIGSETXID` when it makes its first thread. So it makes one now, before the guest installs its
/// own handler, not over that.
pub(crate) fn settle(signal: usize) {
    static IS_SETTLED: AtomicU32 = AtomicU32::new(0);
    if !INTERNAL.contains(&signal) || IS_SETTLED.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    // A thread whose stack has no room in the address space is not made, which is cheaper; the
    // handler is there nevertheless.
    try_thread(1 << 47);
    if !has_handler(INTERNAL[1]) {
        try_thread(STACK);
    }
}

/// Makes a thread that ends at once, with a stack of this length, if that is possible.
fn try_thread(stack: usize) {
    extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
        core::ptr::null_mut()
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let at = attributes.as_mut_ptr();
    let mask = raw::block_signals();
    // SAFETY: the attributes are initialized first. A thread that is made ends at once.
    unsafe {
        let nobody = core::ptr::null_mut();
        libc::pthread_attr_init(at);
        libc::pthread_attr_setstacksize(at, stack);
        if libc::pthread_create(thread.as_mut_ptr(), at, nothing, nobody) == 0 {
            libc::pthread_join(thread.assume_init(), core::ptr::null_mut());
        }
        libc::pthread_attr_destroy(at);
    }
    raw::set_mask(mask);
}

/// Returns true if the kernel has a handler for a signal.
fn has_handler(signal: usize) -> bool {
    // `struct sigaction` of the kernel: the handler, the flags, the restorer, the mask.
    let mut action = [0usize; 4];
    let arguments = [signal, 0, (&raw mut action) as usize, 8, 0, 0];
    // SAFETY: `action` has room for the answer.
    unsafe { raw::call(libc::SYS_rt_sigaction, arguments) };
    action[0] > 1
}

/// Prepares a child of `fork`, whose only thread this is, for threads of its own.
pub(crate) fn became_child() {
    STARTS.clear();
}
