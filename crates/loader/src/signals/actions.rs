//! The handlers that the entry points stand for, and rt_sigaction(2) as the guest sees it.
//!
//! The handler of an entry point never changes once it is set, so nothing is locked: the kernel's
//! own answer, translated, says which handler is installed at any moment. A child of vfork(2),
//! which shares the table, cannot damage it.

use crate::guest::guest;
use crate::raw::{self, refusal};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The number of entry points.
pub(super) const ENTRIES: usize = 1024;
/// Bytes between two entry points.
const STRIDE: usize = 16;
/// `SA_RESTORER`, which the C library's headers do not define.
const RESTORER: usize = 0x0400_0000;

unsafe extern "C" {
    fn sojourn_handlers();
    fn sojourn_restorer();
}

/// A handler of the guest's with its flags and mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handler {
    pub(super) address: usize,
    pub(super) flags: usize,
    mask: u64,
    restorer: usize,
}

impl Handler {
    /// Returns the signals that are blocked while the handler runs for `signal`, in addition to
    /// those that were blocked before.
    pub(super) fn blocks(&self, signal: c_int) -> u64 {
        let own = match self.flags & libc::SA_NODEFER as usize {
            0 => 1 << (signal - 1),
            _ => 0,
        };
        (self.mask | own) & !unblockable()
    }
}

/// Returns the signals that the guest cannot block: that of the trap, if there is one.
pub(crate) fn unblockable() -> u64 {
    match guest().trapped {
        Some(_) => 1 << (libc::SIGSYS - 1),
        None => 0,
    }
}

#[derive(Debug)]
struct Slot {
    /// The state of the slot: 0 for free, 1 for being set, 2 for set.
    state: AtomicU32,
    address: AtomicUsize,
    flags: AtomicUsize,
    mask: AtomicU64,
    restorer: AtomicUsize,
}

static SLOTS: [Slot; ENTRIES] = [const {
    Slot {
        state: AtomicU32::new(0),
        address: AtomicUsize::new(0),
        flags: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
    }
}; ENTRIES];

/// Returns the address of an entry point.
pub(super) fn entry_point(index: usize) -> usize {
    sojourn_handlers as *const () as usize + index * STRIDE
}

/// Returns the handler that an entry point stands for.
pub(super) fn handler(index: usize) -> Option<Handler> {
    let slot = SLOTS.get(index)?;
    // SYNC: acquire; pairs with the release in `entry_for`: the handler's fields are set.
    (slot.state.load(Ordering::Acquire) == 2).then(|| Handler {
        address: slot.address.load(Ordering::Relaxed),
        flags: slot.flags.load(Ordering::Relaxed),
        mask: slot.mask.load(Ordering::Relaxed),
        restorer: slot.restorer.load(Ordering::Relaxed),
    })
}

/// Returns the entry point for a handler; `None` if all are used up.
fn entry_for(wanted: Handler) -> Option<usize> {
    for (index, slot) in SLOTS.iter().enumerate() {
        if handler(index) == Some(wanted) {
            return Some(index);
        }
        let claim = slot.state.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_ok() {
            slot.address.store(wanted.address, Ordering::Relaxed);
            slot.flags.store(wanted.flags, Ordering::Relaxed);
            slot.mask.store(wanted.mask, Ordering::Relaxed);
            slot.restorer.store(wanted.restorer, Ordering::Relaxed);
            // SYNC: release; pairs with the acquire in `handler`.
            slot.state.store(2, Ordering::Release);
            return Some(index);
        }
    }
    None
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// The size of a signal set.
const SIZE: usize = 8;

/// Copies the guest's action from this address; `None` if there is none. `rsp` is the guest's stack
/// pointer.
fn given(at: usize, rsp: usize) -> Option<Action> {
    const PAGE: usize = 4096;
    if at == 0 {
        return None;
    }
    // Most actions are on the stack, whose page can be read without asking the kernel. Go's
    // run-time installs some sixty at its start.
    let is_there = |at: usize| at / PAGE == rsp / PAGE;
    if is_there(at) && is_there(at + size_of::<Action>() - 1) {
        // SAFETY: the page of the guest's stack pointer, as for the kernel.
        return Some(unsafe { (at as *const Action).read_unaligned() });
    }
    // For a signal that can have no action the kernel only reads the new one.
    let kill = libc::SIGKILL as usize;
    // SAFETY: changes nothing.
    let result = unsafe { raw::call(libc::SYS_rt_sigaction, [kill, at, 0, SIZE, 0, 0]) };
    // SAFETY: the guest's memory, which the kernel has just read.
    (result != refusal(libc::EFAULT)).then(|| unsafe { (at as *const Action).read_unaligned() })
}

/// Returns true if the action at this address of the guest's has a handler.
pub(crate) fn has_handler(at: usize, rsp: usize) -> bool {
    given(at, rsp).is_some_and(|action| action.handler > IGNORE)
}

/// The highest value that is no handler: `SIG_DFL` is 0, `SIG_IGN` is 1.
const IGNORE: usize = 1;

/// Serves rt_sigaction(2). The arguments are those of the system call; `rsp` is the guest's stack
/// pointer.
pub(crate) fn act(arguments: &[usize; 6], rsp: usize) -> isize {
    let [signal, new, old, size, ..] = *arguments;
    // In a guest with trapped calls `SIGSYS` stays the trap's.
    let is_trap = signal == libc::SIGSYS as usize && guest().trapped.is_some();
    let given = given(new, rsp);
    if new != 0 && size == SIZE && given.is_none() {
        return refusal(libc::EFAULT);
    }
    let set = match given {
        _ if is_trap => None,
        Some(given) => match translated(given) {
            Some(ours) => Some(ours),
            None => return -(libc::ENOMEM as isize),
        },
        None => None,
    };
    let new = set.as_ref().map_or(0, |set| core::ptr::from_ref(set) as usize);
    // SAFETY: the new action is local; the kernel checks the rest.
    let result = unsafe { raw::call(libc::SYS_rt_sigaction, [signal, new, old, size, 0, 0]) };
    if result == 0 && old != 0 {
        let old = old as *mut Action;
        // SAFETY: the guest's memory, which the kernel has just written.
        unsafe {
            let action = old.read_unaligned();
            old.write_unaligned(if is_trap { Action::default() } else { shown(action) });
        }
    }
    result
}

/// Returns the action for the kernel; `None` if no entry point is left.
fn translated(given: Action) -> Option<Action> {
    if given.handler <= IGNORE {
        return Some(given);
    }
    let Action { handler, flags, restorer, mask } = given;
    let index = entry_for(Handler { address: handler, flags, mask, restorer })?;
    // All signals are blocked until the handler itself runs with the mask that the guest asks for.
    let flags = (flags | libc::SA_SIGINFO as usize | RESTORER) & !(libc::SA_NODEFER as usize);
    let restorer = sojourn_restorer as *const () as usize;
    Some(Action { handler: entry_point(index), flags, restorer, mask: !unblockable() })
}

/// Returns an action of the kernel's as the guest sees it.
fn shown(action: Action) -> Action {
    let offset = action.handler.wrapping_sub(entry_point(0));
    let found = if offset < ENTRIES * STRIDE { handler(offset / STRIDE) } else { None };
    found.map_or(action, |found| Action {
        handler: found.address,
        flags: found.flags,
        restorer: found.restorer,
        mask: found.mask,
    })
}
