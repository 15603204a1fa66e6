//! The relative relocations of this library itself: words of its data that hold addresses within
//! the library, and so depend on where the loader has put it.
//!
//! There are some two thousand such words on ten pages, and a program that stays small needs none
//! of them. A loader would write them at every start. So the linker packs them into a table of the
//! format `DT_RELR` (generic ABI), under tags that only Android's loader knows (`build.rs`), and
//! the first call that enters the library does the loader's work ([`all`]).
//!
//! Code that runs earlier has no such words: no functions of other crates, which are called by the
//! global offset table; no tables of functions (`dyn Trait`), arrays of texts, or messages of
//! panics. That is the constructor's code, and the functions that the program calls, up to the
//! question whether the guard is open. `tests/start.rs` checks it. The C library's functions can be
//! called: their addresses are the loader's work. Unoptimized builds, and those for AArch64, have
//! no such table: there the loader does it all.

use crate::linker::{base, own_dynamic};
use crate::objects::{self, Dyn};
use crate::raw;
use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

/// Tags of the dynamic section: the packed table, and its length in bytes (`DT_ANDROID_RELR`).
const TABLE: usize = 0x6fff_e000;
const TABLE_LEN: usize = 0x6fff_e001;
const PAGE: usize = 4096;
/// Words that one bitmap of the table stands for.
const IN_BITMAP: usize = usize::BITS as usize - 1;

/// Bit of [`STATE`]: every word holds its address.
const DONE: u32 = 1 << 31;

/// [`DONE`], and the number of threads that are in [`now`].
#[unsafe(link_section = ".data.start")]
static STATE: AtomicU32 = AtomicU32::new(0);

/// Relocates this library, unless that is done. Returns false if it is not possible.
#[inline]
pub(crate) fn all() -> bool {
    // SYNC: acquire; pairs with the release in `now`: the words are written.
    STATE.load(Ordering::Acquire) & DONE != 0 || now()
}

/// Does the same for [`all`]. Several threads may be here at once, or a call that a signal
/// handler interrupts and one that the handler makes: all write the same values. Only the last one
/// to leave makes the pages read-only again. Who comes still later finds nothing left to write.
#[cold]
fn now() -> bool {
    let table = table();
    if table.is_empty() {
        STATE.fetch_or(DONE, Ordering::Relaxed);
        return true;
    }
    // SYNC: acquire; pairs with the release below: the words of those that have left are written.
    STATE.fetch_add(1, Ordering::AcqRel);
    let closed = closed();
    let is_writable = protect(&closed, libc::PROT_READ | libc::PROT_WRITE);
    if is_writable {
        for_each_word(table, relocate);
        // SYNC: release; pairs with the acquire load in `all`.
        STATE.fetch_or(DONE, Ordering::Release);
    }
    // SYNC: release; pairs with the acquire above.
    if STATE.fetch_sub(1, Ordering::AcqRel) & !DONE == 1 {
        protect(&closed, libc::PROT_READ);
    }
    is_writable
}

/// Adds the library's address to a word that does not have it yet: the addresses in the file are
/// all less than the address of the library.
fn relocate(word: *mut usize) {
    let base = base();
    // SAFETY: a word of this library's data, which the table names; writable now. A thread that
    // relocates the same word writes the same value.
    unsafe {
        let address = word.read_volatile();
        if address < base {
            word.write_volatile(address + base);
        }
    }
}

/// Returns the packed table; empty if the loader relocates everything.
#[inline(always)]
fn table() -> &'static [usize] {
    let (mut at, mut len) = (0, 0);
    let mut entry = own_dynamic() as *const Dyn;
    // SAFETY: the dynamic section ends with a tag of 0.
    while let Dyn { tag: tag @ 1.., value } = unsafe { *entry } {
        match tag {
            TABLE => at = base() + value,
            TABLE_LEN => len = value / size_of::<usize>(),
            _ => {}
        }
        // SAFETY: not the last entry.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: the linker has made the table.
    if at == 0 { &[] } else { unsafe { core::slice::from_raw_parts(at as *const usize, len) } }
}

/// Calls `act` for every word that a table names.
///
/// An entry with an even value is the address of a word. One with an odd value is a bitmap of the
/// words behind those before it.
fn for_each_word(table: &[usize], act: impl Fn(*mut usize)) {
    let mut word = core::ptr::null_mut::<usize>();
    for entry in table {
        if entry & 1 == 0 {
            word = (base() + entry) as *mut usize;
            act(word);
            word = word.wrapping_add(1);
            continue;
        }
        let mut bits = entry >> 1;
        while bits != 0 {
            act(word.wrapping_add(bits.trailing_zeros() as usize));
            bits &= bits - 1;
        }
        word = word.wrapping_add(IN_BITMAP);
    }
}

/// Returns this library's pages that are read-only after relocation.
fn closed() -> Range<usize> {
    // SAFETY: this library's own headers.
    let segments = unsafe { objects::segments_of_file(base()) };
    segments.iter().find(|one| one.kind == objects::PT_GNU_RELRO).map_or(0..0, |one| {
        let range = one.range(base());
        range.start & !(PAGE - 1)..range.end & !(PAGE - 1)
    })
}

fn protect(pages: &Range<usize>, protection: c_int) -> bool {
    let arguments = [pages.start, pages.end - pages.start, protection as usize, 0, 0, 0];
    // SAFETY: pages of this library's data, which were writable until the loader had relocated
    // them.
    unsafe { raw::call(libc::SYS_mprotect, arguments) == 0 }
}
