//! The way from the guest's system call to the host and back, in assembly.
//!
//! A trampoline jumps here with the call's number in `rax`, the address to continue at in `rcx`,
//! and all other registers as the guest had them. Nothing is pushed on the guest's stack. That
//! stack may be a goroutine's, with no more room than the kernel would use, and the guest may have
//! data below the stack pointer (the red zone).
//!
//! Most calls concern neither the loader nor the library. Their kind is in a table (`kinds`), and
//! the guest makes them itself: nothing is saved, and no register but the two that the kernel
//! clobbers has changed.
//!
//! Most data calls are on descriptors that the kernel serves for good. The library's table says so
//! (`sojourn_abi::door::Entries`), and the way in looks there itself: neither a vector register nor
//! the FS base changes for such a call, which the guest then makes as well.
//!
//! # Theory of operation
//! A handler may interrupt at any instruction. The FS base tells where the thread is: with the
//! host's FS base, it is in a call. With the guest's FS base and the stack pointer on the host's
//! stack, it is between the two, in a *window*. In both cases the signal is put off until the
//! frame is complete, and `block.pending` says so (`signals`).
//!
//! From the look at that word (`_check`) until the guest's own stack pointer is set, nothing but
//! registers is changed, all of which are in the frame. A thread that is interrupted there looks
//! again. So does one whose call the guest is about to make itself (`_pass`); if a signal was put
//! off, its call goes to the host after all. Then the guest's registers are loaded, and the signals
//! that were put off are unblocked, on the guest's stack (`_late`): the kernel makes their frames
//! there, and nothing is left on the host's stack while the guest's handlers run. The registers
//! that unblocking needs are put right by whoever interrupts (`signals::windows`).
//!
//! *On the alternate stack*, in a handler's call, the kernel must not see the host's stack pointer
//! while a signal can arrive: it would start the next handler at the alternate stack's top, over
//! the first. So all signals are blocked before the stack pointer changes (`_alternate`), until the
//! alternate stack is disabled (`signals::leave_alternate`); and again on the way out, until the
//! guest's stack pointer is back (`_late`).

mod ways;

use crate::block::{AlternateStack, Block, FRAME, Frame};
use crate::{kinds, raw};
use core::arch::{asm, global_asm};
use core::mem::offset_of;
use sojourn_abi::door::Entries;
use sojourn_abi::vectors;
pub(crate) use ways::{EntryPoint, Stage, entries, stage};

/// Expands to the table of a way in: how far behind its start its parts begin, in the order of the
/// fields of `ways::Parts`.
macro_rules! table {
    ($name:literal) => {
        table!($name; "_alternate" "_blocking" "_stub" "_saving" "_kept" "_pass" "_passed" "_check"
            "_left" "_late" "_end")
    };
    ($name:literal; $($part:literal)+) => {
        concat!(
            ".pushsection .rodata.sojourn_ways, \"a\", @progbits\n",
            ".p2align 2\n",
            ".globl ", $name, "_table\n",
            ".hidden ", $name, "_table\n",
            $name, "_table:\n",
            $(".long ", $name, $part, " - ", $name, "\n",)+
            ".popsection\n",
        )
    };
}

