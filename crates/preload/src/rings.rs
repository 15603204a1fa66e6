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
//! Not here: what one submission concerns (`submission`). Read io_uring(7) and io_uring_setup(2)
//! first.

mod submission;

use crate::guard::{self, is_open, within};
use crate::inside;
use crate::library::Library;
use crate::next::c_library;
use crate::tls::here;
use crate::trampoline::{Interposer, asks_first};
use crate::{buffers, raw};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use submission::{Concern, Submission};

/// Rings that are kept in view at once; others are unseen.
const RINGS: usize = 32;
/// `IORING_SETUP_REGISTERED_FD_ONLY`.
const REGISTERED_FD_ONLY: u32 = 1 << 15;
/// `IORING_OFF_SQES` and the bits of io_uring_setup(2) that matter here.
const OFFSET_SQES: usize = 0x1000_0000;
const SQPOLL: u32 = 1 << 1;
const SQE128: u32 = 1 << 10;
const NO_SQARRAY: u32 = 1 << 16;
/// Every flag with which a queue looks as is expected here. Not among them: memory of the program's
/// own, rings without a descriptor, entries of mixed sizes, and what later kernels have.
const FLAGS_KNOWN: u32 = 0x7ffff & !(1 << 14 | REGISTERED_FD_ONLY);
/// `IORING_ENTER_REGISTERED_RING` and `IORING_REGISTER_USE_REGISTERED_RING`: the number is no
/// descriptor.
const ENTER_REGISTERED: usize = 1 << 4;
const REGISTER_REGISTERED: usize = 1 << 31;

impl Params {
    /// Whether it is as libuv's for files: `uv__iou_init` in libuv's `src/unix/linux.c`.
    fn is_for_files(&self) -> bool {
        (self.entries, self.idle_ms) == (64, 10) && self.flags & !NO_SQARRAY == SQPOLL
    }
}

/// What the library can see of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Seen,
    /// Not what is submitted; its descriptor.
    Unseen,
    /// Perhaps not even that.
    Hidden,
}

/// `struct io_uring_params`, as far as it is needed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    entries: u32,
    _completions: u32,
    flags: u32,
    _processor: u32,
    idle_ms: u32,
    _others: [u32; 5],
    head: u32,
    tail: u32,
    mask: u32,
    _ring_entries: u32,
    _ring_flags: u32,
    _dropped: u32,
    array: u32,
    _rest: [u32; 13],
}

/// A ring that is in view. All fields are changed under [`Guard`] only.
struct Ring {
    /// Whose it is: a child has its parent's slots, but not the memory.
    pid: AtomicI32,
    fd: AtomicI32,
    queue: AtomicUsize,
    queue_len: AtomicUsize,
    entries_at: AtomicUsize,
    entries_len: AtomicUsize,
    entries: AtomicU32,
    flags: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    array: AtomicU32,
    /// Up to where submissions have been looked at.
    looked: AtomicU32,
    /// It cannot be seen into any more.
    is_lost: AtomicU32,
}

static ALL: [Ring; RINGS] = [const { Ring::new() }; RINGS];
/// How many slots are in use: without rings nobody looks.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// How many of these a thread of the kernel serves.
static POLLED: AtomicU32 = AtomicU32::new(0);
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

impl Ring {
    const fn new() -> Self {
        Self {
            pid: AtomicI32::new(0),
            fd: AtomicI32::new(-1),
            queue: AtomicUsize::new(0),
            queue_len: AtomicUsize::new(0),
            entries_at: AtomicUsize::new(0),
            entries_len: AtomicUsize::new(0),
            entries: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            array: AtomicU32::new(0),
            looked: AtomicU32::new(0),
            is_lost: AtomicU32::new(0),
        }
    }

    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn lose(&self) {
        self.is_lost.store(1, Ordering::Relaxed);
    }

    fn view(&self) -> View {
        if self.is_seen() { View::Seen } else { View::Unseen }
    }

