//! The registers that a handler of the guest's finds in its context: those of the guest's own code.
//!
//! Some C libraries compare the instruction pointer with the addresses around a system call. musl's
//! pthread_cancel(3) ends a thread that it finds there, and only there: a call that waits must be
//! seen to wait. Profilers and unwinders look as well. So a thread in a trampoline is shown at the
//! program's own instruction. If that has been overwritten, the handler's return leads back into
//! the trampoline. Read `enter` first.

use crate::enter::{self, Stage};
use crate::guest::guest;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::{REG_R11, REG_RCX, REG_RIP, REG_RSP, ucontext_t};

/// The signals whose handlers have been shown an address that has been overwritten. A scheduler may
/// put such a context into any later one of the same signal.
static SHOWN: AtomicU64 = AtomicU64::new(0);

/// Shows the guest's own instruction. Returns true if the return from the handler must be seen.
pub(super) fn show(context: &mut ucontext_t, signal: c_int) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let register = |at: i32| registers[at as usize] as usize;
    let rip = register(REG_RIP);
    let found = match enter::stage(rip) {
        None => guest().original(rip),
        // Just before it changes, the stack pointer is in `r11`.
        Some(Stage::Begun) if register(REG_R11) != register(REG_RSP) => {
            Some(site(register(REG_R11)))
        }
        // At the `syscall` that the guest makes itself, or behind one that is complete.
        Some(Stage::Leaves) => guest().original(register(REG_RCX)),
        Some(_) => Some(site(register(REG_RCX))),
    };
    let bit = 1u64 << (signal - 1);
    if let Some(found) = found {
        // Only the guest's own image is known so well that the thread finds back.
        if guest().moved(found).is_some() {
            SHOWN.fetch_or(bit, Ordering::Relaxed);
            registers[REG_RIP as usize] = found as i64;
        } else if guest().original(rip) == Some(found) {
            registers[REG_RIP as usize] = found as i64;
        }
    }
    SHOWN.load(Ordering::Relaxed) & bit != 0
}

/// Returns the address of the guest's `syscall` in front of the address at which it goes on.
fn site(back: usize) -> usize {
    guest().original(back - 2).unwrap_or(back - 2)
}
