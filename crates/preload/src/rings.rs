//! io_uring: the kernel executes submissions that concern a session, so the session goes home
//! before the submission is made.
//!
//! A ring is *seen* if it was made, and is entered, through the C library's `syscall`. This library
//! maps the submission queue of such a ring a second time, and reads the new entries before each
//! `io_uring_enter`. All other rings are *unseen*: while a process has an unseen ring, its sessions
//! stay in the kernel (`library::rings`).
//!
//! A ring that a thread of the kernel serves (`IORING_SETUP_SQPOLL`) is unseen as well, because no
//! call announces its submissions. One such ring is an exception: the ring that libuv makes for
//! file operations only. It is checked now and then, and becomes unseen as soon as it holds an
//! entry that is not a file operation. Pipes and standard streams, which a program may name as
//! files, stay in the kernel beside such a ring.
//!
//! Not here: the state of one ring (`ring`), the descriptors that one submission concerns
//! (`submission`). Read io_uring(7) and io_uring_setup(2) first.

mod ring;
mod submission;

pub(crate) use ring::{Params, View};

use crate::descriptors::opened;
use crate::guard::{self, is_open, tell, within};
use crate::inside;
use crate::library::{Library, Origin};
use crate::next::next;
use crate::raw::{self, Kernel};
use crate::tls::here;
use crate::trampoline::{Interposer, asks_first};
use crate::{buffers, code};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use ring::{COUNT, OFFSET_SQES, POLLED, REGISTERED_FD_ONLY, Ring, SQPOLL};
use sojourn_session::ProcessId;

/// The most rings that are seen at once; further rings are unseen.
const RINGS: usize = 32;
/// `IORING_ENTER_REGISTERED_RING` and `IORING_REGISTER_USE_REGISTERED_RING`: the call names the
/// ring by its registered index instead of a descriptor.
const ENTER_REGISTERED: usize = 1 << 4;
const REGISTER_REGISTERED: usize = 1 << 31;

static ALL: [Ring; RINGS] = [const { Ring::new() }; RINGS];
/// The thread that changes or reads slots: the process's number in the high half, the thread's in
/// the low half; 0 for none.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Admits one thread at a time to the slots. Signal handlers do not run meanwhile, because the
/// guard is only taken inside the library. The library may call back into this module with the
/// guard taken; then the guard is nested.
struct Guard {
    pid: ProcessId,
    is_nested: bool,
}

impl Guard {
    fn take() -> Self {
        let pid = ProcessId(raw::process_number() as u32);
        // SAFETY: no arguments, no effect.
        let thread = unsafe { raw::call(libc::SYS_gettid, [0; 6]) } as u64;
        let own = u64::from(pid.0) << 32 | thread;
        loop {
            let holder = HELD.load(Ordering::Relaxed);
            if holder == own {
                return Self { pid, is_nested: true };
            }
            // A holder of another process number was copied by `fork`: that thread does not exist
            // in this process, and will never release the guard.
            let is_free = holder >> 32 != u64::from(pid.0);
            // SYNC: pairs with the release in `drop`.
            if is_free
                && HELD.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Self { pid, is_nested: false };
            }
            // SAFETY: no arguments, no effect.
            unsafe { raw::call(libc::SYS_sched_yield, [0; 6]) };
        }
    }

    fn of(&self, fd: i32) -> Option<&'static Ring> {
        self.all().find(|ring| ring.fd.load(Ordering::Relaxed) == fd)
    }

    fn all(&self) -> impl Iterator<Item = &'static Ring> {
        let pid = self.pid;
        ALL.iter().filter(move |ring| ring.fd.load(Ordering::Relaxed) >= 0 && ring.is_of(pid))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_nested {
            // SYNC: pairs with the acquire in `take`.
            HELD.store(0, Ordering::Release);
        }
    }
}

