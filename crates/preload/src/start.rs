//! The constructor, and the initialization of the library at the first call that enters it.
//!
//! The constructor runs in every program, also in those that only print a line, so it does next to
//! nothing: it opens no file, maps no memory, and allocates nothing. It copies what may be gone
//! later (the settings), and sees to the standard streams, whose calls could not be seen later.
//! Everything else waits for the first call that asks whether the guard is open ([`initialize`]).
//! What the constructor runs and writes lies together, on pages that the loader touches anyway
//! (`start.ld`). Read `guard` and `relocation` first.

use crate::host::SHELL;
use crate::library::{Library, ReasonT, library};
use crate::variables::{self, List, PRELOAD};
use crate::{first_calls, follow, guard, process, relocation, sanitizer, stdio};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

// Not a static of Rust's: the linker must leave this address to the loader. It packs the addresses
// of sections that are aligned (`relocation`).
core::arch::global_asm!(
    ".pushsection .init_array, \"aw\", @init_array",
    ".quad {start}",
    ".popsection",
    start = sym start,
);

/// Settings that may have a session move at its first calls.
const THRESHOLDS: &[u8] = b"SOJOURN_MOVE_AFTER_";
/// Bytes for the variables that are copied. Longer ones are kept by the library at once.
const ROOM: usize = 2048;

/// The variables that configure the library and [`PRELOAD`], as `NAME=VALUE` with a zero byte
/// behind each. Only the constructor writes.
#[repr(C)]
struct Copied {
    len: AtomicUsize,
    text: UnsafeCell<[u8; ROOM]>,
}

// SAFETY: the text is written before the guard opens, and never again.
unsafe impl Sync for Copied {}

#[unsafe(link_section = ".data.start")]
static COPIED: Copied = Copied { len: AtomicUsize::new(0), text: UnsafeCell::new([0; ROOM]) };

extern "C" fn start() {
    // SAFETY: the C library sets this variable before constructors run; no other thread exists to
    // change it.
    let environment = unsafe { environ };
    if !copy(environment) {
        relocation::all();
        keep(texts(environment));
        first_calls::count_all();
    }
    stdio::start();
    guard::start(initialize);
}

/// Iterates over the strings of the environment.
fn texts(environment: List) -> impl Iterator<Item = &'static [u8]> + Clone {
    // SAFETY: strings of the environment, as the program has got them.
    variables::all(environment).map(|one| unsafe { CStr::from_ptr(one) }.to_bytes())
}

/// Copies the variables that count. Returns false if there is not enough room.
fn copy(environment: List) -> bool {
    let counts = |text: &&[u8]| Library::is_configured_by(text) || text.starts_with(PRELOAD);
    let mut len = 0;
    for text in texts(environment).filter(counts) {
        if text.starts_with(THRESHOLDS) {
            first_calls::count_all();
        }
        if text.len() >= ROOM - len {
            COPIED.len.store(0, Ordering::Relaxed);
            return false;
        }
        // SAFETY: within the room, which is all zeroes; no other thread exists.
        unsafe {
            let at = COPIED.text.get().cast::<u8>().add(len);
            at.copy_from_nonoverlapping(text.as_ptr(), text.len());
        }
        len += text.len() + 1;
    }
    COPIED.len.store(len, Ordering::Relaxed);
    true
}

/// Hands the settings over to those who keep them.
fn keep(texts: impl Iterator<Item = &'static [u8]> + Clone) {
    library().keep_environment(texts.clone());
    let preloaded = texts.clone().find_map(|text| text.strip_prefix(PRELOAD));
    follow::start(preloaded.unwrap_or_default());
}

/// Connects the library to its shell and to the process. Returns false if the guard must stay
/// closed, so that the program runs as without the preload library: beside a sanitizer, or on a C
/// library without the hook for forks. Runs once, before anything else of the library.
fn initialize() -> bool {
    if !relocation::all() || sanitizer::is_here() || !has_known_pages() || !process::watch_forks() {
        return false;
    }
    if !cfg!(debug_assertions) {
        // `guard` catches panics of this library and handles them. A message would go to the
        // program's standard error, which the program may use for its own protocol.
        std::panic::set_hook(Box::new(|_| ()));
    }
    library().set_host(&SHELL);
    library().stop_opening_files();
    let len = COPIED.len.load(Ordering::Relaxed);
    if len != 0 {
        // SAFETY: nobody writes any more.
        let text = unsafe { &*COPIED.text.get() };
        keep(text[..len].split(|byte| *byte == 0).filter(|text| !text.is_empty()));
    }
    // Not counted, and so not known to the library: who waits in these calls would not wake up for
    // bytes that come by another way.
    for fd in first_calls::waiting() {
        library().stays_in_kernel(fd, ReasonT::Operation);
    }
    true
}

/// Returns true if pages have the size that this library takes them for. On x86-64 they always
/// have; on AArch64 a kernel may have pages of 16 or 64 KiB.
fn has_known_pages() -> bool {
    // SAFETY: reads the auxiliary vector.
    cfg!(target_arch = "x86_64")
        || unsafe { libc::getauxval(libc::AT_PAGESZ) } == crate::validated::PAGE as u64
}

unsafe extern "C" {
    static environ: List;
}
