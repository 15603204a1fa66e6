//! One ring that is seen: its memory, mapped a second time, and the submissions in it.
//!
//! Not here: the table of rings and the moments at which they are checked (`rings`), the
//! descriptors that one submission concerns (`submission`).

use super::submission::{Concern, Submission};
use crate::library::Library;
use crate::raw;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use sojourn_session::ProcessId;

/// `IORING_SETUP_REGISTERED_FD_ONLY`.
pub(super) const REGISTERED_FD_ONLY: u32 = 1 << 15;
/// `IORING_OFF_SQES`, and the flags of io_uring_setup(2) that matter here.
pub(super) const OFFSET_SQES: usize = 0x1000_0000;
pub(super) const SQPOLL: u32 = 1 << 1;
const SQE128: u32 = 1 << 10;
const NO_SQARRAY: u32 = 1 << 16;
/// All flags under which a ring's memory has the layout that this file expects. Missing are
/// `IORING_SETUP_NO_MMAP` (memory of the program's own), `IORING_SETUP_REGISTERED_FD_ONLY`, queues
/// with entries of mixed sizes, and flags of later kernels.
const FLAGS_KNOWN: u32 = 0x7ffff & !(1 << 14 | REGISTERED_FD_ONLY);
/// The number of slots in use. While it is 0, calls do not look for rings.
pub(super) static COUNT: AtomicU32 = AtomicU32::new(0);
/// The number of rings in use that a thread of the kernel serves.
pub(super) static POLLED: AtomicU32 = AtomicU32::new(0);

/// How much of a ring the library can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Seen,
    /// The ring's descriptor, but not the submissions.
    Unseen,
    /// Perhaps not even the descriptor.
    Hidden,
}

/// The beginning of `struct io_uring_params`, and the members of its offsets that are needed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    pub(super) entries: u32,
    pub(super) _completions: u32,
    pub(super) flags: u32,
    pub(super) _processor: u32,
    pub(super) idle_ms: u32,
    pub(super) _others: [u32; 5],
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) mask: u32,
    pub(super) _ring_entries: u32,
    pub(super) _ring_flags: u32,
    pub(super) _dropped: u32,
    pub(super) array: u32,
    pub(super) _rest: [u32; 13],
}

impl Params {
    /// Returns true if the parameters are those of libuv's ring for file operations: `uv__iou_init`
    /// in src/unix/linux.c of libuv.
    fn is_for_files(&self) -> bool {
        (self.entries, self.idle_ms) == (64, 10) && self.flags & !NO_SQARRAY == SQPOLL
    }
}

/// A ring that is seen. All fields are changed only while [`Guard`] is held.
pub(super) struct Ring {
    /// The process that the ring's mapping belongs to. A child of `fork` has its parent's slots,
    /// but not the mappings.
    pid: AtomicU32,
    pub(super) fd: AtomicI32,
    pub(super) queue: AtomicUsize,
    pub(super) queue_len: AtomicUsize,
    pub(super) entries_at: AtomicUsize,
    pub(super) entries_len: AtomicUsize,
    pub(super) entries: AtomicU32,
    pub(super) flags: AtomicU32,
    pub(super) head: AtomicU32,
    pub(super) tail: AtomicU32,
    pub(super) array: AtomicU32,
    /// The position up to which submissions have been checked.
    pub(super) looked: AtomicU32,
    /// Not 0 if the ring has become unseen.
    pub(super) is_lost: AtomicU32,
}