    fn is_seen(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed) == 0
    }

    /// Maps the ring's memory. False: it cannot be had, or is not what the kernel says.
    fn open(&self, pid: i32, fd: i32, params: &Params) -> bool {
        let stride = if params.flags & SQE128 == 0 { 64 } else { 128 };
        let words = [params.head, params.tail, params.mask];
        let has_array = params.flags & NO_SQARRAY == 0;
        let array_end =
            if has_array { params.array as usize + params.entries as usize * 4 } else { 0 };
        let Some(end) = words.into_iter().map(|at| at as usize + 4).chain([array_end]).max() else {
            return false;
        };
        let is_sound = params.flags & !FLAGS_KNOWN == 0
            && (params.flags & SQPOLL == 0 || params.is_for_files())
            && params.entries.is_power_of_two()
            && words.into_iter().chain([params.array]).all(|at| at % 4 == 0);
        if !is_sound {
            return false;
        }
        let Some(queue) = map(fd, 0, end, libc::PROT_READ) else { return false };
        let entries_len = params.entries as usize * stride;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let Some(entries_at) = map(fd, OFFSET_SQES, entries_len, access) else {
            unmap(queue, end);
            return false;
        };
        let store = |word: &AtomicU32, value| word.store(value, Ordering::Relaxed);
        self.queue.store(queue, Ordering::Relaxed);
        self.queue_len.store(end, Ordering::Relaxed);
        self.entries_at.store(entries_at, Ordering::Relaxed);
        self.entries_len.store(entries_len, Ordering::Relaxed);
        store(&self.entries, params.entries);
        store(&self.flags, params.flags);
        store(&self.head, params.head);
        store(&self.tail, params.tail);
        store(&self.array, params.array);
        store(&self.is_lost, 0);
        self.pid.store(pid, Ordering::Relaxed);
        self.fd.store(fd, Ordering::Relaxed);
        store(&self.looked, self.word(params.head));
        true
    }

    fn close(&self, pid: i32) {
        // In a child the memory is not there.
        if self.pid.load(Ordering::Relaxed) == pid {
            unmap(self.queue.load(Ordering::Relaxed), self.queue_len.load(Ordering::Relaxed));
            unmap(
                self.entries_at.load(Ordering::Relaxed),
                self.entries_len.load(Ordering::Relaxed),
            );
        }
        self.fd.store(-1, Ordering::Relaxed);
        COUNT.fetch_sub(1, Ordering::Relaxed);
        if self.has(SQPOLL) {
            POLLED.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A word of the queue's memory.
    fn word(&self, at: u32) -> u32 {
        let address = self.queue.load(Ordering::Relaxed) + at as usize;
        // SAFETY: within the mapping and aligned, as `open` has seen.
        let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        // SYNC: pairs with the program's release of the tail; the kernel's of the head.
        word.load(Ordering::Acquire)
    }

    /// Where the entry of that position of the queue lies. `None`: nowhere.
    fn entry_at(&self, position: u32) -> Option<usize> {
        let entries = self.entries.load(Ordering::Relaxed);
        let at = position & (entries - 1);
        let index = if self.has(NO_SQARRAY) {
            at
        } else {
            self.word(self.array.load(Ordering::Relaxed) + at * 4)
        };
        let stride = if self.has(SQE128) { 128 } else { 64 };
        let is_there = index < entries;
        is_there.then(|| self.entries_at.load(Ordering::Relaxed) + index as usize * stride)
    }

    fn submission(&self, position: u32) -> Option<Submission> {
        // SAFETY: 64 bytes within the mapping, aligned; volatile, and copied once: the program may
        // write there.
        self.entry_at(position).map(|at| unsafe { (at as *const Submission).read_volatile() })
    }

    /// Looks at what the next `io_uring_enter` of `count` submissions makes the kernel do.
    fn look_before(&self, library: &'static Library, count: u32) {
        let head = self.word(self.head.load(Ordering::Relaxed));
        let ready = self.word(self.tail.load(Ordering::Relaxed)).wrapping_sub(head);
        if self.was_entered_unseen(head) {
            return;
        }
        let count = ready.min(count).min(self.entries.load(Ordering::Relaxed));
        let mut may_do_now = true;
        for position in (0..count).map(|past| head.wrapping_add(past)) {
            let Some(submission) = self.submission(position) else { continue };
            match submission.concern() {
                Concern::Nothing => {}
                Concern::Unknown => self.lose(),
                Concern::Set if may_do_now && submission.is_alone() => {
                    self.change_set(library, position, &submission);
                }
                concern => {
                    may_do_now = false;
                    submission.send_home(library, &concern);
                }
            }
            // What follows in a chain may be done later, or never.
            may_do_now &= submission.is_alone();
        }
        self.looked.store(head.wrapping_add(count), Ordering::Relaxed);
    }

    /// The kernel has taken submissions that nobody has looked at: the ring is also entered past
    /// the C library.
    fn was_entered_unseen(&self, head: u32) -> bool {
        let past = head.wrapping_sub(self.looked.load(Ordering::Relaxed));
        let is_so = past != 0 && past <= u32::MAX / 2;
        if is_so {
            self.lose();
        }
        is_so
    }

    /// A change of an epoll set. The library must know of it, and the kernel need not do it again:
    /// it is done here, and the submission is left as one that does nothing, whose completion says
    /// the same. One that fails the kernel makes fail itself.
    fn change_set(&self, library: &'static Library, position: u32, submission: &Submission) {
        if submission.change_set(library)
            && let Some(at) = self.entry_at(position)
        {
            // SAFETY: as in `submission`; it is the program's to write until it is submitted, which
            // waits for us.
            unsafe { (at as *mut Submission).write_volatile(submission.done()) };
        }
    }

    /// Looks at what a thread of the kernel has taken, or is about to take. Nothing but files and
    /// the like may be there.
    fn look_after(&self, library: &'static Library) {
        let tail = self.word(self.tail.load(Ordering::Relaxed));
        let news = tail.wrapping_sub(self.looked.load(Ordering::Relaxed));
        // Of a queue that has gone round the last entries are there.
        let count = news.min(self.entries.load(Ordering::Relaxed));
        for position in (0..count).map(|past| tail.wrapping_sub(count).wrapping_add(past)) {
            let Some(submission) = self.submission(position) else { continue };
            let concern = submission.concern();
            if !submission.is_of_files(&concern) {
                submission.send_home(library, &concern);
                self.lose();
            }
        }
        self.looked.store(tail, Ordering::Relaxed);
    }
}

fn map(fd: i32, offset: usize, len: usize, access: i32) -> Option<usize> {
    let flags = (libc::MAP_SHARED | libc::MAP_POPULATE) as usize;
    let arguments = [0, len, access as usize, flags, fd as usize, offset];
    // SAFETY: a new mapping, of memory that the kernel and the program share.
    let at = unsafe { raw::call(libc::SYS_mmap, arguments) };
    let at = usize::try_from(at).ok()?;
    let advice = libc::MADV_DONTFORK as usize;
    // SAFETY: the mapping just made.
    unsafe { raw::call(libc::SYS_madvise, [at, len, advice, 0, 0, 0]) };
    Some(at)
}

fn unmap(at: usize, len: usize) {
    // SAFETY: a mapping of ours that nobody uses any more.
    unsafe { raw::call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]) };
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

type LookFn = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type IterateFn = unsafe extern "C" fn(LookFn, *mut c_void) -> c_int;

/// Whether liburing is in the process: it makes its system calls itself, so a ring of its making is
/// seen late.
pub(crate) fn has_library() -> bool {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's, for the time of this call; the name is a string or null.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: a string of the loader's.
            let path = unsafe { CStr::from_ptr(name) }.to_bytes();
            let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            if file.starts_with(b"liburing.so") || file.starts_with(b"liburing-ffi.so") {
                // SAFETY: the flag that `has_library` gave.
                unsafe { *found.cast::<bool>() = true };
            }
        }
        0
    }
    let mut found = false;
    // SAFETY: a function that only reads, and a flag that outlives the call.
    unsafe { c_library!(c"dl_iterate_phdr" as IterateFn)(look, (&raw mut found).cast()) };
    found
}