/// Defines a way in, with the instructions that save and load vector registers.
macro_rules! enter {
    ($name:literal, $save:expr, $load:expr) => {
        global_asm!(
            ".pushsection .text.sojourn_enter, \"ax\", @progbits",
            ".p2align 6",
            // The stack pointer may be on the alternate stack, or below it.
            concat!($name, "_alternate:"),
            "3: mov rcx, gs:[{minus_start}]",
            "lea rcx, [rcx + rsp]",
            "bswap rcx",
            "movzx ecx, cl",
            "jrcxz 1f",
            "jmp 2f",
            // It is: all signals are blocked before it changes.
            "1: mov gs:[{kept} + 0], rax",
            "mov gs:[{kept} + 8], rdi",
            "mov gs:[{kept} + 16], rsi",
            "mov gs:[{kept} + 24], rdx",
            "mov gs:[{kept} + 32], r10",
            "mov gs:[{kept} + 40], r11",
            concat!($name, "_blocking:"),
            "mov edi, 0",
            "mov rdx, gs:[0]",
            "lea rsi, [rdx + {all_signals}]",
            "lea rdx, [rdx + {mask_before}]",
            "mov r10d, 8",
            "mov eax, 14",
            "syscall",
            "mov qword ptr gs:[{is_blocked}], 1",
            "mov qword ptr gs:[{pending}], 1",
            "mov rax, gs:[{kept} + 0]",
            "mov rdi, gs:[{kept} + 8]",
            "mov rsi, gs:[{kept} + 16]",
            "mov rdx, gs:[{kept} + 24]",
            "mov r10, gs:[{kept} + 32]",
            "mov r11, gs:[{kept} + 40]",
            "jmp 2f",
            // The number is less than 256. If the kernel alone serves the call, the guest makes it
            // itself, by its trampoline's own `syscall`. No flag changes.
            concat!($name, "_stub:"),
            "7: movzx ecx, al",
            "movzx ecx, byte ptr gs:[rcx + {kinds}]",
            "jrcxz 9f",
            "jmp 6f",
            "9: lea rcx, [r11 - 2]",
            "jmp rcx",
            "1: jmp 3b",
            ".p2align 5",
            concat!(".globl ", $name, ", ", $name, "_check"),
            concat!(".hidden ", $name, ", ", $name, "_check"),
            concat!($name, ":"),
            "mov r11, rcx",
            "movzx ecx, ah",
            "jrcxz 7b",
            // Below the end of the alternate stack the highest byte of the distance is 0xff, above
            // it 0. No flag changes.
            "6: mov rcx, gs:[{minus_end}]",
            "lea rcx, [rcx + rsp]",
            "bswap rcx",
            "not rcx",
            "movzx ecx, cl",
            "jrcxz 1b",
            "2: mov rcx, r11",
            "mov r11, rsp",
            "mov rsp, gs:[8]",
            concat!($name, "_saving:"),
            "mov [rsp + {rsp}], r11",
            "mov [rsp + {back}], rcx",
            "mov [rsp + {rax}], rax",
            concat!($name, "_kept:"),
            // The kernel keeps the flags over a call. A thread that begins again has lost them,
            // which only a compiler's choice of instructions could show. `pushfq` would take ten
            // cycles more.
            "mov rcx, rax",
            "lahf",
            "seto al",
            "mov [rsp + {flags}], rax",
            // rt_sigreturn(2) is not a call for the host: the kernel finds the frame of a handler
            // by the stack pointer.
            "cmp ecx, 15",
            "jne 8f",
            "mov qword ptr gs:[{is_blocked}], 0",
            "mov eax, ecx",
            "mov rsp, r11",
            "syscall",
            "ud2",
            // Is it a data call on a descriptor that the kernel serves for good?
            "8: cmp rcx, {numbers}",
            "jae 4f",
            "cmp byte ptr gs:[rcx + {kinds}], {data}",
            "jne 4f",
            "cmp edi, {few}",
            "jae 4f",
            "mov rcx, gs:[{entries}]",
            "test rcx, rcx",
            "jz 4f",
            "imul eax, edi, {stride}",
            "cmp dword ptr [rcx + rax + {session}], 0",
            "jne 4f",
            "mov eax, [rcx + rax + {marks}]",
            "and eax, {decisive}",
            "cmp eax, {settled}",
            "jne 4f",
            "mov rcx, gs:[{guard}]",
            "cmp dword ptr [rcx], 0",
            "jne 4f",
            "cmp dword ptr gs:[{vforking}], 0",
            "jne 4f",
            concat!($name, "_pass:"),
            "cmp qword ptr gs:[{pending}], 0",
            "jne 4f",
            "mov rax, [rsp + {flags}]",
            "add al, 127",
            "sahf",
            "mov rax, [rsp + {rax}]",
            "mov rcx, [rsp + {back}]",
            "lea rcx, [rcx - 2]",
            "mov rsp, [rsp + {rsp}]",
            concat!($name, "_passed:"),
            "jmp rcx",
            "4: mov [rsp + {rdi}], rdi",
            "mov [rsp + {rsi}], rsi",
            "mov [rsp + {rdx}], rdx",
            "mov [rsp + {r10}], r10",
            "mov [rsp + {r8}], r8",
            "mov [rsp + {r9}], r9",
            "mov [rsp + {rbx}], rbx",
            "mov [rsp + {rbp}], rbp",
            "mov [rsp + {r12}], r12",
            "mov [rsp + {r13}], r13",
            "mov [rsp + {r14}], r14",
            "mov [rsp + {r15}], r15",
            $save,
            "rdfsbase rbx",
            "mov [rsp + {fs}], rbx",
            "mov gs:[24], rbx",
            "mov gs:[32], rsp",
            "mov rbx, gs:[16]",
            "wrfsbase rbx",
            "mov rdi, rsp",
            "cld",
            "call sojourn_dispatch",
            "mov [rsp + {rax}], rax",
            concat!($name, "_check:"),
            "cmp qword ptr gs:[{pending}], 0",
            "jne 5f",
            $load,
            "mov rbx, [rsp + {fs}]",
            "wrfsbase rbx",
            // Sets the overflow flag if `seto` has stored 1, and the others by `sahf`: `popf` would
            // take twenty cycles.
            "mov rax, [rsp + {flags}]",
            "add al, 127",
            "sahf",
            "mov r15, [rsp + {r15}]",
            "mov r14, [rsp + {r14}]",
            "mov r13, [rsp + {r13}]",
            "mov r12, [rsp + {r12}]",
            "mov rbp, [rsp + {rbp}]",
            "mov rbx, [rsp + {rbx}]",
            "mov r9, [rsp + {r9}]",
            "mov r8, [rsp + {r8}]",
            "mov r10, [rsp + {r10}]",
            "mov rdx, [rsp + {rdx}]",
            "mov rsi, [rsp + {rsi}]",
            "mov rdi, [rsp + {rdi}]",
            "mov rax, [rsp + {rax}]",
            "mov rcx, [rsp + {back}]",
            "mov rsp, [rsp + {rsp}]",
            concat!($name, "_left:"),
            "jmp rcx",
            // Signals were put off.
            "5: mov rdi, rsp",
            "call sojourn_due",
            // Another signal may have been put off meanwhile.
            "cmp qword ptr gs:[{pending}], 0",
            "jne 5b",
            $load,
            "mov rbx, [rsp + {fs}]",
            "wrfsbase rbx",
            "mov rax, [rsp + {flags}]",
            "add al, 127",
            "sahf",
            "mov r15, [rsp + {r15}]",
            "mov r14, [rsp + {r14}]",
            "mov r13, [rsp + {r13}]",
            "mov r12, [rsp + {r12}]",
            "mov rbp, [rsp + {rbp}]",
            "mov rbx, [rsp + {rbx}]",
            "mov r9, [rsp + {r9}]",
            "mov r8, [rsp + {r8}]",
            // rt_sigprocmask(SIG_UNBLOCK, due, 0, 8); no flag changes.
            "mov edi, 1",
            "mov rsi, gs:[0]",
            "lea rsi, [rsi + {due}]",
            "mov edx, 0",
            "mov r10d, 8",
            "mov eax, 14",
            "mov rsp, [rsp + {rsp}]",
            concat!($name, "_late:"),
            "syscall",
            "mov qword ptr gs:[{due}], 0",
            "mov rcx, gs:[32]",
            "mov r10, [rcx + {r10}]",
            "mov rdx, [rcx + {rdx}]",
            "mov rsi, [rcx + {rsi}]",
            "mov rdi, [rcx + {rdi}]",
            "mov rax, [rcx + {rax}]",
            "mov rcx, [rcx + {back}]",
            "jmp rcx",
            concat!($name, "_end:"),
            ".popsection",
            table!($name),
            minus_start = const offset_of!(Block, alternate) + offset_of!(AlternateStack, minus_start),
            minus_end = const offset_of!(Block, alternate) + offset_of!(AlternateStack, minus_end),
            kept = const offset_of!(Block, kept),
            all_signals = const offset_of!(Block, all_signals),
            mask_before = const offset_of!(Block, mask_before),
            is_blocked = const offset_of!(Block, is_blocked),
            kinds = const offset_of!(Block, kinds),
            numbers = const kinds::LEN,
            data = const kinds::DATA,
            few = const Entries::COUNT,
            stride = const Entries::STRIDE,
            session = const Entries::SESSION,
            marks = const Entries::MARKS,
            decisive = const Entries::DECISIVE,
            settled = const Entries::SETTLED,
            entries = const offset_of!(Block, entries) + offset_of!(Entries, first),
            guard = const offset_of!(Block, entries) + offset_of!(Entries, guard),
            vforking = const offset_of!(Block, vforking),
            pending = const offset_of!(Block, pending),
            due = const offset_of!(Block, due),
            fs = const offset_of!(Frame, fs),
            r15 = const offset_of!(Frame, r15),
            r14 = const offset_of!(Frame, r14),
            r13 = const offset_of!(Frame, r13),
            r12 = const offset_of!(Frame, r12),
            rbp = const offset_of!(Frame, rbp),
            rbx = const offset_of!(Frame, rbx),
            r9 = const offset_of!(Frame, r9),
            r8 = const offset_of!(Frame, r8),
            r10 = const offset_of!(Frame, r10),
            rdx = const offset_of!(Frame, rdx),
            rsi = const offset_of!(Frame, rsi),
            rdi = const offset_of!(Frame, rdi),
            rax = const offset_of!(Frame, rax),
            back = const offset_of!(Frame, back),
            rsp = const offset_of!(Frame, rsp),
            flags = const offset_of!(Frame, flags),
        );
    };
}

