//! Signals that arrive while the library's state is half changed: deferred, and delivered later in
//! their order.
//!
//! # Theory of operation
//! A deferred signal is sent to its thread again, and blocked in the mask with which the thread
//! continues, until the thread leaves the library. Then the kernel delivers it like any other.
//!
//! Real-time signals are queued (signal(7)), and the one that is sent again is behind those that
//! arrived after it. So its information is kept. From then on, each delivery of that signal reports
//! the information that is kept, and its own information is kept instead: the queue is longer by
//! one at its head. The signal that was sent again is delivered last. It reports the information
//! that is kept and keeps nothing, so all are reported in order.

use crate::tls::{Thread, here};
use crate::turns::SignalInfo;
use crate::{mask, raw, taken};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{siginfo_t, ucontext_t};

/// The first real-time signal.
const REAL_TIME: c_int = 32;

fn said(info: &mut siginfo_t) -> &mut SignalInfo {
    // SAFETY: 128 bytes of plain data; `SignalInfo` is their beginning.
    unsafe { &mut *core::ptr::from_mut(info).cast() }
}

/// Puts the information whose turn it is into `info`, before a handler for `signal` runs.
#[inline]
pub(crate) fn take_turn(thread: &Thread, signal: c_int, info: &mut siginfo_t) {
    if signal >= REAL_TIME
        && let Some(turn) = thread.turns.of(signal as u32)
    {
        let now = *said(info);
        // SAFETY: `Turn` is only accessed by its own thread, in handlers of this signal or while it
        // is blocked.
        unsafe {
            *said(info) = *turn.next.get();
            if now == *turn.last.get() {
                turn.signal.store(0, Ordering::Relaxed);
            } else {
                *turn.next.get() = now;
            }
        }
    }
}

/// Keeps the information in `info`, which precedes all that is queued.
fn keep_turn(thread: &Thread, signal: c_int, info: &mut siginfo_t) {
    if signal < REAL_TIME || thread.turns.of(signal as u32).is_some() {
        return;
    }
    if let Some(turn) = thread.turns.of(0) {
        // SAFETY: `Turn` is only accessed by its own thread, and this one is not in use yet.
        unsafe {
            *turn.next.get() = *said(info);
            *turn.last.get() = *said(info);
        }
        turn.signal.store(signal as u32, Ordering::Relaxed);
    }
}

/// Sends the signal to this thread again, and blocks it until [`release`]. `handler` is the entry
/// point that is installed in the kernel. Returns the signals that were to be blocked when the
/// handler returns, before this one was.
///
/// # Safety
/// `info` and `context` must be the kernel's arguments of a handler that is running for `signal`.
#[cold]
pub(crate) unsafe fn put_off(
    thread: &Thread,
    signal: c_int,
    handler: usize,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
) -> u64 {
    // No other handler runs from here until the thread continues: each must know of all signals
    // that were put off before it.
    mask::change(libc::SIG_BLOCK, !0);
    let bit = 1u64 << (signal - 1);
    // All signals that are put off are blocked, not only this one: the kernel may start several
    // handlers on top of one another before the last of them runs, and the mask that an earlier one
    // returns to is older than the signals that a later one has put off.
    let all = thread.put_off.fetch_or(bit, Ordering::Relaxed) | bit;
    // SAFETY: the caller promises the kernel's context.
    let before =
        unsafe { core::ptr::replace(going_on_with(context), *going_on_with(context) | all) };
    end_sleep(thread);
    reinstall(signal, handler);
    // SAFETY: the caller promises the kernel's information.
    keep_turn(thread, signal, unsafe { &mut *info });
    let process = raw::process_number() as usize;
    // SAFETY: no arguments.
    let number = unsafe { raw::call(libc::SYS_gettid, [0; 6]) } as usize;
    let arguments = [process, number, signal as usize, info as usize, 0, 0];
    // SAFETY: sends a signal to this thread itself, for which the kernel accepts any information
    // (rt_sigqueueinfo(2)).
    unsafe { raw::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
    before
}

/// Has the thread's sleep end, or not begin, if it told of one.
fn end_sleep(thread: &Thread) {
    let word = thread.sleeps_on.load(Ordering::Relaxed) as *const AtomicU32;
    // SAFETY: null, or the address of a word that lives at least until the thread says otherwise.
    if let Some(word) = unsafe { word.as_ref() } {
        word.store(0, Ordering::Relaxed);
    }
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Installs a one-time handler (`SA_RESETHAND`) again, which the kernel has removed although it has
/// not run.
fn reinstall(signal: c_int, handler: usize) {
    let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let at = (&raw mut action) as usize;
    let one_time = u64::from(libc::SA_RESETHAND as u32);
    // SAFETY: reads, then writes, one action.
    unsafe {
        raw::call(libc::SYS_rt_sigaction, [signal as usize, 0, at, 8, 0, 0]);
        if action.flags & one_time != 0 && action.handler == libc::SIG_DFL {
            (&raw mut action.handler).write(handler);
            raw::call(libc::SYS_rt_sigaction, [signal as usize, at, 0, 8, 0, 0]);
        }
    }
}

/// Returns the address of the mask that the thread has once the handler has returned.
fn going_on_with(context: *mut ucontext_t) -> *mut u64 {
    // SAFETY: computes an address only; the kernel's set is the first word of the C library's.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}

/// Releases the thread when its handler returns. For a handler that has interrupted a thread that
/// has left the library and is about to call [`release`]: a signal that the handler itself puts off
/// and releases must not count as that release.
///
/// # Safety
/// `context` must be the kernel's, of a handler that is running.
#[cold]
pub(crate) unsafe fn release_later(thread: &Thread, context: *mut ucontext_t) {
    let signals = thread.put_off.swap(0, Ordering::Relaxed);
    // SAFETY: the caller promises the kernel's context.
    unsafe { *going_on_with(context) &= !signals };
}

/// Forgets that a signal was put off whose handler is about to run in a guest of the loader's.
pub(crate) fn came(thread: &Thread, signal: c_int) {
    let bit = 1u64 << (signal - 1);
    if thread.put_off.fetch_and(!bit, Ordering::Relaxed) == bit {
        thread.handler_waits.store(0, Ordering::Relaxed);
    }
}

/// Returns the signals that were put off in a guest of the loader's. The loader unblocks them when
/// the guest's call has ended.
pub(crate) extern "C" fn due() -> u64 {
    let thread = here();
    thread.handler_waits.store(0, Ordering::Relaxed);
    thread.restarts.store(0, Ordering::Relaxed);
    thread.put_off.swap(0, Ordering::Relaxed)
}

/// Unblocks the signals that were put off. In the loader's process the loader does ([`due`]).
#[cold]
#[inline(never)]
pub(crate) fn release(thread: &Thread) {
    if taken::is_taken() {
        return;
    }
    let signals = thread.put_off.swap(0, Ordering::Relaxed);
    mask::change(libc::SIG_UNBLOCK, signals);
}
