//! Children that share this process's memory: vfork(2), and what other libraries make of clone(2).
//!
//! What such a child does before it runs its own program goes unseen, so all sessions are home
//! before. Not here: `fork` (`process`), `exec` and posix_spawn(3) (`exec`). Read `guard` first: it
//! keeps such a child out.

use crate::errno;
use crate::guard::{self, tell, tell_if_initialized};
use crate::library::Inherited;
use core::ffi::c_int;

/// Replaces `vfork`.
///
/// The child returns from this function first, on the parent's stack, and overwrites what lies
/// there. So neither a frame nor a return address may be on the stack when the parent goes on. The
/// return address is kept in the register `rdi`, of which parent and child have one each.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rdi",
        "mov eax, {vfork}",
        "syscall",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rip, -8",
        "test rax, rax",
        "jz 2f",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rax",
        "call {after}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "2: ret",
        ".cfi_endproc",
        before = sym before_vfork,
        after = sym after_vfork,
        vfork = const libc::SYS_vfork,
    )
}

/// Replaces `vfork`.
///
/// The child returns from this function first, on the parent's stack, and overwrites what lies
/// there. So nothing may be on the stack when the parent goes on. The return address is in the
/// register `x30`, of which parent and child have one each.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "bl {before}",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        // There is no system call of this name.
        "mov x0, #{flags}",
        "mov x1, #0",
        "mov x8, #{clone}",
        "svc #0",
        "cbz x0, 2f",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "bl {after}",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "2: ret",
        ".cfi_endproc",
        before = sym before_vfork,
        after = sym after_vfork,
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        clone = const libc::SYS_clone,
    )
}

#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __vfork() -> c_int {
    core::arch::naked_asm!(concat!(crate::trampoline::jump!(), " {vfork}"), vfork = sym vfork)
}

extern "C" fn before_vfork() {
    tell_if_initialized(|library| library.before_child(Inherited::All));
    guard::vfork_begins();
}

/// Prepares for a child that shares this memory and may use descriptors unseen before it runs its
/// own program. posix_spawn(3) and Go do so between the start of the child and `exec`, also with
/// descriptors that `exec` closes.
pub(crate) extern "C" fn before_shared_child() {
    tell(|library| library.before_child(Inherited::All));
    guard::vfork_begins();
}

/// Notes in the parent that a child which shared this memory runs its own program or has ended.
pub(crate) extern "C" fn shared_child_ended() {
    guard::vfork_ends();
    tell_if_initialized(|library| library.child_made(Inherited::All));
}

/// The parent goes on: the child runs its own program or has ended.
extern "C" fn after_vfork(result: isize) -> c_int {
    shared_child_ended();
    errno::kernel(result) as c_int
}
