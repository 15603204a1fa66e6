//! The guest's signal handlers.
//!
//! # Theory of operation
//! The kernel is given one of `ENTRIES` entry points in place of each handler. An entry point
//! changes to the host's FS base, with all signals blocked, and asks the preload library. The
//! library has the handler run now, or later if the thread is in the middle of its work
//! (`Door::signal`). The handler itself runs as the kernel would run it: with the guest's FS base,
//! on the guest's own stack or its alternate one, with the signal mask that the guest asked for.
//!
//! While the handler runs, its calls use the host's stack below the part that the interrupted call
//! uses (`Block::next`). A handler that jumps out leaves that mark low. `reclaim` restores the mark
//! when the guest's stack pointer shows that the interrupted call is dead.
//!
//! Not here: the table of handlers (`actions`), handlers that interrupt the way in or out
//! (`windows`), the registers that handlers see (`shown`).

mod actions;
mod shown;
mod windows;

use crate::block::{AlternateStack, Block, FRAME, Frame, here};
use crate::enter;
use crate::guest::{self, guest};
use crate::raw;
use actions::Handler;
pub(crate) use actions::{act, has_handler};
use core::arch::{asm, global_asm};
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use libc::{REG_RSP, ucontext_t};
use shown::Shown;
use sojourn_abi::door::Signal;

/// Bytes below the stack pointer that a program may use (System V ABI, AMD64 supplement, "red
/// zone").
const RED_ZONE: usize = 128;
/// Bytes between the used part of the host's stack and the next frame.
const MARGIN: usize = 512;

/// An alternate stack with less room than this below the kernel's frame is left to the handler.
const SMALL: usize = 16 << 10;

global_asm!(
    ".pushsection .text.sojourn_handlers, \"ax\", @progbits",
    ".p2align 4",
    ".globl sojourn_handlers, sojourn_restorer, sojourn_run_guest",
    ".hidden sojourn_handlers, sojourn_restorer, sojourn_run_guest",
    "sojourn_handlers:",
    ".set sojourn_handler, 0",
    ".rept {count}",
    ".p2align 4",
    ".byte 0xb9",
    ".long sojourn_handler",
    "jmp 5f",
    ".set sojourn_handler, sojourn_handler + 1",
    ".endr",
    "5:",
    "push rbp",
    "mov rbp, rsp",
    "rdfsbase r8",
    "push r8",
    "push r8",
    "mov r9, rsp",
    // An alternate stack may have room for the kernel's frame and the handler only: the loader uses
    // the host's stack then, below what is in use there.
    "mov rax, rsp",
    "sub rax, gs:[{alternate}]",
    "cmp rax, {small}",
    "jae 4f",
    "mov rsp, gs:[8]",
    "cmp r8, gs:[16]",
    "jne 4f",
    "mov rax, [rdx + {interrupted}]",
    "sub rax, {margin}",
    "cmp rax, gs:[{lowest}]",
    "jb 4f",
    "cmp rax, rsp",
    "jae 4f",
    "mov rsp, rax",
    "4: and rsp, -16",
    "mov rax, gs:[16]",
    "wrfsbase rax",
    "call {on_signal}",
    "mov rax, [rbp - 8]",
    "wrfsbase rax",
    "leave",
    "ret",
    ".p2align 4",
    // Unwinders look for the function that contains the byte before a return address, which is this
    // nop.
    "nop",
    "sojourn_restorer:",
    "mov rax, 15",
    "syscall",
    "ud2",
    // run_guest(signal, info, context, handler, stack or 0, mask): runs with the guest's FS base.
    ".p2align 4",
    "sojourn_run_guest:",
    "push rbp",
    "mov rbp, rsp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push r15",
    "mov r12, rdi",
    "mov r13, rsi",
    "mov r14, rdx",
    "mov r15, rcx",
    "test r8, r8",
    "jz 2f",
    "mov rsp, r8",
    "2: and rsp, -16",
    // Sets the signal mask: from here on the guest may be interrupted again.
    "push r9",
    "push r9",
    "mov edi, 2",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "mov rdi, r12",
    "mov rsi, r13",
    "mov rdx, r14",
    "xor eax, eax",
    "call r15",
    "mov qword ptr [rsp], -1",
    "mov edi, 2",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "lea rsp, [rbp - 48]",
    "pop r15",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".popsection",
    count = const actions::ENTRIES,
    alternate = const offset_of!(Block, alternate),
    lowest = const offset_of!(Block, stack),
    small = const SMALL,
    margin = const MARGIN,
    interrupted = const offset_of!(ucontext_t, uc_mcontext) + REG_RSP as usize * 8,
    on_signal = sym on_signal,
);

