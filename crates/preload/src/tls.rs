//! The state that this crate keeps for each thread, in thread-local storage that two instructions
//! reach.
//!
//! The state begins as zeroes and needs no destructor. Only its own thread accesses it, and signal
//! handlers on that thread. So relaxed atomics and compiler fences suffice.

use crate::turns::Turns;
use crate::validated::Validated;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// The thread waits: signal handlers run while it sleeps. At other moments of the wait it looks
/// whether it should sleep, and may hold a lock of the library for that, which a handler's own call
/// would wait for, or would keep for ever by leaving with longjmp(3).
pub(crate) const WAITS: u32 = 1;
/// The thread waits and holds no lock: signal handlers run at any moment.
pub(crate) const ADMITS: u32 = 2;

/// The state of one thread.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Thread {
    /// More than 0 while the thread is inside the library: calls go directly to the kernel, signal
    /// handlers are put off.
    pub(crate) depth: AtomicU32,
    /// The wait of a thread that is inside: [`WAITS`], [`ADMITS`], or 0 for none.
    pub(crate) waiting: AtomicU32,
    /// The handlers that have run since the wait began: 0 for none, 1 for handlers that restart
    /// calls, 2 if one does not. 1 as well if one was put off, so that the wait ends for it.
    pub(crate) ran: AtomicU32,
    /// Counts the program's handlers that have run in this thread and do not restart calls.
    pub(crate) interrupting_handlers: AtomicU32,
    /// Counts those that restart calls.
    pub(crate) restarting_handlers: AtomicU32,
    /// The count of cancelled threads that this thread has reacted to: see `process`.
    pub(crate) cancels_seen: AtomicU32,
    /// The number of the program's handlers that are running: see `handlers::in_handler`.
    pub(crate) handlers: AtomicU32,
    /// An address in the frame of the outermost of these handlers.
    pub(crate) first_handler: AtomicUsize,
    /// The place on the program's stack from which work was moved to a stack of the library's own;
    /// 1 in the library's own threads, which have enough stack; 0 if no such work is running.
    pub(crate) own_stack: AtomicUsize,
    /// Signals that were put off and are blocked, bit `n - 1` for signal `n`.
    pub(crate) put_off: AtomicU64,
    /// In the loader's process: a handler waits until the guest's call has ended. 1 if all that
    /// wait restart calls, 2 if one does not, 0 for none.
    pub(crate) handler_waits: AtomicU32,
    /// While a guest's call with a signal mask of its own is made: the signals that this mask
    /// blocks. Valid if `has_call_mask` is not 0.
    pub(crate) call_mask: AtomicU64,
    pub(crate) has_call_mask: AtomicU32,
    /// A wait has ended for handlers that restart calls.
    pub(crate) restarts: AtomicU32,
    /// Not 0 if the guest's call has waited in the library.
    pub(crate) has_waited: AtomicU32,
    /// The address of the word that this thread sleeps on while handlers are put off; 0 if none.
    pub(crate) sleeps_on: AtomicUsize,
    /// The order of deferred real-time signals.
    pub(crate) turns: Turns,
    /// Memory of the program that is known to be accessible.
    pub(crate) validated: Validated,
}

global_asm!(
    ".pushsection .tbss.sojourn_thread,\"awT\",@nobits",
    ".p2align 6",
    ".globl sojourn_thread",
    ".hidden sojourn_thread",
    ".type sojourn_thread, @object",
    ".size sojourn_thread, {size}",
    "sojourn_thread:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Thread>(),
);

/// Returns the state of this thread. The reference must not be kept or passed to another thread.
#[inline(always)]
pub(crate) fn here() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: computes the address of the variable defined above, by initial-exec access: this
    // library is loaded together with the program.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + sojourn_thread@GOTTPOFF]",
            out(reg) thread,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: computes the address of the variable defined above, by initial-exec access.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:sojourn_thread",
            "ldr {1}, [{1}, :gottprel_lo12:sojourn_thread]",
            "add {0}, {0}, {1}",
            out(reg) thread,
            out(reg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    // SAFETY: zeroed bytes are a valid `Thread`, which lives as long as the running thread.
    unsafe { &*thread }
}
