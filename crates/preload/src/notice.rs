//! Puts up the notice that `sojourn ss` reads in processes that no server can be told about
//! (`sojourn_session::notice` has the theory).
//!
//! The notice costs one system call when the library stands down, and nothing before: its pages are
//! part of the library's own data, and nothing touches them.

use crate::raw;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use sojourn_session::{ReasonT, notice};

const PAGE: usize = 4096;

/// Memory whose page protection is the message. The contents are never used.
#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; PAGE * notice::PAGES]>);

// SAFETY: no thread reads or writes the contents.
unsafe impl Sync for Pages {}

static PAGES: Pages = Pages(UnsafeCell::new([0; PAGE * notice::PAGES]));
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Shows why all sessions of this process stay in the kernel from now on. Only the first reason is
/// shown.
pub(crate) fn show(reason: ReasonT) {
    let pages = notice::pages(reason);
    if pages > 0 && !IS_SHOWN.swap(true, Ordering::SeqCst) {
        let at = PAGES.0.get() as usize;
        let rights = libc::PROT_WRITE as usize;
        // SAFETY: whole pages whose contents are never used. If the call fails, the notice is
        // missing, and nothing else follows.
        unsafe { raw::call(libc::SYS_mprotect, [at, pages * PAGE, rights, 0, 0, 0]) };
    }
}
