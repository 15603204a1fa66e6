//! The registers that a handler of the guest's finds in its context: those of the guest's own code.
//!
//! Some C libraries compare the instruction pointer with the addresses around a system call. musl's
//! pthread_cancel(3) ends a thread that it finds there, and only there: a call that waits must be
//! seen to wait. Handlers that switch contexts (swapcontext(3)), and profilers, look as well. So a
//! thread in a trampoline is shown at the program's own instruction, and a thread in a call at the
//! program's `syscall`, with the registers that it made the call with. Read `enter` first.

use super::windows::WAY;
use crate::block::Frame;
use crate::enter::{self, Stage};
use crate::guest::guest;
use core::arch::asm;
use libc::{REG_R11, REG_RCX, REG_RIP, REG_RSP, greg_t, ucontext_t};

/// The registers before a handler began.
pub(super) struct Shown {
    own: [greg_t; 23],
    /// The instruction pointer that the handler has seen.
    rip: i64,
}

impl Shown {
    /// Shows the guest's registers. `call` has those of the interrupted call, or is null.
    pub(super) fn of(context: &mut ucontext_t, call: *const Frame) -> Self {
        let registers = &mut context.uc_mcontext.gregs;
        let own = *registers;
        // SAFETY: during a call the frame is valid.
        if let Some(frame) = unsafe { call.as_ref() } {
            WAY.iter().for_each(|(at, value)| registers[*at as usize] = value(frame) as i64);
            registers[REG_RIP as usize] = site(frame.back) as i64;
        } else {
            let register = |at: i32| own[at as usize] as usize;
            let rip = register(REG_RIP);
            let found = match enter::stage(rip) {
                None => guest().original(rip),
                // Just before it changes, the stack pointer is in `r11`.
                Some(Stage::Begun) if register(REG_R11) != register(REG_RSP) => {
                    Some(site(register(REG_R11)))
                }
                Some(_) => Some(site(register(REG_RCX))),
            };
            registers[REG_RIP as usize] = found.unwrap_or(rip) as i64;
        }
        Self { own, rip: registers[REG_RIP as usize] }
    }

    /// Returns true if the handler has the guest go on elsewhere.
    pub(super) fn is_changed(&self, context: &ucontext_t) -> bool {
        context.uc_mcontext.gregs[REG_RIP as usize] != self.rip
    }

    /// Puts the registers back, unless the handler has the guest go on elsewhere.
    pub(super) fn undo(&self, context: &mut ucontext_t) {
        let registers = &mut context.uc_mcontext.gregs;
        if registers[REG_RIP as usize] != self.rip {
            return;
        }
        // Outside calls and trampolines a handler may change the other registers alone.
        if self.rip != self.own[REG_RIP as usize] {
            *registers = self.own;
        }
    }
}

/// Returns the address of the guest's `syscall` in front of the address at which it goes on.
fn site(back: usize) -> usize {
    guest().original(back - 2).unwrap_or(back - 2)
}

/// Goes on with the registers and the signal mask of `context`, as a handler's end does. The FS
/// base must be the guest's.
///
/// # Safety
/// The registers must be the guest's. The frames of the host must have nothing to drop.
pub(super) unsafe fn go_on(context: *const ucontext_t) -> ! {
    // SAFETY: rt_sigreturn(2) finds the context at the stack pointer.
    unsafe {
        asm!("mov rsp, {}", "mov eax, 15", "syscall", "ud2", in(reg) context, options(noreturn))
    }
}
