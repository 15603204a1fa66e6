//! Which handler each entry point stands for, and rt_sigaction(2) as the guest sees it.
//!
//! What an entry point stands for never changes once it is set, so that nothing is locked: what is
//! installed at any moment is the kernel's own answer, translated. A child of vfork(2), which
//! shares the table, cannot spoil it.

use crate::guest::guest;
use crate::raw;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// How many there are.
pub(super) const ENTRIES: usize = 1024;
/// Bytes between them.
const STRIDE: usize = 16;
/// `SA_RESTORER`, which C libraries keep to themselves.
const RESTORER: usize = 0x0400_0000;

unsafe extern "C" {
    fn sojourn_handlers();
    fn sojourn_restorer();
}

/// A handler of the guest's, as it was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handler {
    pub(super) address: usize,
    pub(super) flags: usize,
    mask: u64,
    restorer: usize,
}

impl Handler {
    /// What is blocked while it runs for `signal`, beside what was.
    pub(super) fn blocks(&self, signal: c_int) -> u64 {
        let own = match self.flags & libc::SA_NODEFER as usize {
            0 => 1 << (signal - 1),
            _ => 0,
        };
        (self.mask | own) & !unblockable()
    }
}

/// Signals that the guest cannot block: the trap's, if there is one.
pub(crate) fn unblockable() -> u64 {
    match guest().trapped {
        Some(_) => 1 << (libc::SIGSYS - 1),
        None => 0,
    }
}

#[derive(Debug)]
struct Slot {
    /// 0: free, 1: being set, 2: set.
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

/// The address of an entry point.
pub(super) fn entry_point(index: usize) -> usize {
    sojourn_handlers as *const () as usize + index * STRIDE
}

/// What an entry point stands for.
pub(super) fn handler(index: usize) -> Option<Handler> {
    let slot = SLOTS.get(index)?;
    // SYNC: acquire; pairs with the release in `entry_for`: what it stands for is there.
    (slot.state.load(Ordering::Acquire) == 2).then(|| Handler {
        address: slot.address.load(Ordering::Relaxed),
        flags: slot.flags.load(Ordering::Relaxed),
        mask: slot.mask.load(Ordering::Relaxed),
        restorer: slot.restorer.load(Ordering::Relaxed),
    })
}

/// The entry point for a handler, if there is one left.
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

/// `SIG_DFL` and `SIG_IGN` are no handlers.
const IGNORE: usize = 1;

/// rt_sigaction(2). Arguments as for the system call.
pub(crate) fn act(arguments: &[usize; 6]) -> isize {
    let [signal, new, old, size, ..] = *arguments;
    // A guest in which calls are trapped keeps the trap.
    let is_trap = signal == libc::SIGSYS as usize && guest().trapped.is_some();
    let mut action = Action::default();
    // SAFETY: the guest's own, as for the kernel; what it gives is copied once.
    let given = (new != 0).then(|| unsafe { (new as *const Action).read_unaligned() });
    let set = match given {
        _ if is_trap => None,
        Some(given) => match translated(given) {
            Some(ours) => Some(ours),
            None => return -(libc::ENOMEM as isize),
        },
        None => None,
    };
    let new = set.as_ref().map_or(0, |set| core::ptr::from_ref(set) as usize);
    let at = (&raw mut action) as usize;
    // SAFETY: both actions are ours; the kernel checks number and size.
    let result = unsafe { raw::call(libc::SYS_rt_sigaction, [signal, new, at, size, 0, 0]) };
    if result == 0 && old != 0 {
        let shown = if is_trap { Action::default() } else { shown(action) };
        // SAFETY: the guest's own, as for the kernel.
        unsafe { (old as *mut Action).write_unaligned(shown) };
    }
    result
}

/// What the kernel is given.
fn translated(given: Action) -> Option<Action> {
    if given.handler <= IGNORE {
        return Some(given);
    }
    let Action { handler, flags, restorer, mask } = given;
    let index = entry_for(Handler { address: handler, flags, mask, restorer })?;
    // All signals are blocked until the handler itself runs, with the mask that is wanted.
    let flags = (flags | libc::SA_SIGINFO as usize | RESTORER) & !(libc::SA_NODEFER as usize);
    let restorer = sojourn_restorer as *const () as usize;
    Some(Action { handler: entry_point(index), flags, restorer, mask: !unblockable() })
}

/// What the guest is told of an action of the kernel's.
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
