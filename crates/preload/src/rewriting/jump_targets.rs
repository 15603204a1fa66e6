//! The places to which rewritten calls jump, which the bytes behind each call choose
//! (`sojourn_abi::punned`): trampolines on pages of their own.
//!
//! Where calls that are followed by the same bytes are near each other, their targets are, too: a
//! compiler makes three calls of close(2) in a row 16 bytes apart. The targets then have a jump
//! each, and the trampolines are elsewhere.
//!
//! Not here: what is written over the calls (`super`).

use super::maps::{Maps, PAGE};
use super::memory::{copy, protect};
use crate::raw;
use core::ops::Range;
use sojourn_abi::punned::{JUMP_LEN, TRAMPOLINE, jump, jump_target, trampoline};
use std::collections::BTreeMap;

/// The most pages for trampolines. Most calls need one each.
const PAGES_MAX: usize = 4096;

/// The farthest that a trampoline may be from its target, so that all its jumps reach (bytes).
const REACH: u64 = 64 << 20;
/// The most pages behind a target that are tried for trampolines.
const TRIES: u64 = 4096;

/// A call, its target, and its trampoline, which is at the target if there is room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) at: u64,
    target: u64,
    trampoline: u64,
}

impl Planned {
    /// Returns the bytes that are written at the target.
    fn at_target(&self) -> Range<u64> {
        let len = if self.trampoline == self.target { TRAMPOLINE } else { JUMP_LEN };
        self.target..self.target + len as u64
    }
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
            planned.push(Planned { at: *at, target, trampoline: target });
        }
        let mut new = self.new_ones(&planned);
        let pages = self.new_pages(&mut new, maps)?;
        if !fill(&pages, &new, entry) {
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

    /// Maps the pages that new calls need, and gives trampolines for which there is no room at
    /// their targets other places.
    fn new_pages(&self, new: &mut [Planned], maps: &Maps) -> Option<Vec<u64>> {
        new.sort_unstable_by_key(|one| one.target);
        let mut pages = pages_of(new)?;
        // Pages with older trampolines are executable already, and are not written any more.
        if !pages.iter().all(|page| is_free(*page, maps)) {
            return None;
        }
        place_apart(new, &mut pages, maps)?;
        if pages.len() + self.pages.len() > PAGES_MAX {
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

fn is_free(page: u64, maps: &Maps) -> bool {
    maps.is_free(&(page..page + PAGE))
}

/// Marks the calls whose trampolines must be elsewhere: they would reach into the next target.
/// Returns the pages of all targets, which are in ascending order; `None` if even jumps would
/// overlap.
fn pages_of(new: &mut [Planned]) -> Option<Vec<u64>> {
    for index in 1..new.len() {
        let room = new[index].target - new[index - 1].target;
        if room < JUMP_LEN as u64 {
            return None;
        }
        if room < TRAMPOLINE as u64 {
            new[index - 1].trampoline = 0;
        }
    }
    let ranges = new.iter().map(Planned::at_target);
    let mut pages: Vec<u64> = ranges
        .flat_map(|range| (range.start & !(PAGE - 1)..range.end).step_by(PAGE as usize))
        .collect();
    pages.dedup();
    Some(pages)
}

/// Gives the marked trampolines places on free pages behind their targets, and adds these pages.
fn place_apart(new: &mut [Planned], pages: &mut Vec<u64>, maps: &Maps) -> Option<()> {
    let mut room: Range<u64> = 0..0;
    for one in new.iter_mut().filter(|one| one.trampoline == 0) {
        let is_near = room.start.abs_diff(one.target) < REACH;
        if !is_near || room.end - room.start < TRAMPOLINE as u64 {
            let first = one.target & !(PAGE - 1);
            let page = (1..TRIES)
                .map(|number| first + number * PAGE)
                .find(|page| !pages.contains(page) && is_free(*page, maps))?;
            pages.push(page);
            room = page..page + PAGE;
        }
        one.trampoline = room.start;
        room.start += TRAMPOLINE as u64;
    }
    Some(())
}

/// Writes trampolines, and makes their pages executable.
fn fill(pages: &[u64], planned: &[Planned], entry: u64) -> bool {
    for one in planned {
        let Some(code) = trampoline(one.at, one.trampoline, entry) else { return false };
        // SAFETY: bytes of pages that were mapped a moment ago, for this.
        unsafe { (one.trampoline as *mut [u8; TRAMPOLINE]).write(code) };
        if one.trampoline != one.target {
            let Some(way) = jump(one.target, one.trampoline) else { return false };
            // SAFETY: bytes of pages that were mapped a moment ago, for this.
            unsafe { (one.target as *mut [u8; JUMP_LEN]).write(way) };
        }
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
