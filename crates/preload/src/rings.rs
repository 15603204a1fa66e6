//! io_uring: what a program submits for a session is the kernel's to do, so that session goes home
//! before it is submitted.
//!
//! A ring is *seen* if it was made, and is entered, through the C library's `syscall`: its
//! submission queue is mapped a second time here, and what is new in it is looked at before each
//! `io_uring_enter`. Everything else is *unseen*: while a process has such a ring its sessions stay
//! in the kernel (`library::rings`). So is a ring that a thread of the kernel serves
//! (`IORING_SETUP_SQPOLL`), for nobody tells of its submissions, with one exception: the one that
//! libuv makes for files, and for nothing else. That is looked at now and then, and becomes an
//! unseen one if there is anything but files in it; pipes and standard streams, which a program may
//! name as files, stay in the kernel beside it.
//!
//! Not here: what is looked at in one ring (`ring`), what one submission concerns (`submission`).
//! Read io_uring(7) and io_uring_setup(2) first.

mod liburing;
mod ring;
mod submission;

pub(crate) use liburing::has_library;
pub(crate) use ring::{Params, View};

use crate::guard::{self, is_open, within};
use crate::inside;
use crate::library::Library;
use crate::tls::here;
use crate::trampoline::{Interposer, asks_first};
use crate::{buffers, raw};
use core::sync::atomic::{AtomicU64, Ordering};
use ring::{COUNT, OFFSET_SQES, POLLED, REGISTERED_FD_ONLY, Ring, SQPOLL};

/// Rings that are kept in view at once; others are unseen.
const RINGS: usize = 32;
/// `IORING_ENTER_REGISTERED_RING` and `IORING_REGISTER_USE_REGISTERED_RING`: the number is no
/// descriptor.
const ENTER_REGISTERED: usize = 1 << 4;
const REGISTER_REGISTERED: usize = 1 << 31;

static ALL: [Ring; RINGS] = [const { Ring::new() }; RINGS];
/// The thread that changes or looks at slots, by its process's number (above) and its own; 0: none.
static HELD: AtomicU64 = AtomicU64::new(0);

/// One thread at a time. Handlers do not run meanwhile: it is only taken inside the library, which
/// may come back here.
struct Guard {
    pid: i32,
    is_nested: bool,
}

impl Guard {
    fn take() -> Self {
        let pid = raw::process_number();
        // SAFETY: no arguments, no effect.
        let thread = unsafe { raw::call(libc::SYS_gettid, [0; 6]) } as u64;
        let own = (pid as u64) << 32 | thread;
        loop {
            let holder = HELD.load(Ordering::Relaxed);
            if holder == own {
                return Self { pid, is_nested: true };
            }
            // A holder of another process was copied by `fork`: nobody is there to let go.
            let is_free = holder >> 32 != pid as u64;
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
        ALL.iter().filter(move |ring| {
            ring.fd.load(Ordering::Relaxed) >= 0 && ring.pid.load(Ordering::Relaxed) == pid
        })
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

/// `io_uring_setup` has made `fd`.
pub(crate) fn made(library: &'static Library, fd: i32, params: *const Params) -> View {
    // SAFETY: plain data, left alone meanwhile; the kernel has just written it.
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
    let is_vacant = |ring: &&Ring| {
        ring.fd.load(Ordering::Relaxed) < 0 || ring.pid.load(Ordering::Relaxed) != guard.pid
    };
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

/// Before `io_uring_enter`.
pub(crate) fn before_enter(library: &'static Library, fd: i32, count: usize, flags: usize) -> View {
    if flags & ENTER_REGISTERED != 0 {
        return View::Hidden;
    }
    let guard = Guard::take();
    let Some(ring) = guard.of(fd) else { return lose_inherited(fd) };
    if ring.has(SQPOLL) {
        ring.look_after(library);
    } else {
        // The kernel takes it for 32 bits, too.
        ring.look_before(library, count as u32);
    }
    ring.view()
}

/// Before `io_uring_register`.
pub(crate) fn before_register(library: &'static Library, arguments: [usize; 4]) -> View {
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

/// A ring that is not seen into is used. If it is the parent's, it was not used here before.
fn lose_inherited(fd: i32) -> View {
    ALL.iter().filter(|ring| ring.fd.load(Ordering::Relaxed) == fd).for_each(Ring::lose);
    View::Unseen
}

/// Whether there is a ring that a thread of the kernel serves, and that is seen all the same.
pub(crate) fn has_polled() -> bool {
    POLLED.load(Ordering::Relaxed) > 0
}

/// Whether the ring at that number is one that is seen into. Looks at those that a thread of the
/// kernel serves.
pub(crate) fn sees(library: &'static Library, fd: i32) -> bool {
    let guard = Guard::take();
    let Some(ring) = guard.of(fd) else {
        // Of the parent's rings the memory is not here, but if it is used that is seen.
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

/// The program closes `fd`, or puts something else there. A ring lives as long as its memory is
/// mapped.
pub(crate) fn closing(fd: i32) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let guard = Guard::take();
    match guard.of(fd) {
        // By a submission of a ring's own: its memory is being looked at.
        Some(ring) if guard.is_nested => ring.lose(),
        Some(ring) => ring.close(guard.pid),
        None => {
            let parents = ALL.iter().filter(|ring| ring.fd.load(Ordering::Relaxed) == fd);
            parents.for_each(|ring| ring.close(guard.pid));
        }
    }
}

/// Before the program waits for descriptors: whether a ring that a thread of the kernel serves has
/// become one that nobody sees into.
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

/// `mmap`, asked first: the memory of a ring's entries is mapped before anything is submitted, and
/// mostly by the C library's function even where the other calls are not.
unsafe extern "C" fn before_map(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    if !guard::has_started() || here().depth.load(Ordering::Relaxed) != 0 {
        // Whose allocator begins with it may not be able to look for functions yet; and what is
        // called from inside is the kernel's to do.
        return inside::map as *const () as usize;
    }
    let [_, _, _, flags, fd, offset] = *arguments;
    let is_shared = flags as i32 & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if offset == OFFSET_SQES && is_shared && is_open() {
        within(|library| library.ring_mapped(fd as i32));
    }
    entry.next()
}

asks_first!(before_map; mmap = 0, mmap64 = 0);
