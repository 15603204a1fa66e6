//! Writes patches over a text's system calls, and trampolines near the text. Not here: the bytes
//! that are written (`sojourn_abi::patch`).

use crate::cache::{self, FileText};
use crate::guest::guest;
use crate::raw;
use sojourn_abi::cache::BuildId;
use sojourn_abi::patch::{self, Patch, Rewritten, Trampoline, region_len};
use sojourn_abi::sites::{Found, Rewrite, Site, Text};

const PAGE: usize = 4096;
const READ_WRITE: usize = (libc::PROT_READ | libc::PROT_WRITE) as usize;
const CODE: usize = (libc::PROT_READ | libc::PROT_EXEC) as usize;

/// An operation that the kernel refuses, with its `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) i32);

fn checked(result: isize) -> Result<usize, Refused> {
    usize::try_from(result).map_err(|_| Refused(-result as i32))
}

/// Changes the protection of the whole pages around these bytes (mprotect(2)).
fn protect(at: usize, len: usize, protection: usize) -> Result<(), Refused> {
    let first = at & !(PAGE - 1);
    let len = (at + len).next_multiple_of(PAGE) - first;
    // SAFETY: pages of the guest's text or of trampolines, which no thread executes meanwhile.
    let result = unsafe { raw::call(libc::SYS_mprotect, [first, len, protection, 0, 0, 0]) };
    checked(result).map(|_| ())
}

/// Rewrites the sites of the text at `text.address`, which is writable and becomes executable. Its
/// trampolines go to `region`. Returns them.
pub(crate) fn rewrite_open(
    text: Text<'_>,
    sites: &[Site],
    region: usize,
    entry: usize,
) -> Result<Vec<Trampoline>, Refused> {
    let done = prepare(text, sites, region, entry)?;
    write(&done.patches);
    protect(text.address as usize, text.bytes.len(), CODE)?;
    Ok(done.trampolines)
}

/// Computes the patches of a text, and puts its trampolines in `region`.
fn prepare(
    text: Text<'_>,
    sites: &[Site],
    region: usize,
    entry: usize,
) -> Result<Rewritten, Refused> {
    let done = patch::rewrite(text, sites, region as u64, entry as u64)
        .map_err(|patch::TooFar| Refused(libc::ERANGE))?;
    if done.patches.is_empty() {
        return Ok(done);
    }
    let len = done.region.len();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let arguments = [region, len, READ_WRITE, flags as usize, usize::MAX, 0];
    // SAFETY: these addresses are reserved for the region.
    checked(unsafe { raw::call(libc::SYS_mmap, arguments) })?;
    // SAFETY: the mapping was just made, with `len` bytes.
    unsafe { core::ptr::copy_nonoverlapping(done.region.as_ptr(), region as *mut u8, len) };
    protect(region, len, CODE)?;
    Ok(done)
}

fn write(patches: &[Patch]) {
    for patch in patches {
        let (at, len) = (patch.at as usize, patch.bytes.len());
        // SAFETY: bytes of the text, which are writable now.
        unsafe { core::ptr::copy_nonoverlapping(patch.bytes.as_ptr(), at as *mut u8, len) };
    }
}

/// Writes the patches of a text that is executable. All pages from the first site to the last
/// change their protection together, because each change of a part alone would leave one more
/// mapping. Pages without a site stay those of the file.
fn apply(done: &Rewritten) -> Result<(), Refused> {
    let (Some(first), Some(last)) = (done.patches.first(), done.patches.last()) else {
        return Ok(());
    };
    let at = first.at as usize;
    let len = last.at as usize + last.bytes.len() - at;
    protect(at, len, READ_WRITE)?;
    write(&done.patches);
    protect(at, len, CODE)
}

/// The largest distance of trampolines from the text, and the steps of the search for room, in
/// bytes.
const NEAR: usize = 1 << 30;
const STEP: usize = 1 << 16;

/// Returns room for trampolines near a text, mapped without access.
fn near(text: usize, len: usize) -> Option<usize> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let above = (text + STEP..text + NEAR).step_by(STEP);
    let below = (text.saturating_sub(NEAR)..text).rev().step_by(STEP);
    for at in above.zip(below).flat_map(|(above, below)| [above, below]) {
        let at = at & !(PAGE - 1);
        // SAFETY: `MAP_FIXED_NOREPLACE` maps only where nothing is mapped.
        let result =
            unsafe { raw::call(libc::SYS_mmap, [at, len, 0, flags as usize, usize::MAX, 0]) };
        if result == at as isize {
            return Some(at);
        }
    }
    None
}

/// Rewrites code of a file that the guest has just mapped at `at`, with these arguments of mmap(2).
/// Calls that cannot be rewritten go to the kernel.
pub(crate) fn rewrite_mapped(at: usize, arguments: &[usize; 6]) {
    let [_, len, protection, _, fd, offset] = *arguments;
    if protection & libc::PROT_READ as usize == 0 {
        return;
    }
    let Some(len) = within_file(fd, offset, len) else { return };
    // SAFETY: mapped and readable; the guest's own code, which no thread changes.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let text = Text { address: at as u64, bytes };
    // The build-id is elsewhere in the file, which the rest of the key identifies.
    let in_file = FileText { fd, build_id: BuildId::default(), offset: offset as u64 };
    let Found { sites, tests_integrity, .. } = cache::sites(in_file, text);
    if tests_integrity || sites.iter().all(|site| site.rewrite == Rewrite::Unchanged) {
        return;
    }
    if let Some(region) = near(at, region_len(&sites).next_multiple_of(PAGE)) {
        // After a failure the code is either unchanged, or has rewritten calls that work.
        let _ = prepare(text, &sites, region, guest().entry).and_then(|done| apply(&done));
    }
}

/// Returns how many of `len` mapped bytes the file has, from this offset on: the pages behind its
/// end cannot be read (mmap(2), `SIGBUS`). `None` if it has none, or is no ordinary file.
fn within_file(fd: usize, offset: usize, len: usize) -> Option<usize> {
    let status = raw::status(fd).filter(raw::is_file)?;
    let rest = usize::try_from(status.st_size).ok()?.checked_sub(offset)?;
    let readable = len.min(rest.next_multiple_of(PAGE));
    (readable > 0).then_some(readable)
}