// For Go, whose functions keep nothing in vector registers over a call, except a zero in the last
// one (Go's internal ABI).
enter!("sojourn_enter_go", "movups [rsp + 480], xmm15", "movups xmm15, [rsp + 480]");
// For C compilers, which may keep values in any vector register over a system call.
enter!("sojourn_enter_sse", vectors!(save "movups" "xmm"), vectors!(load "movups" "xmm"));
enter!("sojourn_enter_avx", vectors!(save), vectors!(load));

global_asm!(
    ".pushsection .text.sojourn_begin, \"ax\", @progbits",
    ".globl sojourn_begin, sojourn_leave",
    ".hidden sojourn_begin, sojourn_leave",
    // begin(frame, mask): continues as the guest with the registers of the frame; returns at
    // `leave`.
    "sojourn_begin:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov gs:[40], rsp",
    "mov rsp, rdi",
    "mov rbx, [rsp + {fs}]",
    "mov gs:[24], rbx",
    "mov gs:[32], rsp",
    // rt_sigprocmask(SIG_SETMASK, mask, 0, 8): a handler that arrives from here on finds a frame.
    "mov edi, 2",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    // The FS base changes there, and not here: no handler may find the guest's outside a window.
    "jmp sojourn_enter_go_check",
    // leave(): returns to the caller of `begin`, with the host's FS base.
    "sojourn_leave:",
    "mov rsp, gs:[40]",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".popsection",
    fs = const offset_of!(Frame, fs),
);

