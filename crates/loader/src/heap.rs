//! The loader's heap: a piece of its own memory while no C library is in the process (`host`), that
//! of the C library afterwards.
//!
//! Without a C library the process has one thread and no signal handlers. Blocks have sizes that
//! are powers of two; those that are given back are in one list for each size. What is allocated
//! when the C library comes stays in the piece.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::alloc::System;

/// Bytes of the piece. Its pages have no memory until they are used.
const ROOM: usize = 16 << 20;
const PAGE: usize = 4096;
/// The least size of a block, which has room for a list's link.
const LEAST: usize = 16;
const SIZES: usize = usize::BITS as usize;

#[repr(C, align(4096))]
struct Piece(UnsafeCell<[u8; ROOM]>);

// SAFETY: the allocator hands out blocks that do not overlap.
unsafe impl Sync for Piece {}

static PIECE: Piece = Piece(UnsafeCell::new([0; ROOM]));
/// The bytes of the piece that have been in use.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The first free block of each size, by the size's exponent; 0 for none.
static FREE: [AtomicUsize; SIZES] = [const { AtomicUsize::new(0) }; SIZES];
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

fn size_of_block(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(LEAST).next_power_of_two()
}

/// Returns the list of free blocks of a size.
fn free(size: usize) -> &'static AtomicUsize {
    &FREE[size.trailing_zeros() as usize % SIZES]
}

/// Takes a block of the piece; null if there is no room.
fn take(layout: Layout) -> *mut u8 {
    if layout.align() > PAGE || layout.size() > ROOM {
        return core::ptr::null_mut();
    }
    let size = size_of_block(layout);
    let list = free(size);
    let block = list.load(Ordering::Relaxed);
    if block != 0 {
        // SAFETY: a free block of the piece begins with the link to the next one.
        list.store(unsafe { (block as *const usize).read() }, Ordering::Relaxed);
        return block as *mut u8;
    }
    let at = USED.load(Ordering::Relaxed).next_multiple_of(size.min(PAGE));
    if at + size > ROOM {
        return core::ptr::null_mut();
    }
    USED.store(at + size, Ordering::Relaxed);
    (start() + at) as *mut u8
}

/// Gives a block of the piece back.
fn give(at: *mut u8, layout: Layout) {
    if HAS_HOST.load(Ordering::Relaxed) {
        // Several threads may be here.
        return;
    }
    let list = free(size_of_block(layout));
    // SAFETY: a block that is not in use any more, with room for the link.
    unsafe { at.cast::<usize>().write(list.load(Ordering::Relaxed)) };
    list.store(at as usize, Ordering::Relaxed);
}

// SAFETY: blocks of the piece do not overlap, and are never given to the C library's heap.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match HAS_HOST.load(Ordering::Relaxed) {
            // SAFETY: the caller's layout.
            true => unsafe { System.alloc(layout) },
            false => take(layout),
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match is_own(at) {
            true => give(at, layout),
            // SAFETY: allocated by the C library, with this layout.
            false => unsafe { System.dealloc(at, layout) },
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        if !is_own(at) {
            // SAFETY: allocated by the C library, with this layout.
            return unsafe { System.realloc(at, layout, len) };
        }
        if len <= size_of_block(layout) && len > size_of_block(layout) / 2 {
            return at;
        }
        // SAFETY: the caller's layout with another size; both places have room for the smaller one.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(len, layout.align()));
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(at, new, len.min(layout.size()));
                self.dealloc(at, layout);
            }
            new
        }
    }
}
