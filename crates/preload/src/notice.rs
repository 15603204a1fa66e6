//! Puts up the notice that `sojourn ss` reads where no server can be told
//! (`sojourn_session::notice`, which has the theory).
//!
//! One system call when the library stands down, and none before: the pages are part of the
//! library's memory that nobody touches.

use crate::raw;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use sojourn_session::{ReasonT, notice};

const PAGE: usize = 4096;

/// Memory whose rights say something; it holds nothing.
#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; PAGE * notice::PAGES]>);

// SAFETY: nobody reads or writes it.
unsafe impl Sync for Pages {}

static PAGES: Pages = Pages(UnsafeCell::new([0; PAGE * notice::PAGES]));
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// What keeps all of this process in the kernel from now on. The first reason stays.
pub(crate) fn show(reason: ReasonT) {
    let pages = notice::pages(reason);
    if pages > 0 && !IS_SHOWN.swap(true, Ordering::SeqCst) {
        let at = PAGES.0.get() as usize;
        let rights = libc::PROT_WRITE as usize;
        // SAFETY: whole pages that hold nothing. Should it fail, nobody is told.
        unsafe { raw::call(libc::SYS_mprotect, [at, pages * PAGE, rights, 0, 0, 0]) };
    }
}