impl Ring {
    pub(super) const fn new() -> Self {
        Self {
            pid: AtomicU32::new(0),
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

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub(super) fn lose(&self) {
        self.is_lost.store(1, Ordering::Relaxed);
    }

    pub(super) fn view(&self) -> View {
        if self.is_seen() { View::Seen } else { View::Unseen }
    }

    pub(super) fn is_seen(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed) == 0
    }

    /// Maps the ring's memory. Returns false if that fails, or if the layout is not the expected
    /// one.
    pub(super) fn open(&self, pid: ProcessId, fd: i32, params: &Params) -> bool {
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
        store(&self.pid, pid.0);
        self.fd.store(fd, Ordering::Relaxed);
        store(&self.looked, self.word(params.head));
        true
    }

    /// Returns true if this process has made the ring.
    pub(super) fn is_of(&self, pid: ProcessId) -> bool {
        self.pid.load(Ordering::Relaxed) == pid.0
    }

    pub(super) fn close(&self, pid: ProcessId) {
        // A child of `fork` does not have its parent's mapping (`MADV_DONTFORK`).
        if self.is_of(pid) {
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

    /// Reads a word of the queue's memory.
    pub(super) fn word(&self, at: u32) -> u32 {
        let address = self.queue.load(Ordering::Relaxed) + at as usize;
        // SAFETY: within the mapping and aligned, as `open` has checked.
        let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        // SYNC: acquire; pairs with the program's release of the tail, or the kernel's release of
        // the head.
        word.load(Ordering::Acquire)
    }

    /// Returns the address of the entry at a position of the queue; `None` if the queue names an
    /// entry that does not exist.
    pub(super) fn entry_at(&self, position: u32) -> Option<usize> {
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

    pub(super) fn submission(&self, position: u32) -> Option<Submission> {
        // SAFETY: 64 bytes within the mapping, aligned. The read is volatile and copies the entry
        // once, because the program may write there at the same time.
        self.entry_at(position).map(|at| unsafe { (at as *const Submission).read_volatile() })
    }

    /// Checks the submissions that the next `io_uring_enter` with `count` hands to the kernel.
    pub(super) fn look_before(&self, library: &'static Library, count: u32) {
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
            // The rest of a chain may be executed later, or never.
            may_do_now &= submission.is_alone();
        }
        self.looked.store(head.wrapping_add(count), Ordering::Relaxed);
    }

    /// Returns true, and makes the ring unseen, if the kernel has taken submissions that were not
    /// checked: then the program also enters the ring without the C library.
    pub(super) fn was_entered_unseen(&self, head: u32) -> bool {
        let past = head.wrapping_sub(self.looked.load(Ordering::Relaxed));
        let is_so = past != 0 && past <= u32::MAX / 2;
        if is_so {
            self.lose();
        }
        is_so
    }

    /// Executes a submitted change of an epoll set. The library must know of the change, and the
    /// kernel must not repeat it. So the library makes the change now, and the submission becomes
    /// one that does nothing and completes with the same result. If the change fails, the
    /// submission stays, and fails in the kernel.
    pub(super) fn change_set(
        &self,
        library: &'static Library,
        position: u32,
        submission: &Submission,
    ) {
        if submission.change_set(library)
            && let Some(at) = self.entry_at(position)
        {
            // SAFETY: as in `submission`. The program owns the entry until it is submitted, and the
            // submission waits for this call.
            unsafe { (at as *mut Submission).write_volatile(submission.done()) };
        }
    }

    /// Checks the submissions that a thread of the kernel has taken, or is about to take. Anything
    /// but file operations makes the ring unseen.
    pub(super) fn look_after(&self, library: &'static Library) {
        let tail = self.word(self.tail.load(Ordering::Relaxed));
        let news = tail.wrapping_sub(self.looked.load(Ordering::Relaxed));
        // If the queue has wrapped around meanwhile, only the last entries can be read.
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
    // SAFETY: a new mapping of memory that the kernel and the program share.
    let at = unsafe { raw::call(libc::SYS_mmap, arguments) };
    let at = usize::try_from(at).ok()?;
    let advice = libc::MADV_DONTFORK as usize;
    // SAFETY: the mapping that was just made.
    unsafe { raw::call(libc::SYS_madvise, [at, len, advice, 0, 0, 0]) };
    Some(at)
}

fn unmap(at: usize, len: usize) {
    // SAFETY: a mapping made by `map`, which is no longer used.
    unsafe { raw::call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]) };
}
