//! The way from a rewritten system call of the program's to this library and back, in assembly.
//!
//! A trampoline (`sojourn_abi::punned`) jumps here with the call's number in `rax`, the address to
//! continue at in `rcx`, and all other registers as the program had them. The program is linked
//! with the same C library as this one, so the thread, its storage and its stack are those of any
//! other call. Read `rewriting` for what is rewritten, and `syscalls` for what becomes of a call.
//!
//! The kernel changes `rax`, `rcx` and `r11` only, and compilers rely on it: flags and vector
//! registers live across a call. So all of them are kept, in a frame below the red zone (System V
//! ABI, AMD64 supplement, 3.2.2). Of AVX-512 only what AVX has is kept.
//!
//! A call that the kernel is to serve is made by the program itself, at the `syscall` instruction
//! two bytes before the address to continue at, with nothing of this library on the stack: a child
//! of vfork(2) and a new thread on a stack of its own begin there.

use crate::errno;
use crate::library::ReasonT;
use crate::process::shut;
use crate::syscalls::served;
use core::arch::global_asm;
use sojourn_abi::vectors;

/// What becomes of a call.
#[repr(C)]
struct Answer {
    /// The kernel's result, if the call is served.
    value: isize,
    /// 0 if the program is to make the call.
    is_served: usize,
}

/// Returns true if a call prepares a thread whose storage is not this library's.
fn is_foreign(number: i64, first: usize) -> bool {
    /// `ARCH_SET_FS` (arch_prctl(2)).
    const SET_FS: usize = 0x1002;
    number == libc::SYS_arch_prctl && first == SET_FS
}

/// Answers a call. The program's `errno` stays: a system call knows nothing of it.
unsafe extern "C-unwind" fn answer(number: i64, arguments: &[usize; 6]) -> Answer {
    let kept = errno::value();
    if is_foreign(number, arguments[0]) {
        shut(ReasonT::Fork);
    }
    // SAFETY: the program's own call.
    let value = unsafe { served(number, arguments) };
    errno::set_raw(kept);
    Answer { value: value.unwrap_or(0), is_served: value.is_some().into() }
}

/// Defines an entry, with the instructions that save and load vector registers.
macro_rules! entry {
    ($name:literal, $save:expr, $load:expr) => {
        global_asm!(
            ".pushsection .text.sojourn_own_calls, \"ax\", @progbits",
            ".p2align 6",
            concat!(".type ", $name, ", @function"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!($name, ":"),
            "lea rsp, [rsp - 128]",
            "push rbp",
            "mov rbp, rsp",
            "push rax",
            // `pushfq` and `popfq` would take four times as long.
            "lahf",
            "seto al",
            "push rax",
            "push rcx",
            "push r9",
            "push r8",
            "push r10",
            "push rdx",
            "push rsi",
            "push rdi",
            "and rsp, -32",
            "sub rsp, 544",
            $save,
            "mov rdi, [rbp - 8]",
            "lea rsi, [rbp - 72]",
            "call {answer}",
            $load,
            "lea rsp, [rbp - 72]",
            "mov r11, rdx",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop r10",
            "pop r8",
            "pop r9",
            "pop rcx",
            "test r11, r11",
            "jz 2f",
            "mov [rsp + 8], rax",
            "jmp 3f",
            "2: sub rcx, 2",
            "3: pop rax",
            // Sets the overflow flag if `seto` has stored 1.
            "add al, 127",
            "sahf",
            "pop rax",
            "pop rbp",
            "lea rsp, [rsp + 128]",
            "jmp rcx",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            answer = sym answer,
        );
    };
}

entry!("sojourn_own_call_sse", vectors!(save "movups" "xmm"), vectors!(load "movups" "xmm"));
entry!("sojourn_own_call_avx", vectors!(save), vectors!(load));

unsafe extern "C" {
    fn sojourn_own_call_sse();
    fn sojourn_own_call_avx();
}

/// Returns the address of the entry for this processor.
pub(crate) fn entry() -> usize {
    match std::arch::is_x86_feature_detected!("avx") {
        true => sojourn_own_call_avx as *const () as usize,
        false => sojourn_own_call_sse as *const () as usize,
    }
}
