//! Signals that came at a bad time: deferred, let in later, in their order.
//!
//! # Theory of operation
//! A signal that is put off is sent to its thread again and blocked, in the mask that the thread
//! goes on with, until the library is left. Then the kernel delivers it as it delivers any.
//!
//! Real-time signals queue up, and one sent again is behind those that came after it. So what it
//! said is kept, and every delivery of that signal from then on is answered with what is kept, and
//! keeps what itself says: a queue that is one longer at its head. The one sent again comes last;
//! it takes what is kept and keeps nothing, which puts all in order.

use crate::raw;
use crate::tls::Thread;
use crate::turns::Said;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::{siginfo_t, ucontext_t};

/// The first signal that queues up.
const REAL_TIME: c_int = 32;

fn said(info: &mut siginfo_t) -> &mut Said {
    // SAFETY: 128 bytes of plain data, of which these are the first.
    unsafe { &mut *core::ptr::from_mut(info).cast() }
}

/// A handler for `signal` is about to run: has it say what is its turn.
#[inline]
pub(crate) fn take_turn(thread: &Thread, signal: c_int, info: &mut siginfo_t) {
    if signal >= REAL_TIME
        && let Some(turn) = thread.turns.of(signal as u32)
    {
        let now = *said(info);
        // SAFETY: see `Turn`.
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

/// Notes that what `info` says comes before all that is queued.
fn keep_turn(thread: &Thread, signal: c_int, info: &mut siginfo_t) {
    if signal < REAL_TIME || thread.turns.of(signal as u32).is_some() {
        return;
    }
    if let Some(turn) = thread.turns.of(0) {
        // SAFETY: see `Turn`; this one is nobody's yet.
        unsafe {
            *turn.next.get() = *said(info);
            *turn.last.get() = *said(info);
        }
        turn.signal.store(signal as u32, Ordering::Relaxed);
    }
}

/// Sends the signal to this thread again and blocks it until [`release`]. `handler` is the entry
/// point that the kernel knows.
///
/// # Safety
/// `info` and `context` are the kernel's, of a handler that is running for `signal`.
#[cold]
pub(crate) unsafe fn put_off(
    thread: &Thread,
    signal: c_int,
    handler: usize,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
) {
    // From here until the thread goes on, no other handler: each is to know of all that were put
    // off before it.
    mask(libc::SIG_BLOCK, !0);
    let bit = 1u64 << (signal - 1);
    // All of them, for the kernel lays handlers upon one another before the last of them runs: the
    // mask that an earlier one goes back to is from before what a later one put off.
    let all = thread.put_off.fetch_or(bit, Ordering::Relaxed) | bit;
    // SAFETY: the caller's promise.
    unsafe { *going_on_with(context) |= all };
    reinstall(signal, handler);
    // SAFETY: the caller's promise.
    keep_turn(thread, signal, unsafe { &mut *info });
    let process = raw::process_number() as usize;
    // SAFETY: no arguments.
    let number = unsafe { raw::call(libc::SYS_gettid, [0; 6]) } as usize;
    let arguments = [process, number, signal as usize, info as usize, 0, 0];
    // SAFETY: a signal to this very thread, for which the kernel takes any information.
    unsafe { raw::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// A handler for one time (`SA_RESETHAND`) is gone by now, and has not run.
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

fn mask(how: c_int, signals: u64) {
    let arguments = [how as usize, (&raw const signals) as usize, 0, 8, 0, 0];
    // SAFETY: this thread's mask.
    unsafe { raw::call(libc::SYS_rt_sigprocmask, arguments) };
}

/// The mask of the thread once the handler has returned.
fn going_on_with(context: *mut ucontext_t) -> *mut u64 {
    // SAFETY: no access; the kernel's set is the first word of the C library's.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}

/// A handler interrupted a thread that has left the library and is about to [`release`]. What the
/// handler itself puts off and releases must not pass for that: the thread is released when it goes
/// on.
///
/// # Safety
/// `context` is the kernel's, of a handler that is running.
#[cold]
pub(crate) unsafe fn release_later(thread: &Thread, context: *mut ucontext_t) {
    let signals = thread.put_off.swap(0, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { *going_on_with(context) &= !signals };
}

/// Lets signals come that were put off.
#[cold]
#[inline(never)]
pub(crate) fn release(thread: &Thread) {
    let signals = thread.put_off.swap(0, Ordering::Relaxed);
    mask(libc::SIG_UNBLOCK, signals);
}
