//! Functions that do something first and are then the next function, whatever its arguments.
//!
//! Variable arguments cannot be passed on from Rust, and some functions (`clone`, `syscall`) may
//! not have a frame of ours below them. So these save every register that can carry an argument,
//! call a hook, put the registers back and jump.

use core::ffi::CStr;
use core::sync::atomic::AtomicUsize;

/// Bytes for a name and its zero.
const NAME: usize = 32;

/// One such function. No address is in it, which the loader would have to correct in every program
/// at its start.
#[repr(C)]
pub(crate) struct Interposer {
    /// The next function of that name; 0: not looked up yet. First, for the trampolines.
    slot: AtomicUsize,
    /// The hook's own: what it has to know of this function.
    pub(crate) detail: usize,
    name: [u8; NAME],
}

impl Interposer {
    /// `name` is constant text, so one that is too long would not compile.
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
        CStr::from_bytes_until_nul(&self.name).unwrap_or_default()
    }

    /// Where the next function is.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        crate::next::address(&self.slot, self.name())
    }

    /// Where the C library's own function is.
    pub(crate) fn of_c_library(&self) -> usize {
        crate::next::of_c_library(&self.slot, self.name())
    }
}

/// With an [`Interposer`] in `r11`, and its hook's address pushed: calls the hook with the entry
/// and the six integer arguments, and jumps to where the hook says with every argument register,
/// and the count of vector registers in `al`, as they were.
#[unsafe(naked)]
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

/// Functions that always ask their hook first.
macro_rules! asks_first {
    ($hook:path; $($name:ident = $detail:expr),+ $(,)?) => {$(
        const _: () = {
            static ENTRY: $crate::trampoline::Interposer =
                $crate::trampoline::Interposer::new(stringify!($name), $detail);
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "lea r11, [rip + {hook}]",
                    "push r11",
                    "lea r11, [rip + {entry}]",
                    "jmp {ask}",
                    hook = sym $hook,
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
            static ENTRY: $crate::trampoline::Interposer =
                $crate::trampoline::Interposer::new(stringify!($name), $detail);
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
                    "2: lea r11, [rip + {hook}]",
                    "push r11",
                    "lea r11, [rip + {entry}]",
                    "jmp {ask}",
                    armed = sym $armed,
                    hook = sym $hook,
                    entry = sym ENTRY,
                    ask = sym $crate::trampoline::ask_first,
                )
            }
        };
    )+};
}
pub(crate) use asks_while;
