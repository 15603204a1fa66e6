//! Signal handlers: delayed while the library's state is half changed, admitted while the library
//! waits.
//!
//! # Theory of operation
//! The kernel is given one of `ENTRIES` entry points instead of the program's handler. Each entry
//! point stands for one handler with its flags. So the kernel's own answer, translated back, says
//! which handler is installed at any moment, and nothing needs a lock. When the entry points are
//! used up, further handlers are installed directly.
//!
//! A handler that arrives while its thread is inside the library (`tls::Thread::depth`) and not
//! asleep is put off (`deferred`). Faults cannot wait and are never put off. While the thread
//! sleeps, a handler runs as if outside the library, and is counted, so that the wait ends where
//! the kernel's wait would (signal(7), "Interruption of system calls"). A handler that is put off
//! before or after a sleep of a wait ends the wait, too: it runs at the next one, or as the call
//! ends.

use crate::deferred;
use crate::guard::{self, can_open, is_open};
use crate::handlers::run;
use crate::linker::address_of;
use crate::next::next;
use crate::tls::{ADMITS, Thread, here};
use crate::trampoline::alias;
use crate::{pause, relocation};
use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use libc::{sighandler_t, siginfo_t, sigset_t};
use sojourn_abi::door::{PutOff, Signal, is_fault};

const ENTRIES: usize = 256;
/// Bits of an entry's word beside the handler's address. Addresses of user space do not use them.
const WITH_INFO: usize = 1 << 62;
const RESTARTS: usize = 1 << 63;
const ADDRESS: usize = WITH_INFO - 1;
/// Bytes between two entry points.
const STRIDE: usize = 16;

/// The handler and flags of each entry point. A word that is set never changes.
static HANDLERS: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];

/// The instructions of one entry point, which set the fourth argument, behind the three of a
/// handler, to the entry point's number.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    () => {
        // The first instruction is `mov ecx, sojourn_index`.
        ".byte 0xb9
         .long sojourn_index
         jmp {common}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    () => {
        // The first instruction is `mov w3, sojourn_index`.
        ".long 0x52800003 + (sojourn_index << 5)
         b {common}"
    };
}

global_asm!(
    ".pushsection .text.sojourn_signals, \"ax\", @progbits",
    ".p2align 4",
    ".type sojourn_signal_entries, @function",
    ".globl sojourn_signal_entries",
    ".hidden sojourn_signal_entries",
    "sojourn_signal_entries:",
    ".set sojourn_index, 0",
    ".rept {count}",
    ".p2align 4",
    entry!(),
    ".set sojourn_index, sojourn_index + 1",
    ".endr",
    ".size sojourn_signal_entries, . - sojourn_signal_entries",
    ".popsection",
    count = const ENTRIES,
    common = sym on_signal,
);

unsafe extern "C" {
    fn sojourn_signal_entries();
}

type Action = libc::sigaction;
type SigActionFn = unsafe extern "C-unwind" fn(c_int, *const Action, *mut Action) -> c_int;
type HandlerFn = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

fn entry_point(index: usize) -> usize {
    // Not by the global offset table: handlers may be installed before the relocation.
    address_of!(sym sojourn_signal_entries) + index * STRIDE
}

/// Returns the entry point for a handler with its flags; `None` if all entry points are used up.
fn entry_for(handler: usize, flags: c_int) -> Option<usize> {
    let mut word = handler;
    if flags & libc::SA_SIGINFO != 0 {
        word |= WITH_INFO;
    }
    if flags & libc::SA_RESTART != 0 {
        word |= RESTARTS;
    }
    for (index, entry) in HANDLERS.iter().enumerate() {
        let found = match entry.load(Ordering::Relaxed) {
            0 => entry.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).err(),
            found => Some(found),
        };
        if found.is_none_or(|found| found == word) {
            return Some(entry_point(index));
        }
    }
    None
}