unsafe extern "C" {
    fn sojourn_begin(frame: *mut Frame, mask: *const u64);
    fn sojourn_leave() -> !;
}

/// Returns the way in for a guest.
pub(crate) fn entry_for(is_go: bool) -> usize {
    let [go, sse, avx] = entries();
    match is_go {
        true => go.start,
        false if has_avx() => avx.start,
        false => sse.start,
    }
}

/// Returns true if the processor has AVX and the kernel keeps its registers. Asks the kernel (from
/// Linux 5.16 on): an answer of the processor's takes microseconds in a virtual machine, and `std`
/// would want seven of them.
fn has_avx() -> bool {
    /// `ARCH_GET_XCOMP_SUPP`, and AVX's bit in the answer.
    const FEATURES: usize = 0x1021;
    const AVX: u64 = 4;
    let mut features = 0u64;
    let arguments = [FEATURES, (&raw mut features) as usize, 0, 0, 0, 0];
    // SAFETY: `features` has room for the answer.
    match unsafe { raw::call(libc::SYS_arch_prctl, arguments) } {
        0 => features & AVX != 0,
        _ => processor_has_avx(),
    }
}

fn processor_has_avx() -> bool {
    const HAS_XGETBV: u32 = 1 << 27;
    const HAS_AVX: u32 = 1 << 28;
    /// The registers of SSE and AVX.
    const KEPT: u32 = 6;
    let features = core::arch::x86_64::__cpuid(1).ecx;
    if features & (HAS_XGETBV | HAS_AVX) != HAS_XGETBV | HAS_AVX {
        return false;
    }
    let kept: u32;
    // SAFETY: the processor has the instruction, and the kernel has enabled it.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") kept, out("edx") _, options(nomem, nostack)) };
    kept & KEPT == KEPT
}

/// Continues as the guest with the registers of `frame` and this signal mask, until its thread
/// ends.
///
/// # Safety
/// The thread must have a block, all signals must be blocked, and `frame` must be at the block's
/// next place: everything below its end is lost.
pub(crate) unsafe fn begin(frame: *mut Frame, mask: u64) {
    const { assert!(FRAME == 704 && offset_of!(Frame, is_wide) == 512) };
    // SAFETY: the caller promises block, mask and frame.
    unsafe { sojourn_begin(frame, &raw const mask) }
}

/// Ends the guest's part of the thread: [`begin`] returns.
///
/// # Safety
/// Must be called in the host, within a call of the guest's. The frames up to `begin` must have
/// nothing to drop.
pub(crate) unsafe fn leave() -> ! {
    // SAFETY: the caller promises that this is a call of the guest's.
    unsafe { sojourn_leave() }
}
