//! Functions that call a hook first and then become the next function of their name, with any
//! arguments.
//!
//! Rust cannot pass variable arguments on, and some functions (`clone`, `syscall`) must not have a
//! frame of this library below them on the stack. So these functions save every register that can
//! carry an argument, call the hook, restore the registers and jump. Not here: the hooks
//! (`process`, `exec`, `syscalls` and others).

use core::ffi::CStr;
use core::sync::atomic::AtomicUsize;

/// Bytes for a name and its final zero.
const NAME: usize = 32;

/// The data of one such function. No field is an address: the dynamic loader would have to relocate
/// it at the start of every program.
#[repr(C)]
pub(crate) struct Interposer {
    /// The next function's address; 0 until the first look-up. The first field, so that the
    /// trampolines find it at the entry's own address.
    slot: AtomicUsize,
    /// A number for the hook, which tells the functions that share the hook apart.
    pub(crate) detail: usize,
    name: [u8; NAME],
}

impl Interposer {
    /// Makes the entry of the function `name`. `name` is constant text, so a name without room does
    /// not compile.
    pub(crate) const fn new(name: &'static str, detail: usize) -> Self {
        let mut own = [0; NAME];
        let mut at = 0;
        while at < name.len() {
            own[at] = name.as_bytes()[at];
            at += 1;
        }
        assert!(own[NAME - 1] == 0, "no room for its zero");
        Self { slot: AtomicUsize::new(0), detail, name: own }
    }

    fn name(&self) -> &CStr {
        // SAFETY: `new` has checked that a zero ends the name. A function of `CStr` that searches
        // for it would be another crate's (`relocation`).
        unsafe { CStr::from_ptr(self.name.as_ptr().cast()) }
    }

    /// Returns the address of the next function of this name.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        crate::next::address(&self.slot, self.name())
    }

    /// Returns the address of the C library's own function of this name.
    pub(crate) fn of_c_library(&self) -> usize {
        crate::next::of_c_library(&self.slot, self.name())
    }
}

/// Calls a hook, then jumps to the function that the hook chooses.
///
/// Expects the address of an [`Interposer`] in `r11`, and the hook's address on top of the stack.
/// The hook gets the entry and the six integer arguments, and returns the address to jump to. Every
/// argument register, and the number of vector registers in `al` (System V ABI, AMD64 supplement:
/// variable arguments), is as it was at the call.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "C" fn ask_first() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa_offset 16",
        "sub rsp, 192",
        ".cfi_adjust_cfa_offset 192",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], rax",
        "mov [rsp + 56], r10",
        "movups [rsp + 64], xmm0",
        "movups [rsp + 80], xmm1",
        "movups [rsp + 96], xmm2",
        "movups [rsp + 112], xmm3",
        "movups [rsp + 128], xmm4",
        "movups [rsp + 144], xmm5",
        "movups [rsp + 160], xmm6",
        "movups [rsp + 176], xmm7",
        "mov rdi, r11",
        "mov rsi, rsp",
        "call [rsp + 192]",
        "mov r11, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov rax, [rsp + 48]",
        "mov r10, [rsp + 56]",
        "movups xmm0, [rsp + 64]",
        "movups xmm1, [rsp + 80]",
        "movups xmm2, [rsp + 96]",
        "movups xmm3, [rsp + 112]",
        "movups xmm4, [rsp + 128]",
        "movups xmm5, [rsp + 144]",
        "movups xmm6, [rsp + 160]",
        "movups xmm7, [rsp + 176]",
        "add rsp, 200",
        ".cfi_adjust_cfa_offset -200",
        "jmp r11",
        ".cfi_endproc",
    )
}

/// Calls a hook, then jumps to the function that the hook chooses.
///
/// Expects the address of an [`Interposer`] in `x9`, and the hook's address in `x10`. The hook gets
/// the entry and the first six integer arguments, and returns the address to jump to. Every
/// argument register, and `x8` for the place of a result (AAPCS64), is as it was at the call.
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe extern "C" fn ask_first() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-224]!",
        ".cfi_def_cfa_offset 224",
        ".cfi_offset x29, -224",
        ".cfi_offset x30, -216",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov x0, x9",
        "add x1, sp, #16",
        "blr x10",
        // A jump by `x16` may enter a function that is guarded against other jumps (BTI).
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldr x8, [sp, #80]",
        "ldp q0, q1, [sp, #96]",
        "ldp q2, q3, [sp, #128]",
        "ldp q4, q5, [sp, #160]",
        "ldp q6, q7, [sp, #192]",
        "ldp x29, x30, [sp], #224",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
    )
}

/// Defines functions that always call their hook first.
macro_rules! asks_first {
    ($hook:path; $($name:ident = $detail:expr),+ $(,)?) => {$(
        const _: () = {
            static ENTRY: $crate::trampoline::Interposer =
                $crate::trampoline::Interposer::new(stringify!($name), $detail);
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "lea r11, [rip + {hook}]",
                    "push r11",
                    "lea r11, [rip + {entry}]",
                    "jmp {ask}",
                    hook = sym $hook,
                    entry = sym ENTRY,
                    ask = sym $crate::trampoline::ask_first,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "adrp x9, {entry}",
                    "add x9, x9, :lo12:{entry}",
                    "adrp x10, {hook}",
                    "add x10, x10, :lo12:{hook}",
                    "b {ask}",
                    hook = sym $hook,
                    entry = sym ENTRY,
                    ask = sym $crate::trampoline::ask_first,
                )
            }
        };
    )+};
}
pub(crate) use asks_first;

/// The instruction that jumps to a function of this library.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b"
    };
}
pub(crate) use jump;

/// Defines other names of functions of this library. They jump there: a call from Rust to an
/// exported function would go by the global offset table, which is not relocated yet when a program
/// makes its first call (`relocation`).
macro_rules! alias {
    ($($name:ident = $function:path),+ $(,)?) => {$(
        const _: () = {
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    concat!($crate::trampoline::jump!(), " {to}"),
                    to = sym $function,
                )
            }
        };
    )+};
}
pub(crate) use alias;
