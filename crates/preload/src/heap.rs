//! The library's memory allocator, which never uses the program's `malloc`.
//!
//! A call that POSIX allows in a signal handler (signal-safety(7)) may arrive while its thread is
//! inside `malloc`, with the heap half changed and its lock held. So this allocator serves every
//! allocation of this shared object. Not here: memory that is shared with other processes.
//!
//! # Theory of operation
//! Small blocks are cut from chunks, and freed into one list for each size. Large blocks are
//! mappings of their own. There is no lock: an operation that is interrupted, or that was under way
//! in another thread at a `fork`, blocks no other thread, and loses at most its own block.
//!
//! The head of a list holds the index of the first block and a count that changes with every
//! operation. So a head that was taken and put back meanwhile is not mistaken for the old one (the
//! ABA problem). Links lie beside the blocks, not in them. Chunks are never returned to the kernel.
//! The first chunk is part of this object's zeroed data, so that little use maps nothing.

use crate::raw;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Bytes that every block's size is a multiple of.
const UNIT: usize = 64;
/// Units of a chunk. The links take a sixteenth of that in addition.
const UNITS: usize = 4096;
const CHUNKS: usize = 4096;
/// Units of the largest block in a chunk; larger blocks are mappings.
const LARGEST: usize = 512;
/// Size classes: 1, 2, 3, 4, 6, 8, 12 units and so on.
const CLASSES: usize = 18;
/// The strictest alignment that is served, in bytes.
const PAGE: usize = 4096;

#[repr(C, align(4096))]
struct Chunk {
    blocks: UnsafeCell<[[u8; UNIT]; UNITS]>,
    /// The next block in the list of each free block: index + 1, or 0 at the end of the list.
    links: [AtomicU32; UNITS],
    /// Units that have been cut so far.
    used: AtomicU32,
    /// The index of this chunk in the table of chunks.
    number: AtomicU32,
}

// SAFETY: only the owner of a block touches the block; all other fields are atomic.
unsafe impl Sync for Chunk {}

static FIRST: Chunk = Chunk {
    blocks: UnsafeCell::new([[0; UNIT]; UNITS]),
    links: [const { AtomicU32::new(0) }; UNITS],
    used: AtomicU32::new(0),
    number: AtomicU32::new(0),
};

/// All chunks except the first, from index 1 on.
static CHUNK_TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; CHUNKS];
/// The highest index in the table that has a chunk.
static LAST: AtomicU32 = AtomicU32::new(0);
/// For each size class: the index + 1 of the first free block in the low half, a count in the high
/// half.
static FREE: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];

/// The allocator that `#[global_allocator]` names.
pub(crate) struct Heap;

/// A size class of blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SizeClass {
    class: usize,
    /// The units of its blocks.
    units: usize,
}

/// A block, as its chunk has it.
struct BlockPlace {
    chunk: &'static Chunk,
    /// The unit at which the block begins.
    unit: usize,
}

/// Returns the smallest size class for blocks of `units`.
fn class_of(units: usize) -> SizeClass {
    let mut class = 0;
    loop {
        let size = units_of(class);
        if size >= units {
            return SizeClass { class, units: size };
        }
        class += 1;
    }
}

/// Returns the units of a class's blocks: 1, 2, 3, 4, 6, 8, 12, 16, ...
const fn units_of(class: usize) -> usize {
    match class {
        0 => 1,
        _ if class % 2 == 1 => 1 << (class / 2 + 1),
        _ => 3 << (class / 2 - 1),
    }
}

/// Returns the class of a small block; `None` if the block is a mapping.
fn small(layout: &Layout) -> Option<SizeClass> {
    let bytes = match layout.align() {
        align if align <= UNIT => layout.size(),
        // A block whose size is a power of two is aligned to its size, up to a page.
        align => layout.size().max(align).checked_next_power_of_two()?,
    };
    let units = bytes.div_ceil(UNIT).max(1);
    (units <= LARGEST && layout.align() <= PAGE).then(|| class_of(units))
}

impl Chunk {
    fn at(number: usize) -> Option<&'static Self> {
        if number == 0 {
            return Some(&FIRST);
        }
        let chunk = CHUNK_TABLE.get(number)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk, which is never returned. SYNC: acquire; pairs with the exchange
        // in `next`.
        unsafe { chunk.as_ref() }
    }

    fn block(&self, unit: usize) -> *mut u8 {
        self.blocks.get().cast::<u8>().wrapping_add(unit * UNIT)
    }

    /// Cuts a block that has not been used before; `None` if the chunk is full.
    fn carve(&self, units: usize) -> Option<*mut u8> {
        // Chunks begin on a page, so an aligned offset gives an aligned block.
        let align = if units.is_power_of_two() { units.min(PAGE / UNIT) } else { 1 };
        let begin = |used: u32| (used as usize).next_multiple_of(align);
        let take = |used: u32| {
            let end = begin(used) + units;
            (end <= UNITS).then_some(end as u32)
        };
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(self.block(begin(before)))
    }

    /// Makes the chunk after `number`, unless another thread does so first. Returns its index.
    fn next(number: usize) -> Option<usize> {
        let place = CHUNK_TABLE.get(number + 1)?;
        if place.load(Ordering::Acquire).is_null() {
            let made = map(size_of::<Self>())?.cast::<Self>();
            // SAFETY: new memory of a chunk's size; zeroes are a valid chunk.
            unsafe { (*made.as_ptr()).number.store(number as u32 + 1, Ordering::Relaxed) };
            // SYNC: release; pairs with the load in `at`.
            let swap = place.compare_exchange(
                null_mut(),
                made.as_ptr(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if swap.is_err() {
                unmap(made.as_ptr().cast(), size_of::<Self>());
            }
        }
        LAST.fetch_max(number as u32 + 1, Ordering::AcqRel);
        Some(number + 1)
    }

    /// Returns the place of a block.
    fn of(block: *mut u8) -> Option<BlockPlace> {
        let within = |chunk: &'static Self| {
            let offset = (block as usize).wrapping_sub(chunk.block(0) as usize);
            (offset < UNITS * UNIT).then_some(BlockPlace { chunk, unit: offset / UNIT })
        };
        let numbers = 0..=LAST.load(Ordering::Acquire) as usize;
        numbers.filter_map(Self::at).find_map(within)
    }
}

