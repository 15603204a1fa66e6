//! Sleeping in the kernel unless a signal handler has run, without a gap between the check and the
//! sleep.
//!
//! A handler that interrupts the few instructions between the check and the system call notices
//! that, and makes the thread continue behind them (`leave_gap`).

use crate::linker::address_of;
use crate::tls::Thread;
use crate::{call_mask, raw};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use libc::ucontext_t;
use sojourn_abi::door::RESTART;

/// The instructions of `sojourn_pause`.
#[cfg(target_arch = "x86_64")]
macro_rules! body {
    () => {
        "mov rcx, rdi
         mov rax, rsi
         mov r11, rdx
         mov rdi, [r11]
         mov rsi, [r11 + 8]
         mov rdx, [r11 + 16]
         mov r10, [r11 + 24]
         mov r8, [r11 + 32]
         mov r9, [r11 + 40]
         sojourn_pause_look:
         cmp dword ptr [rcx], 0
         jne sojourn_pause_out
         sojourn_pause_call:
         syscall
         sojourn_pause_made:
         ret
         sojourn_pause_out:
         mov rax, {interrupted}
         ret"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! body {
    () => {
        "mov x9, x0
         mov x8, x1
         mov x10, x2
         ldp x0, x1, [x10]
         ldp x2, x3, [x10, #16]
         ldp x4, x5, [x10, #32]
         sojourn_pause_look:
         ldr w11, [x9]
         cbnz w11, sojourn_pause_out
         sojourn_pause_call:
         svc #0
         sojourn_pause_made:
         ret
         sojourn_pause_out:
         mov x0, #{interrupted}
         ret"
    };
}

global_asm!(
    ".pushsection .text.sojourn_pause, \"ax\", @progbits",
    ".globl sojourn_pause, sojourn_pause_look, sojourn_pause_call, sojourn_pause_out",
    ".hidden sojourn_pause, sojourn_pause_look, sojourn_pause_call, sojourn_pause_out",
    ".globl sojourn_pause_made, sojourn_pause_end",
    ".hidden sojourn_pause_made, sojourn_pause_end",
    ".type sojourn_pause, @function",
    "sojourn_pause:",
    ".cfi_startproc",
    body!(),
    "sojourn_pause_end:",
    ".cfi_endproc",
    ".size sojourn_pause, . - sojourn_pause",
    ".popsection",
    interrupted = const -(RESTART as i64),
);

unsafe extern "C" {
    fn sojourn_pause(ran: *const AtomicU32, number: i64, arguments: *const [usize; 6]) -> isize;
    fn sojourn_pause_look();
    fn sojourn_pause_call();
    fn sojourn_pause_made();
    fn sojourn_pause_out();
    fn sojourn_pause_end();
}

/// Makes a system call; returns `EINTR` instead if a handler has run since the wait began. Outside
/// a wait this is just the call.
///
/// # Safety
/// As for the system call itself.
pub(crate) unsafe fn call(thread: &Thread, number: i64, arguments: [usize; 6]) -> isize {
    if thread.waiting.load(Ordering::Relaxed) == 0 {
        // SAFETY: the caller answers for the call.
        return unsafe { raw::call(number, arguments) };
    }
    // SAFETY: the caller answers for the call, which a check precedes.
    ended(unsafe { sojourn_pause(&raw const thread.ran, number, &raw const arguments) })
}

/// Returns the result of a call that may not have been made, as the library has it.
fn ended(result: isize) -> isize {
    if result == -(RESTART as isize) { -(libc::EINTR as isize) } else { result }
}

/// Makes a system call, unless a handler waits until the guest's call has ended: then the result is
/// `RESTART`, and so it is if one comes before the call or if the kernel would repeat the call.
///
/// # Safety
/// As for the system call itself.
pub(crate) unsafe fn unless_put_off(thread: &Thread, number: i64, arguments: [usize; 6]) -> isize {
    type PauseFn = unsafe extern "C" fn(*const AtomicU32, i64, *const [usize; 6]) -> isize;
    // Not by the global offset table: a guest that has no session yet comes here before the
    // relocation.
    let pause = address_of!(sym sojourn_pause);
    // SAFETY: the function has this type. The caller answers for the call, which a check precedes.
    unsafe {
        let pause = core::mem::transmute::<usize, PauseFn>(pause);
        let Some(mask) = call_mask::of(number, &arguments) else {
            return pause(&raw const thread.handler_waits, number, &raw const arguments);
        };
        thread.call_mask.store(mask, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        thread.has_call_mask.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let result = pause(&raw const thread.handler_waits, number, &raw const arguments);
        compiler_fence(Ordering::SeqCst);
        thread.has_call_mask.store(0, Ordering::Relaxed);
        result
    }
}

/// Returns the mask of the call that `signal` has ended, whose handler has interrupted the thread,
/// if the call has one of its own ([`unless_put_off`]): the kernel's mask until the handler runs.
/// A call may have transferred something, as io_uring_enter(2) has; then the signal is one that the
/// program's own mask blocks.
pub(crate) fn ended_with_mask(thread: &Thread, signal: u64, context: &ucontext_t) -> Option<u64> {
    let interrupted = -i64::from(libc::EINTR);
    #[cfg(target_arch = "x86_64")]
    let [at, result] =
        [libc::REG_RIP, libc::REG_RAX].map(|one| context.uc_mcontext.gregs[one as usize]);
    #[cfg(target_arch = "aarch64")]
    let [at, result] = [context.uc_mcontext.pc, context.uc_mcontext.regs[0]].map(u64::cast_signed);
    // SAFETY: the kernel's set is the first word of the C library's.
    let blocked = unsafe { *(&raw const context.uc_sigmask).cast::<u64>() };
    let has_ended = result == interrupted || result >= 0 && blocked & signal != 0;
    let has_made = at as usize == sojourn_pause_made as *const () as usize;
    let has_mask = has_ended && has_made && thread.has_call_mask.load(Ordering::Relaxed) != 0;
    has_mask.then(|| thread.call_mask.load(Ordering::Relaxed))
}

/// Makes a system call with a signal mask of its own.
///
/// # Safety
/// As for the system call itself.
pub(crate) unsafe fn call_masked(thread: &Thread, number: i64, arguments: [usize; 6]) -> isize {
    if crate::taken::is_taken() {
        // SAFETY: the caller answers for the call.
        return ended(unsafe { unless_put_off(thread, number, arguments) });
    }
    // SAFETY: the caller answers for the call.
    unsafe { raw::call(number, arguments) }
}

/// Returns true if the handler has interrupted a thread that sleeps by [`call`], or is about to.
pub(crate) fn is_asleep(context: &ucontext_t) -> bool {
    #[cfg(target_arch = "x86_64")]
    let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let at = context.uc_mcontext.pc as usize;
    (sojourn_pause as *const () as usize..sojourn_pause_end as *const () as usize).contains(&at)
}

/// Ends the system call of a thread in which a handler has run and was counted, if the handler came
/// between check and call, or if the kernel is to repeat the call (`SA_RESTART` makes the thread
/// continue at the instruction of the call).
pub(crate) fn leave_gap(context: &mut ucontext_t) {
    #[cfg(target_arch = "x86_64")]
    let at = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let at = &mut context.uc_mcontext.pc;
    let look = sojourn_pause_look as *const () as _;
    let call = sojourn_pause_call as *const () as _;
    if (look..=call).contains(at) {
        *at = sojourn_pause_out as *const () as _;
    }
}
