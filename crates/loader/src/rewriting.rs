//! Writes over a text's system calls, and puts trampolines near it.

use crate::guest::guest;
use crate::raw;
use sojourn_abi::patch::{self, Rewritten, region_len};
use sojourn_abi::sites::{Site, Text, Way, find};

const PAGE: usize = 4096;
const READ_WRITE: usize = (libc::PROT_READ | libc::PROT_WRITE) as usize;
const CODE: usize = (libc::PROT_READ | libc::PROT_EXEC) as usize;

/// Something that the kernel refuses (an `errno`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) i32);

fn checked(result: isize) -> Result<usize, Refused> {
    usize::try_from(result).map_err(|_| Refused(-result as i32))
}

/// mprotect(2) on whole pages around these bytes.
fn protect(at: usize, len: usize, protection: usize) -> Result<(), Refused> {
    let first = at & !(PAGE - 1);
    let len = (at + len).next_multiple_of(PAGE) - first;
    // SAFETY: pages of the guest's text or of trampolines, which nobody executes meanwhile.
    let result = unsafe { raw::call(libc::SYS_mprotect, [first, len, protection, 0, 0, 0]) };
    checked(result).map(|_| ())
}

/// Writes over the sites of the text at `text.address`, whose trampolines go to `region`.
pub(crate) fn rewrite(
    text: Text<'_>,
    sites: &[Site],
    region: usize,
    entry: usize,
) -> Result<(), Refused> {
    let done = patch::rewrite(text, sites, region as u64, entry as u64)
        .map_err(|patch::TooFar| Refused(libc::ERANGE))?;
    if done.patches.is_empty() {
        return Ok(());
    }
    let len = done.region.len();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let arguments = [region, len, READ_WRITE, flags as usize, usize::MAX, 0];
    // SAFETY: the place is reserved for it.
    checked(unsafe { raw::call(libc::SYS_mmap, arguments) })?;
    // SAFETY: just mapped, with as much room.
    unsafe { core::ptr::copy_nonoverlapping(done.region.as_ptr(), region as *mut u8, len) };
    protect(region, len, CODE)?;
    apply(&done)
}

/// All pages at once, from the first that has a site to the last: each change of a part alone would
/// leave one more mapping behind. Pages without a site stay the file's.
fn apply(done: &Rewritten) -> Result<(), Refused> {
    let (Some(first), Some(last)) = (done.patches.first(), done.patches.last()) else {
        return Ok(());
    };
    let at = first.at as usize;
    let len = last.at as usize + last.bytes.len() - at;
    protect(at, len, READ_WRITE)?;
    for patch in &done.patches {
        let (at, len) = (patch.at as usize, patch.bytes.len());
        // SAFETY: the bytes are the text's, and writable now.
        unsafe { core::ptr::copy_nonoverlapping(patch.bytes.as_ptr(), at as *mut u8, len) };
    }
    protect(at, len, CODE)
}

/// How far away trampolines may be (bytes), and in what steps room is looked for.
const NEAR: usize = 1 << 30;
const STEP: usize = 1 << 16;

/// Room for trampolines near a text, mapped without access.
fn near(text: usize, len: usize) -> Option<usize> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let above = (text + STEP..text + NEAR).step_by(STEP);
    let below = (text.saturating_sub(NEAR)..text).rev().step_by(STEP);
    for at in above.zip(below).flat_map(|(above, below)| [above, below]) {
        let at = at & !(PAGE - 1);
        // SAFETY: maps where nothing is.
        let result =
            unsafe { raw::call(libc::SYS_mmap, [at, len, 0, flags as usize, usize::MAX, 0]) };
        if result == at as isize {
            return Some(at);
        }
    }
    None
}

/// Rewrites code of a file that the guest has just mapped. What cannot be is left to the kernel.
pub(crate) fn rewrite_mapped(at: usize, len: usize, protection: usize) {
    if protection & libc::PROT_READ as usize == 0 {
        return;
    }
    // Behind the file's end there is nothing to be read.
    let Some(len) = readable(at, len) else { return };
    // SAFETY: mapped and readable; the guest's own code, which nobody changes.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let text = Text { address: at as u64, bytes };
    let sites = find(text).sites;
    if sites.iter().all(|site| site.way == Way::Left) {
        return;
    }
    if let Some(region) = near(at, region_len(&sites).next_multiple_of(PAGE)) {
        // What fails leaves the code as it was, or with calls of ours in it that work.
        let _ = rewrite(text, &sites, region, guest().entry);
    }
}

/// How many of these bytes can be read.
fn readable(at: usize, len: usize) -> Option<usize> {
    let mut good = 0;
    let mut byte = 0u8;
    for page in (at..at + len).step_by(PAGE) {
        let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let remote = libc::iovec { iov_base: page as *mut _, iov_len: 1 };
        let (local, remote) = ((&raw const local) as usize, (&raw const remote) as usize);
        let arguments = [raw::process_number() as usize, local, 1, remote, 1, 0];
        // SAFETY: copies one byte.
        if unsafe { raw::call(libc::SYS_process_vm_readv, arguments) } != 1 {
            break;
        }
        good += PAGE;
    }
    (good > 0).then(|| good.min(len))
}
