//! What the shim keeps for each thread, in thread-local storage that is reached in one instruction.
//!
//! Everything is zero at first and needs no destructor. Only its own thread touches it, and signal
//! handlers on that thread; hence atomics, used without any order, and fences for the compiler
//! alone.

use crate::turns::Turns;
use crate::validated::Validated;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// One thread.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Thread {
    /// More than 0: inside the library. Calls go straight to the kernel, handlers are put off.
    pub(crate) depth: AtomicU32,
    /// 1: inside, but waiting: handlers run.
    pub(crate) waiting: AtomicU32,
    /// What ran since the wait began: 0 nothing, 1 handlers that restart, 2 one that does not.
    pub(crate) ran: AtomicU32,
    /// Counts handlers of the program's that ran here and do not restart calls.
    pub(crate) breaks: AtomicU32,
    /// How many cancelled threads this one has looked after: see `process`.
    pub(crate) cancels_seen: AtomicU32,
    /// Handlers of the program's that run here: see `handlers::in_handler`.
    pub(crate) handlers: AtomicU32,
    /// An address in the frame of the first of them.
    pub(crate) first_handler: AtomicUsize,
    /// Where on the program's stack the work was called for that a stack of the library's own is in
    /// use for; 1 in the library's own threads, which have stack enough; 0: none.
    pub(crate) own_stack: AtomicUsize,
    /// Signals that were put off and are blocked, bit `n - 1` for signal `n`.
    pub(crate) put_off: AtomicU64,
    /// The order of those that may queue up.
    pub(crate) turns: Turns,
    /// Memory of the program that may be touched.
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

/// This thread's. Not to be kept or passed on.
#[inline(always)]
pub(crate) fn here() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: computes the address of the variable defined above, in the initial-exec manner: this
    // library is loaded with the program.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + sojourn_thread@GOTTPOFF]",
            out(reg) thread,
            options(pure, nomem, nostack),
        );
        // SAFETY: zeroed bytes are a `Thread`; it lives as long as the thread, which is the one
        // running.
        &*thread
    }
}
