//! The places to which rewritten calls jump, which the bytes behind each call choose
//! (`sojourn_abi::punned`): trampolines on pages of their own.
//!
//! Not here: what is written over the calls (`super`).

use super::maps::{Maps, PAGE};
use super::memory::{copy, protect};
use crate::raw;
use core::ops::Range;
use sojourn_abi::punned::{JUMP_LEN, TRAMPOLINE, jump_target, trampoline};
use std::collections::BTreeMap;

/// The most pages for trampolines. Most calls need one each.
const PAGES_MAX: usize = 4096;

/// A call and its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) at: u64,
    target: u64,
}

/// All trampolines of this process.
#[derive(Debug, Default)]
pub(super) struct JumpTargets {
    /// Their places, by the address of the call.
    all: BTreeMap<u64, u64>,
    /// The pages that they are on.
    pages: Vec<u64>,
}

impl JumpTargets {
    /// Puts a trampoline at the target of each call; `None` if there is no room for one of them.
    pub(super) fn plan(&mut self, calls: &[u64], maps: &Maps, entry: u64) -> Option<Vec<Planned>> {
        let mut planned = Vec::with_capacity(calls.len());
        for (index, at) in calls.iter().enumerate() {
            let bytes = copy(*at, &mut [0; JUMP_LEN])?;
            let target = jump_target(*at, bytes)?;
            // The bytes behind a call must stay: another call there would change one of them.
            let is_apart = |next: &u64| next.wrapping_sub(*at) >= JUMP_LEN as u64;
            if !calls.get(index + 1).is_none_or(is_apart) {
                return None;
            }
            planned.push(Planned { at: *at, target });
        }
        let pages = self.new_pages(&planned, maps)?;
        if !fill(&pages, &self.new_ones(&planned), entry) {
            pages.iter().for_each(|page| unmap(*page));
            return None;
        }
        self.pages.extend(pages);
        self.all.extend(planned.iter().map(|one| (one.at, one.target)));
        Some(planned)
    }

    /// Returns the calls that have no trampoline yet: an object that comes again to the same place
    /// finds the old ones.
    fn new_ones(&self, planned: &[Planned]) -> Vec<Planned> {
        let is_new = |one: &&Planned| self.all.get(&one.at) != Some(&one.target);
        planned.iter().filter(is_new).copied().collect()
    }

    /// Maps the pages that new trampolines need.
    fn new_pages(&self, planned: &[Planned], maps: &Maps) -> Option<Vec<u64>> {
        let new = self.new_ones(planned);
        let ranges = || new.iter().map(|one| one.target..one.target + TRAMPOLINE as u64);
        let mut sorted: Vec<Range<u64>> = ranges().collect();
        sorted.sort_unstable_by_key(|one| one.start);
        if sorted.windows(2).any(|two| two[0].end > two[1].start) {
            return None;
        }
        let pages =
            sorted.iter().flat_map(|one| (one.start & !(PAGE - 1)..one.end).step_by(PAGE as usize));
        let mut pages: Vec<u64> = pages.collect();
        pages.dedup();
        // Pages with older trampolines are executable already, and are not written any more.
        let is_free = |page: &u64| maps.is_free(&(*page..*page + PAGE));
        if !pages.iter().all(is_free) || pages.len() + self.pages.len() > PAGES_MAX {
            return None;
        }
        for (index, page) in pages.iter().enumerate() {
            if !map(*page) {
                pages[..index].iter().for_each(|page| unmap(*page));
                return None;
            }
        }
        Some(pages)
    }
}

/// Writes trampolines, and makes their pages executable.
fn fill(pages: &[u64], planned: &[Planned], entry: u64) -> bool {
    for one in planned {
        let Some(code) = trampoline(one.at, one.target, entry) else { return false };
        // SAFETY: bytes of pages that were mapped a moment ago, for this.
        unsafe { (one.target as *mut [u8; TRAMPOLINE]).write(code) };
    }
    let code = libc::PROT_READ | libc::PROT_EXEC;
    pages.iter().all(|page| protect(*page, PAGE, code).is_some())
}

fn map(page: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let arguments = [page as usize, PAGE as usize, access, flags as usize, usize::MAX, 0];
    // SAFETY: `MAP_FIXED_NOREPLACE` maps only where nothing is mapped. A kernel before 4.17 takes
    // the address for a hint only.
    let at = unsafe { raw::call(libc::SYS_mmap, arguments) };
    let is_there = at as u64 == page;
    if at > 0 && !is_there {
        unmap(at as u64);
    }
    is_there
}

fn unmap(page: u64) {
    // SAFETY: a page that was mapped here, which nobody uses yet.
    unsafe { raw::call(libc::SYS_munmap, [page as usize, PAGE as usize, 0, 0, 0, 0]) };
}