/// Replaces the entry point in an action from the kernel by the program's handler.
fn translate(action: &mut Action) {
    let offset = action.sa_sigaction.wrapping_sub(entry_point(0));
    if offset < ENTRIES * STRIDE {
        let word = HANDLERS[offset / STRIDE].load(Ordering::Relaxed);
        action.sa_sigaction = word & ADDRESS;
        if word & WITH_INFO == 0 {
            action.sa_flags &= !libc::SA_SIGINFO;
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const Action,
    old: *mut Action,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    unsafe { set_action(signal, new, old) }
}

/// Serves [`sigaction`], also for this library's functions, which must not call exported ones.
///
/// # Safety
/// As for [`sigaction`].
unsafe fn set_action(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the program's arguments, or an action made here.
    let install = |new| unsafe { next!(c"sigaction" as SigActionFn)(signal, new, old) };
    // SAFETY: null, or an action that the C library reads as well.
    let ours = unsafe { new.as_ref() }.and_then(entered);
    let result = install(ours.as_ref().map_or(new, core::ptr::from_ref));
    if result == 0 && !old.is_null() {
        // SAFETY: the C library has just written the action.
        translate(unsafe { &mut *old });
    }
    result
}

/// Returns the action with an entry point in place of the handler; `None` if the action has no
/// handler, or needs no entry point.
fn entered(new: &Action) -> Option<Action> {
    let has_handler = ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR].contains(&new.sa_sigaction);
    if !has_handler || !can_open() {
        return None;
    }
    let entry = entry_for(new.sa_sigaction, new.sa_flags)?;
    // `SA_SIGINFO` is always set: a signal that is put off is sent again with its original
    // information.
    Some(Action { sa_sigaction: entry, sa_flags: new.sa_flags | libc::SA_SIGINFO, ..*new })
}

alias!(__sigaction = sigaction);

/// Receives every signal of the program that has an entry point; `index` is the entry point's
/// number.
unsafe extern "C-unwind" fn on_signal(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
    index: usize,
) {
    let word = HANDLERS[index & (ENTRIES - 1)].load(Ordering::Relaxed);
    // SAFETY: the program installed this address as a handler.
    let handler = unsafe { core::mem::transmute::<usize, HandlerFn>(word & ADDRESS) };
    if guard::is_untouched() {
        // There is nothing inside which the thread could be.
        // SAFETY: the kernel's own arguments. A handler that takes one argument ignores the others.
        return run(here(), || unsafe { handler(signal, info, context) });
    }
    // The thread may be initializing the library.
    relocation::all();
    let restarts = word & RESTARTS != 0;
    let coming = PendingSignal { signal, info, context, entry: entry_point(index), restarts };
    // SAFETY: the kernel's own structures. A handler that takes one argument ignores the others.
    unsafe { deliver(&coming, || handler(signal, info, context)) };
}

/// Receives a signal from the loader of programs that make their own system calls. The loader
/// installs its own handlers in the kernel, and runs the guest's between calls only (`guests`).
pub(crate) unsafe extern "C-unwind" fn came_through_door(signal: &Signal) -> PutOff {
    relocation::all();
    let thread = here();
    let info: *mut siginfo_t = signal.info.cast();
    if !signal.is_inside {
        deferred::came(thread, signal.number);
        // SAFETY: the kernel's information for this signal.
        deferred::take_turn(thread, signal.number, unsafe { &mut *info });
        return PutOff::default();
    }
    if signal.is_fault {
        // The call ends here, as it would if the handler jumped out.
        thread.depth.store(0, Ordering::Relaxed);
        thread.waiting.store(0, Ordering::Relaxed);
        thread.has_call_mask.store(0, Ordering::Relaxed);
    }
    let this = if signal.restarts { 1 } else { 2 };
    let waits = thread.handler_waits.load(Ordering::Relaxed).max(this);
    thread.handler_waits.store(waits, Ordering::Relaxed);
    thread.ran.store(waits, Ordering::Relaxed);
    // SAFETY: the kernel's own structures.
    unsafe {
        let mask = pause::ended_with_mask(thread, bit(signal.number), &*signal.context.cast());
        let before =
            deferred::put_off(thread, signal.number, signal.entry, info, signal.context.cast());
        pause::leave_gap(&mut *signal.context.cast());
        // With the call's mask others may be delivered before this one's handler runs.
        let admitted = mask.map_or(0, |mask| before & !mask);
        thread.put_off.fetch_or(admitted, Ordering::Relaxed);
        let blocked = mask.map_or(0, |mask| mask & !before);
        PutOff { signals: bit(signal.number) | admitted, blocked }
    }
}

/// A signal for which the kernel has called a handler.
struct PendingSignal {
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
    /// The address that the kernel called.
    entry: usize,
    /// True if the handler was installed with `SA_RESTART`.
    restarts: bool,
}

/// Runs the handler, or puts the signal off. Inlined, because the handler may end its thread, and
/// then this frame is unwound.
///
/// # Safety
/// `coming` must hold the arguments of the kernel's handler function.
#[inline(always)]
unsafe fn deliver(coming: &PendingSignal, handler: impl FnOnce()) {
    let PendingSignal { signal, info, context, entry, restarts } = *coming;
    let thread = here();
    let is_outside = thread.depth.load(Ordering::Relaxed) == 0;
    let waiting = thread.waiting.load(Ordering::Relaxed);
    let is_admitted = || match waiting {
        0 => false,
        ADMITS => true,
        // SAFETY: the kernel's context of this signal.
        _ => pause::is_asleep(unsafe { &*context.cast() }),
    };
    // SAFETY: the kernel's information for this signal.
    if !is_outside && !is_admitted() && !is_fault(signal, unsafe { &*info }) {
        if waiting != 0 {
            let ran = thread.ran.load(Ordering::Relaxed);
            thread.ran.store(ran.max(1), Ordering::Relaxed);
        }
        // SAFETY: the kernel's own structures.
        unsafe { deferred::put_off(thread, signal, entry, info, context.cast()) };
        return;
    }
    let count = if restarts { &thread.restarting_handlers } else { &thread.interrupting_handlers };
    // Plain load and store suffice: the count is only used by this thread, and a handler that runs
    // between the two need not be told apart from this one.
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    // SAFETY: the kernel's information for this signal.
    deferred::take_turn(thread, signal, unsafe { &mut *info });
    if is_outside {
        if thread.put_off.load(Ordering::Relaxed) != 0 {
            // SAFETY: the kernel's context of this signal.
            unsafe { deferred::release_later(thread, context.cast()) };
        }
        return run(thread, handler);
    }
    run_inside(thread, restarts, || run(thread, handler));
    // SAFETY: the kernel's context of this signal.
    pause::leave_gap(unsafe { &mut *context.cast() });
}

/// Runs a handler as if outside the library. A handler that leaves with longjmp(3) leaves the
/// thread marked as outside, which is then true.
fn run_inside(thread: &Thread, restarts: bool, handler: impl FnOnce()) {
    let depth = thread.depth.swap(0, Ordering::Relaxed);
    let waiting = thread.waiting.swap(0, Ordering::Relaxed);
    let ran = thread.ran.load(Ordering::Relaxed);
    handler();
    let this = if restarts { 1 } else { 2 };
    thread.ran.store(ran.max(this), Ordering::Relaxed);
    thread.waiting.store(waiting, Ordering::Relaxed);
    thread.depth.store(depth, Ordering::Relaxed);
}

/// Signals for which siginterrupt(3) asked for interruption: `signal` installs their handlers
/// without `SA_RESTART`.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

fn bit(signal: c_int) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|shift| 1u64.checked_shl(shift)).unwrap_or(0)
}

