//! The rewriting of system calls that the program makes itself, past the C library: inline, or in a
//! library of its own.
//!
//! # Theory of operation
//! Before the first session of a process may move, a thread of the library's looks once through the
//! code that is mapped from files ([`look`]): the program, its libraries, what it has mapped since.
//! The C library, the dynamic loader and this library are left out: their calls are known. Each
//! call found gets a trampoline, and then one byte of it changes (`sojourn_abi::punned`), so that
//! threads may execute it meanwhile.
//!
//! It is all or nothing: if there is a call that cannot be rewritten, none is, and nothing is
//! different from a process without this. Nothing here trusts the memory that it looks at to stay:
//! other threads may unmap objects (dlclose(3)). So all of it is read and written by the kernel
//! (process_vm_readv(2)), which fails where nothing is mapped.
//!
//! Not here: what is a call (`candidates`), where there is room (`jump_targets`), threads that are
//! still in a call of before (`sleepers`), and what becomes of calls (`own_calls`). Read
//! `docs/understand/abi.md` first.

mod candidates;
mod jump_targets;
mod maps;
mod memory;
mod sleepers;

use crate::code;
use crate::library::OwnCalls;
use crate::own_calls::entry;
use crate::raw;
use crate::taken;
use candidates::calls_of;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, Ordering};
use jump_targets::{JumpTargets, Planned};
use maps::{Extent, Maps};
use memory::{copy, protect, put};
use sleepers::Sleepers;
use sojourn_abi::punned::{CALL, JUMP};
use std::time::{Duration, Instant};

/// Code may also come unseen (mmap(2) by number): the time after which a look is made anyway.
const AGE: Duration = Duration::from_secs(1);

/// What has been done in this process.
#[derive(Debug, Default)]
struct State {
    /// Code that has been looked at.
    known: Vec<Known>,
    /// The addresses of all rewritten calls, in ascending order.
    calls: Vec<u64>,
    jump_targets: JumpTargets,
    sleepers: Sleepers,
    last: Option<Instant>,
    /// A call could not be rewritten.
    is_refused: bool,
}

/// A mapping that has been looked at, and a rewritten call in it, by which it is recognized: the
/// same file may have been unmapped and mapped at the same place since.
#[derive(Debug)]
struct Known {
    extent: Extent,
    call: Option<u64>,
}

/// The only state, and the process whose thread uses it; 0 for none.
struct Shared {
    state: UnsafeCell<Option<State>>,
    user: AtomicI32,
}

// SAFETY: only the thread that has set `user` touches the state.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { state: UnsafeCell::new(None), user: AtomicI32::new(0) };
/// Has the program's own system calls arrive at this library. Tells whether they do, and what may
/// be under way for these descriptors. Called by a thread of the library's with descriptors of its
/// own.
pub(crate) fn own_calls(numbers: &[i32]) -> OwnCalls {
    if taken::is_taken() {
        // The guest's calls are the loader's.
        return OwnCalls::Unseen;
    }
    let own = raw::process_number();
    let before = SHARED.user.load(Ordering::Relaxed);
    // SYNC: acquire; pairs with the release below. A thread of another process (this is the child
    // of a `fork`) does not exist here; what it left half done is found again.
    let is_taken = (before == 0 || before != own)
        && SHARED.user.compare_exchange(before, own, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if !is_taken {
        return OwnCalls::UnderWay;
    }
    // SAFETY: this thread has just set `user`.
    let state = unsafe { &mut *SHARED.state.get() };
    if before != 0 {
        // The parent's thread may have been changing it.
        core::mem::forget(state.take());
    }
    let found = state.get_or_insert_with(State::default).own_calls(numbers);
    // SYNC: release; pairs with the acquire above.
    SHARED.user.store(0, Ordering::Release);
    found
}

impl State {
    fn own_calls(&mut self, numbers: &[i32]) -> OwnCalls {
        if self.is_refused {
            return OwnCalls::Unseen;
        }
        let is_old = self.last.is_none_or(|last| last.elapsed() > AGE);
        if code::take_news() || is_old {
            self.is_refused |= look(self).is_none();
            self.last = Some(Instant::now());
        }
        if self.is_refused {
            return OwnCalls::Unseen;
        }
        code::rewrites();
        if numbers.is_empty() {
            return OwnCalls::Seen(Vec::new());
        }
        self.sleepers.under_way(&self.calls, numbers)
    }
}

/// Looks at all code that is not known yet, and rewrites its calls. `None`: that is not possible.
fn look(state: &mut State) -> Option<()> {
    let maps = Maps::read()?;
    if maps.has_unclear_code() {
        return None;
    }
    // What has been unmapped, or replaced, is not known any more.
    state.known.retain(|known| {
        let is_there = maps.code().any(|code| code.extent == known.extent);
        is_there && known.call.is_none_or(|at| copy(at, &mut [0; 1]) == Some([JUMP]))
    });
    let mut planned = Vec::new();
    let mut known = Vec::new();
    for code in maps.code().filter(|code| !maps.is_excepted(code)) {
        if state.known.iter().any(|known| known.extent == code.extent) {
            continue;
        }
        let calls = calls_of(code, &maps)?;
        known.push(Known { extent: code.extent.clone(), call: calls.first().copied() });
        planned.extend(calls);
    }
    if !planned.is_empty() {
        // Without a look at the threads nobody would know what is under way.
        let sleepers = Sleepers::possible()?;
        let planned = state.jump_targets.plan(&planned, &maps, entry() as u64)?;
        write(&planned)?;
        state.calls.extend(planned.iter().map(|one| one.at));
        state.calls.sort_unstable();
        state.calls.dedup();
        state.sleepers = sleepers.begin();
    }
    state.known.extend(known);
    Some(())
}

/// Changes the first byte of each call; none if that is not possible for all.
fn write(planned: &[Planned]) -> Option<()> {
    let done = planned.iter().take_while(|one| change(one.at, CALL[0], JUMP).is_some()).count();
    if done == planned.len() {
        return Some(());
    }
    for one in &planned[..done] {
        // What was changed a moment ago can be changed again. The trampolines stay, for threads
        // that are in them.
        let _ = change(one.at, JUMP, CALL[0]);
    }
    None
}

/// Changes a byte of the program's text from `from` to `to`, while other threads may execute it.
fn change(at: u64, from: u8, to: u8) -> Option<()> {
    let page = at & !(maps::PAGE - 1);
    let code = libc::PROT_READ | libc::PROT_EXEC;
    if copy(at, &mut [0; 2]) != Some([from, CALL[1]]) {
        return None;
    }
    // The page stays executable all the time. Where a policy forbids pages that are written and
    // executed (`PR_SET_MDWE`, SELinux's `execmem`) this fails, and nothing has changed.
    protect(page, maps::PAGE, code | libc::PROT_WRITE)?;
    let written = put(at, to);
    protect(page, maps::PAGE, code)?;
    written
}