unsafe extern "C" {
    fn sojourn_run_guest(
        signal: c_int,
        info: *mut c_void,
        context: *mut c_void,
        handler: usize,
        stack: usize,
        mask: u64,
    );
}

/// A handler that is about to run.
struct Coming {
    signal: c_int,
    info: *mut c_void,
    context: *mut ucontext_t,
    handler: Handler,
    block: *mut Block,
    /// The guest's FS base and stack pointer at the interruption.
    guest_fs: usize,
    guest_rsp: usize,
    /// The address below which the host's stack is free.
    free_below: usize,
    /// The handler's stack pointer, or 0 if the stack in use is the one that the kernel has chosen.
    /// If the kernel has put its frame on the host's stack, the handler must run on the guest's.
    stack: usize,
    /// The interrupted call's registers; null outside calls.
    call: *const Frame,
}

/// Receives every signal for which the guest has a handler, with all signals blocked. `index` is
/// the number of the entry point, `fs` the FS base of the interrupted code, `kernels` the stack
/// pointer below the kernel's frame.
unsafe extern "C" fn on_signal(
    signal: c_int,
    info: *mut c_void,
    context: *mut ucontext_t,
    index: u32,
    fs: usize,
    kernels: usize,
) {
    let Some(handler) = actions::handler(index as usize) else { return };
    let block = here();
    // SAFETY: the kernel's context of this signal.
    let interrupted = unsafe { &mut *context };
    let is_inside = fs == block.host_fs;
    if !is_inside {
        windows::leave(interrupted, block);
    }
    let rsp = interrupted.uc_mcontext.gregs[REG_RSP as usize] as usize;
    let stack = stack_pointer();
    let used = [(block.is_on_host(stack), stack), (is_inside && block.is_on_host(rsp), rsp)];
    let free_below = used
        .into_iter()
        .filter_map(|(is_used, at)| is_used.then_some((at - MARGIN - FRAME) & !63))
        .fold(block.next, usize::min);
    let (guest_fs, guest_rsp) = match is_inside {
        // SAFETY: during a call the block's frame is valid.
        true => (block.guest_fs, unsafe { (*block.frame).rsp }),
        false => (fs, rsp),
    };
    let mut coming = Coming {
        signal,
        info,
        context,
        handler,
        block,
        guest_fs,
        guest_rsp,
        free_below,
        stack: match (block.is_on_host(kernels), block.is_on_host(stack)) {
            (true, _) => guest_rsp - RED_ZONE,
            (false, true) => kernels,
            (false, false) => 0,
        },
        call: if is_inside { block.frame } else { core::ptr::null() },
    };
    if block.is_alone {
        // SAFETY: nothing of the host runs in this process.
        return unsafe { run((&raw mut coming).cast()) };
    }
    let asked = Signal {
        number: signal,
        restarts: handler.flags & libc::SA_RESTART as usize != 0,
        info,
        context: context.cast(),
        entry: actions::entry_point(index as usize),
        run,
        data: (&raw mut coming).cast(),
    };
    // SAFETY: this is the kernel's handler function.
    unsafe { (guest::door().signal)(&asked) };
}

/// Runs the guest's handler. `coming` points to a [`Coming`].
unsafe extern "C-unwind" fn run(coming: *mut c_void) {
    // SAFETY: `on_signal` passes a value that lives until this call returns.
    let coming = unsafe { &*coming.cast::<Coming>() };
    // SAFETY: this thread's block.
    let block = unsafe { &mut *coming.block };
    let kept = (block.next, block.guest_fs, block.frame, block.levels.count);
    if coming.free_below != block.next {
        block.levels.push(block.next, coming.guest_rsp);
        block.next = coming.free_below;
    }
    // SAFETY: the kernel's context; its signal set is the first word of the C library's larger set.
    let blocked = unsafe { *(&raw const (*coming.context).uc_sigmask).cast::<u64>() };
    let mask = blocked | coming.handler.blocks(coming.signal);
    let Coming { signal, info, context, handler, guest_fs, stack, .. } = *coming;
    // SAFETY: the kernel's context, which nobody else uses meanwhile.
    let shown = Shown::of(unsafe { &mut *context }, coming.call);
    // SAFETY: the guest installed this handler, which gets the kernel's arguments.
    unsafe {
        set_fs_base(guest_fs);
        sojourn_run_guest(signal, info, context.cast(), handler.address, stack, mask);
        if shown.is_changed(&*context) && !coming.call.is_null() {
            // The handler has the guest go on elsewhere, as if it had jumped out of the call.
            shown::go_on(context);
        }
        set_fs_base(block.host_fs);
        shown.undo(&mut *context);
    }
    (block.next, block.guest_fs, block.frame, block.levels.count) = kept;
}