fn install(signal: c_int, handler: sighandler_t, flags: c_int, mask: sigset_t) -> sighandler_t {
    if handler == libc::SIG_ERR || !(1..=64).contains(&signal) {
        crate::errno::set_raw(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let new = Action { sa_sigaction: handler, sa_mask: mask, sa_flags: flags, sa_restorer: None };
    // SAFETY: zeroes are an action.
    let mut old: Action = unsafe { core::mem::zeroed() };
    // SAFETY: both actions are local.
    if unsafe { set_action(signal, &raw const new, &raw mut old) } < 0 {
        libc::SIG_ERR
    } else {
        old.sa_sigaction
    }
}

fn no_signals() -> sigset_t {
    // SAFETY: zeroes are the empty set.
    unsafe { core::mem::zeroed() }
}

fn only(signal: c_int) -> sigset_t {
    let mut set = no_signals();
    // SAFETY: the set is local. Its first word has the bits of all signals. Not by sigaddset(3),
    // which would be called by the global offset table (`relocation`).
    unsafe { (&raw mut set).cast::<u64>().write(bit(signal)) };
    set
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let restarts = INTERRUPTING.load(Ordering::Relaxed) & bit(signal) == 0;
    install(signal, handler, if restarts { libc::SA_RESTART } else { 0 }, only(signal))
}

alias!(bsd_signal = signal, ssignal = signal);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, no_signals())
}

alias!(__sysv_signal = sysv_signal);

/// Implements sigset(3): installs a handler without flags and unblocks the signal, or blocks it
/// (`SIG_HOLD`). Returns `SIG_HOLD` if the signal was blocked before, else the previous handler.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    /// `SIG_HOLD` of `<signal.h>`.
    const HOLD: sighandler_t = 2;
    if !(1..=64).contains(&signal) {
        crate::errno::set_raw(libc::EINVAL);
        return libc::SIG_ERR;
    }
    // What follows calls functions of other crates (`relocation`).
    is_open();
    let mut before = no_signals();
    let set = only(signal);
    if handler == HOLD {
        // SAFETY: the sets and the action are local.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            let mut now: Action = core::mem::zeroed();
            let failed = set_action(signal, core::ptr::null(), &raw mut now) < 0;
            let held = libc::sigismember(&raw const before, signal) == 1;
            return if failed {
                libc::SIG_ERR
            } else if held {
                HOLD
            } else {
                now.sa_sigaction
            };
        }
    }
    let old = install(signal, handler, 0, no_signals());
    if old == libc::SIG_ERR {
        return old;
    }
    // SAFETY: the sets are local.
    unsafe {
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before);
        if libc::sigismember(&raw const before, signal) == 1 { HOLD } else { old }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: zeroes are an action; both calls get a local one.
    unsafe {
        let mut action: Action = core::mem::zeroed();
        if set_action(signal, core::ptr::null(), &raw mut action) < 0 {
            return -1;
        }
        if interrupts != 0 {
            INTERRUPTING.fetch_or(bit(signal), Ordering::Relaxed);
            action.sa_flags &= !libc::SA_RESTART;
        } else {
            INTERRUPTING.fetch_and(!bit(signal), Ordering::Relaxed);
            action.sa_flags |= libc::SA_RESTART;
        }
        if set_action(signal, &raw const action, core::ptr::null_mut()) < 0 { -1 } else { 0 }
    }
}
