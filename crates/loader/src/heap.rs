//! The loader's heap: a piece of its own memory while no C library is in the process (`host`), that
//! of the C library afterwards.
//!
//! Without a C library the process has one thread and no signal handlers. What was allocated then
//! stays, except for the latest piece, which can grow and be given back.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::alloc::System;

/// Bytes of the piece. Its pages have no memory until they are used.
const ROOM: usize = 8 << 20;

#[repr(C, align(4096))]
struct Piece(UnsafeCell<[u8; ROOM]>);

// SAFETY: the allocator hands out parts that do not overlap.
unsafe impl Sync for Piece {}

static PIECE: Piece = Piece(UnsafeCell::new([0; ROOM]));
/// The bytes of the piece that are in use.
static USED: AtomicUsize = AtomicUsize::new(0);
static HAS_HOST: AtomicBool = AtomicBool::new(false);

/// Allocates from the C library from now on.
pub(crate) fn use_host() {
    HAS_HOST.store(true, Ordering::Relaxed);
}

pub(crate) struct Heap;

fn start() -> usize {
    PIECE.0.get() as usize
}

fn is_own(at: *mut u8) -> bool {
    (at as usize).wrapping_sub(start()) < ROOM
}

/// Returns true if this is the latest allocation of the piece, before the C library is there.
fn is_latest(at: *mut u8, len: usize) -> bool {
    let end = start() + USED.load(Ordering::Relaxed);
    !HAS_HOST.load(Ordering::Relaxed) && at as usize + len == end
}

/// Uses the piece up to `end`. Returns false if it is too small.
fn use_up_to(end: usize) -> bool {
    let is_enough = end - start() <= ROOM;
    if is_enough {
        USED.store(end - start(), Ordering::Relaxed);
    }
    is_enough
}

// SAFETY: parts of the piece do not overlap, and are never given to the C library's heap.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if HAS_HOST.load(Ordering::Relaxed) {
            // SAFETY: the caller's layout.
            return unsafe { System.alloc(layout) };
        }
        let end = start() + USED.load(Ordering::Relaxed);
        let at = end.next_multiple_of(layout.align());
        match at.checked_add(layout.size()) {
            Some(end) if use_up_to(end) => at as *mut u8,
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_latest(at, layout.size()) {
            use_up_to(at as usize);
        } else if !is_own(at) {
            // SAFETY: allocated by the C library, with this layout.
            unsafe { System.dealloc(at, layout) };
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        if is_latest(at, layout.size()) {
            return if use_up_to(at as usize + len) { at } else { core::ptr::null_mut() };
        }
        if !is_own(at) {
            // SAFETY: allocated by the C library, with this layout.
            return unsafe { System.realloc(at, layout, len) };
        }
        // SAFETY: the caller's layout with another size; both places have room for the smaller one.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(len, layout.align()));
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(at, new, len.min(layout.size()));
            }
            new
        }
    }
}