#[inline(always)]
fn stack_pointer() -> usize {
    let here;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here
}

/// Sets the FS base.
///
/// # Safety
/// No code that needs the previous base may run before it is set again.
#[inline(always)]
unsafe fn set_fs_base(base: usize) {
    // SAFETY: the caller promises not to use the previous base.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// The most bytes by which a stack shrinks when a handler jumps out. A stack pointer further up is
/// on another stack.
const DEEPEST: usize = 8 << 20;

/// Frees the host's stack at a call, if a handler has jumped out of the call that it interrupted:
/// this call begins again further up. The interrupted call is dead if the guest's stack has shrunk
/// to the place where that call was made.
#[cold]
pub(crate) fn reclaim(block: &mut Block, frame: &Frame) {
    let rsp = frame.rsp;
    if block.is_on_alternate(rsp) || block.is_on_host(rsp) {
        return;
    }
    let is_dead = |interrupted: usize| rsp.wrapping_sub(interrupted) < DEEPEST;
    if let Some(next) = block.levels.give_up(is_dead) {
        block.next = next;
        let place = next as *mut Frame;
        // SAFETY: the place is free and on this stack; it may overlap the frame.
        unsafe {
            core::ptr::copy(frame, place, 1);
            block.frame = place;
            enter::again(place, guest().entry);
        }
    }
}

/// Serves sigaltstack(2) with the guest's stack pointer `rsp`, because the kernel sees the host's.
pub(crate) fn alternate(block: &mut Block, arguments: &[usize; 6], rsp: usize) -> isize {
    let [new, old, ..] = *arguments;
    if block.is_on_alternate(rsp) {
        if new != 0 {
            return -(libc::EPERM as isize);
        }
        if old != 0 {
            // SAFETY: the guest's own call, with which the kernel says if it can write there.
            let result = unsafe { raw::call(libc::SYS_sigaltstack, [0, old, 0, 0, 0, 0]) };
            if result != 0 {
                return result;
            }
            let stack = block.alternate.with_flags(libc::SS_ONSTACK);
            // SAFETY: the guest's memory, which the kernel has just written.
            unsafe { (old as *mut libc::stack_t).write_unaligned(stack) };
        }
        return 0;
    }
    // SAFETY: the guest's own call.
    let result = unsafe { raw::call(libc::SYS_sigaltstack, *arguments) };
    if result == 0 && new != 0 {
        // SAFETY: the kernel has just read the structure.
        let stack = unsafe { (new as *const libc::stack_t).read_unaligned() };
        let is_off = stack.ss_flags & libc::SS_DISABLE != 0;
        block.alternate = match is_off {
            true => AlternateStack::default(),
            false => AlternateStack { at: stack.ss_sp as usize, len: stack.ss_size },
        };
    }
    result
}

/// Makes a call for a handler on the alternate stack. The kernel sees the stack pointer on the
/// host's stack, and would take the alternate stack for free and use it again. So the alternate
/// stack is disabled meanwhile.
#[cold]
pub(crate) fn without_alternate(block: &Block, call: impl FnOnce() -> isize) -> isize {
    let set = |ss_flags| {
        let stack = block.alternate.with_flags(ss_flags);
        // SAFETY: sets the guest's alternate stack again, or none.
        unsafe { raw::call(libc::SYS_sigaltstack, [(&raw const stack) as usize, 0, 0, 0, 0, 0]) };
    };
    set(libc::SS_DISABLE);
    let result = call();
    set(0);
    result
}

/// Serves rt_sigprocmask(2). The signal that traps calls cannot be blocked.
pub(crate) fn mask(arguments: &[usize; 6]) -> isize {
    let [how, new, ..] = *arguments;
    let unblockable = actions::unblockable();
    if new == 0 || unblockable == 0 || how == libc::SIG_UNBLOCK as usize {
        // SAFETY: the guest's own call.
        return unsafe { raw::call(libc::SYS_rt_sigprocmask, *arguments) };
    }
    // SAFETY: the guest's memory, as for the kernel; copied once.
    let wanted = unsafe { (new as *const u64).read_unaligned() } & !unblockable;
    let mut arguments = *arguments;
    arguments[1] = (&raw const wanted) as usize;
    // SAFETY: the guest's own call with a local set.
    unsafe { raw::call(libc::SYS_rt_sigprocmask, arguments) }
}
