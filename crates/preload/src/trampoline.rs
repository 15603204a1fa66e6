//! Functions that do something first and are then the next function, whatever its arguments.
//!
//! Variable arguments cannot be passed on from Rust, and some functions (`clone`, `syscall`) may not have a frame
//! of ours below them. So these save every register that can carry an argument, call a hook, put the
//! registers back and jump.

use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicUsize;

/// One such function.
#[repr(C)]
pub(crate) struct Entry {
    /// The next function of that name; 0: not looked up yet. First, for the trampolines.
    pub(crate) slot: AtomicUsize,
    pub(crate) hook: unsafe extern "C" fn(&Entry, &[usize; 6]) -> usize,
    name: *const c_char,
    /// The hook's own: what it has to know of this function.
    pub(crate) detail: usize,
}

// SAFETY: the name is constant text; everything else is atomic or constant.
unsafe impl Sync for Entry {}

impl Entry {
    /// `name` ends in a zero: constant text, so another would not compile.
    pub(crate) const fn new(
        name: &'static str,
        hook: unsafe extern "C" fn(&Entry, &[usize; 6]) -> usize,
        detail: usize,
    ) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("the name of a function does not end in its only zero")
        };
        Self { slot: AtomicUsize::new(0), hook, name: name.as_ptr(), detail }
    }

    /// Where the next function is.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        // SAFETY: made from a `CStr` that lives as long as the program.
        crate::next::address(&self.slot, unsafe { CStr::from_ptr(self.name) })
    }
}

/// With an [`Entry`] in `r11`: calls its hook with the entry and the six integer arguments, and jumps to where the hook
/// says with every argument register, and the count of vector registers in `al`, as they were.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn ask_first() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 200",
        ".cfi_adjust_cfa_offset 200",
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
        "call [r11 + {hook}]",
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
        hook = const core::mem::offset_of!(Entry, hook),
    )
}

/// Functions that always ask their hook first.
macro_rules! asks_first {
    ($hook:path; $($name:ident = $detail:expr),+ $(,)?) => {$(
        const _: () = {
            static ENTRY: $crate::trampoline::Entry =
                $crate::trampoline::Entry::new(concat!(stringify!($name), "\0"), $hook, $detail);
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "lea r11, [rip + {entry}]",
                    "jmp {ask}",
                    entry = sym ENTRY,
                    ask = sym $crate::trampoline::ask_first,
                )
            }
        };
    )+};
}
pub(crate) use asks_first;

/// Functions that ask their hook while `$armed` is not 0, and once to find the next function.
macro_rules! asks_while {
    ($armed:path, $hook:path; $($name:ident = $detail:expr),+ $(,)?) => {$(
        const _: () = {
            static ENTRY: $crate::trampoline::Entry =
                $crate::trampoline::Entry::new(concat!(stringify!($name), "\0"), $hook, $detail);
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "cmp dword ptr [rip + {armed}], 0",
                    "jne 2f",
                    "mov r11, [rip + {entry}]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2: lea r11, [rip + {entry}]",
                    "jmp {ask}",
                    armed = sym $armed,
                    entry = sym ENTRY,
                    ask = sym $crate::trampoline::ask_first,
                )
            }
        };
    )+};
}
pub(crate) use asks_while;