/// Takes the first free block of a class.
fn take(class: usize) -> Option<*mut u8> {
    let head = FREE.get(class)?;
    let mut now = head.load(Ordering::Acquire);
    loop {
        let index = (now as u32).checked_sub(1)? as usize;
        let chunk = Chunk::at(index / UNITS)?;
        let next = chunk.links.get(index % UNITS)?.load(Ordering::Relaxed);
        let new = counted(now, next);
        // SYNC: acquire; pairs with the release in `give`: the last owner's accesses to the block
        // are over.
        match head.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(chunk.block(index % UNITS)),
            Err(other) => now = other,
        }
    }
}

/// Puts a block into the list of its class.
fn give(class: usize, block: *mut u8) {
    let (Some(head), Some(place)) = (FREE.get(class), Chunk::of(block)) else { return };
    let BlockPlace { chunk, unit } = place;
    let index = (chunk.number.load(Ordering::Relaxed) as usize * UNITS + unit + 1) as u32;
    let mut now = head.load(Ordering::Relaxed);
    loop {
        if let Some(link) = chunk.links.get(unit) {
            link.store(now as u32, Ordering::Relaxed);
        }
        let new = counted(now, index);
        // SYNC: release; pairs with the acquire in `take`.
        match head.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// Returns the next value of a head: a new first block, and the count plus 1.
fn counted(now: u64, index: u32) -> u64 {
    ((now >> 32).wrapping_add(1) << 32) | u64::from(index)
}

/// Cuts a block of zeroes that has not been used before, from a new chunk if need be.
fn fresh(units: usize) -> Option<*mut u8> {
    let mut number = LAST.load(Ordering::Acquire) as usize;
    loop {
        if let Some(block) = Chunk::at(number)?.carve(units) {
            return Some(block);
        }
        number = Chunk::next(number)?;
    }
}

/// Maps private memory of zeroes.
///
/// Where the program may have no more data (`RLIMIT_DATA`) the memory is of the kind that stacks
/// are made of, which that limit does not count: a program that has limited its own memory must not
/// end because this object needs some.
pub(crate) fn map(len: usize) -> Option<NonNull<u8>> {
    map_with(len, 0).or_else(|| map_with(len, libc::MAP_GROWSDOWN))
}

fn map_with(len: usize, flags: i32) -> Option<NonNull<u8>> {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags) as usize;
    // SAFETY: the kernel chooses an address that is not in use.
    let at = unsafe { raw::call(libc::SYS_mmap, [0, len, access, flags, usize::MAX, 0]) };
    if (-4095..=0).contains(&at) { None } else { NonNull::new(at as *mut u8) }
}

/// Returns a mapping to the kernel.
pub(crate) fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller's own mapping, which is no longer in use.
    unsafe { raw::call(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}

// SAFETY: blocks have the requested size and alignment, and belong to the caller alone until they
// are freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match small(&layout) {
            Some(SizeClass { class, units }) => {
                take(class).or_else(|| fresh(units)).unwrap_or(null_mut())
            }
            None if layout.align() <= PAGE => {
                map(layout.size()).map_or(null_mut(), NonNull::as_ptr)
            }
            None => null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some(SizeClass { class, units }) = small(&layout) {
            let Some(block) = take(class) else { return fresh(units).unwrap_or(null_mut()) };
            // SAFETY: a block of at least that size.
            unsafe { block.write_bytes(0, layout.size()) };
            return block;
        }
        // SAFETY: the caller's layout; a mapping consists of zeroes.
        unsafe { self.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match small(&layout) {
            Some(SizeClass { class, .. }) => give(class, block),
            None => unmap(block, layout.size()),
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a valid size and alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (before, after) = (small(&layout), small(&new));
        // The new size has the same class: the block already has room for it.
        if before.is_some() && before == after {
            return block;
        }
        if before.is_none() && after.is_none() && layout.align() <= PAGE {
            let may_move = libc::MREMAP_MAYMOVE as usize;
            let arguments = [block as usize, layout.size(), size, may_move, 0, 0];
            // SAFETY: a mapping of this allocator, of that size.
            let at = unsafe { raw::call(libc::SYS_mremap, arguments) };
            if !(-4095..=0).contains(&at) {
                return at as *mut u8;
            }
            // Another mapping may be had where this one must not grow: see `map`.
        }
        // SAFETY: the new block belongs to this call alone, and has at least the smaller of both
        // sizes.
        unsafe {
            let other = self.alloc(new);
            if !other.is_null() {
                other.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            other
        }
    }
}