/// Takes note of the ring `fd` that `io_uring_setup` has made.
fn made(library: &'static Library, fd: i32, params: *const Params) -> View {
    // SAFETY: plain data, which the kernel has just written and the program leaves alone during the
    // call.
    let Some(params) = (unsafe { buffers::structure(params) }) else {
        return View::Hidden;
    };
    if params.flags & REGISTERED_FD_ONLY != 0 {
        return View::Hidden;
    }
    let guard = Guard::take();
    if let Some(old) = guard.of(fd) {
        old.close(guard.pid);
    }
    let is_vacant = |ring: &&Ring| ring.fd.load(Ordering::Relaxed) < 0 || !ring.is_of(guard.pid);
    let Some(ring) = ALL.iter().find(is_vacant) else { return View::Unseen };
    if ring.fd.load(Ordering::Relaxed) >= 0 {
        ring.close(guard.pid);
    }
    if !ring.open(guard.pid, fd, &params) {
        return View::Unseen;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    if ring.has(SQPOLL) {
        POLLED.fetch_add(1, Ordering::Relaxed);
        library.ring_polled();
    }
    View::Seen
}

/// Makes `io_uring_setup`. The kernel writes the new ring's layout into `params`.
pub(crate) fn setup_by(params: *const Params, kernel: impl Kernel) -> isize {
    let fd = kernel();
    if fd >= 0 {
        let fd = opened(fd as c_int, Origin::Unknown);
        check_view(within(|library| made(library, fd, params)));
    }
    fd
}

/// Looks at an `io_uring_enter` that is about to be made.
#[cold]
pub(crate) fn entered(arguments: &[usize; 6]) {
    let [_, fd, count, _, flags, _] = *arguments;
    check_view(within(|library| before_enter(library, fd as i32, count, flags)));
}

/// Looks at an `io_uring_register` that is about to be made.
#[cold]
pub(crate) fn changed(arguments: &[usize; 6]) {
    let [_, fd, what, at, count, _] = *arguments;
    let arguments = [fd, what, at, count];
    check_view(within(|library| before_register(library, arguments)));
}

/// Tells the library if a ring is unseen.
fn check_view(view: Option<View>) {
    match view {
        Some(View::Seen) | None => {}
        Some(view) => tell(|library| library.ring_unseen(view == View::Hidden)),
    }
}

/// Looks at the ring's new submissions before `io_uring_enter`.
fn before_enter(library: &'static Library, fd: i32, count: usize, flags: usize) -> View {
    if flags & ENTER_REGISTERED != 0 {
        return View::Hidden;
    }
    let guard = Guard::take();
    let Some(ring) = guard.of(fd) else { return lose_inherited(fd) };
    if ring.has(SQPOLL) {
        ring.look_after(library);
    } else {
        // The kernel reads 32 bits of the count as well.
        ring.look_before(library, count as u32);
    }
    ring.view()
}

/// Looks at the operation before `io_uring_register`.
fn before_register(library: &'static Library, arguments: [usize; 4]) -> View {
    let [fd, what, at, count] = arguments;
    if what & REGISTER_REGISTERED != 0 {
        return View::Hidden;
    }
    let guard = Guard::take();
    let Some(ring) = guard.of(fd as i32) else { return lose_inherited(fd as i32) };
    if !submission::register(library, what, at, count) {
        ring.lose();
    }
    ring.view()
}

/// Notes that an unseen ring is used. If the ring was inherited from the parent process, it had not
/// been used here before.
fn lose_inherited(fd: i32) -> View {
    ALL.iter().filter(|ring| ring.fd.load(Ordering::Relaxed) == fd).for_each(Ring::lose);
    View::Unseen
}

/// Returns true if a ring is seen that a thread of the kernel serves.
pub(crate) fn has_polled() -> bool {
    POLLED.load(Ordering::Relaxed) > 0
}

/// Returns true if the ring `fd` is seen. Checks the ring first if a thread of the kernel serves
/// it.
pub(crate) fn sees(library: &'static Library, fd: i32) -> bool {
    let guard = Guard::take();
    let Some(ring) = guard.of(fd) else {
        // The memory of a ring that the parent made is not mapped here, but any use of the ring in
        // this process is noticed (`lose_inherited`).
        let is_it = |ring: &Ring| ring.fd.load(Ordering::Relaxed) == fd;
        return ALL.iter().any(|ring| is_it(ring) && ring.is_seen() && !ring.has(SQPOLL));
    };
    if ring.has(SQPOLL) {
        ring.look_after(library);
    } else {
        ring.was_entered_unseen(ring.word(ring.head.load(Ordering::Relaxed)));
    }
    ring.is_seen()
}

/// Takes note that the program closes `fd`, or replaces it. The ring itself lives as long as its
/// memory is mapped.
pub(crate) fn closing(fd: i32) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let guard = Guard::take();
    match guard.of(fd) {
        // A submission of this ring closes the ring, while its memory is being read: unmapping has
        // to wait.
        Some(ring) if guard.is_nested => ring.lose(),
        Some(ring) => ring.close(guard.pid),
        None => {
            let parents = ALL.iter().filter(|ring| ring.fd.load(Ordering::Relaxed) == fd);
            parents.for_each(|ring| ring.close(guard.pid));
        }
    }
}

/// Returns true if a ring that a thread of the kernel serves has become unseen. Called before the
/// program waits for descriptors.
pub(crate) fn has_lost_one(library: &'static Library) -> bool {
    if POLLED.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let guard = Guard::take();
    let mut is_lost = false;
    for ring in guard.all().filter(|ring| ring.has(SQPOLL)) {
        let was_seen = ring.is_seen();
        ring.look_after(library);
        is_lost |= was_seen && !ring.is_seen();
    }
    is_lost
}

/// Hooks `mmap`. It may replace memory that was probed (`buffers`). A ring's submission entries are
/// mapped before anything is submitted, mostly through the C library's function, even by programs
/// that make the other calls themselves.
unsafe extern "C" fn before_map(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    buffers::mapped(arguments[3]);
    if !guard::has_started() || here().depth.load(Ordering::Relaxed) != 0 {
        // A program's allocator may call `mmap` before symbols can be looked up; and a mapping that
        // this library makes itself is the kernel's business.
        return inside::map as *const () as usize;
    }
    let [_, _, _, flags, fd, offset] = *arguments;
    let is_shared = flags as i32 & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if offset == OFFSET_SQES && is_shared && is_open() {
        within(|library| library.ring_mapped(fd as i32));
    }
    if code::is_rewritten() && is_code(arguments) {
        return map_code as MapFn as usize;
    }
    entry.next()
}

/// Returns true if these arguments of mmap(2) map code of a file.
fn is_code(arguments: &[usize; 6]) -> bool {
    let [_, _, protection, flags, ..] = *arguments;
    protection & (libc::PROT_EXEC | libc::PROT_WRITE) as usize == libc::PROT_EXEC as usize
        && flags & libc::MAP_ANONYMOUS as usize == 0
}

type MapFn =
    unsafe extern "C-unwind" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

/// Maps code, and has it looked at before the program runs it.
unsafe extern "C-unwind" fn map_code(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the program's arguments, passed on unchanged.
    let mapped = unsafe { next!(c"mmap" as MapFn)(at, len, protection, flags, fd, offset) };
    if mapped != libc::MAP_FAILED {
        code::came();
    }
    mapped
}

asks_first!(before_map; mmap = 0, mmap64 = 0);
