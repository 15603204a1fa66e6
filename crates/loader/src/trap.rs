//! The trap for system calls that could not be rewritten: the kernel sends `SIGSYS` for each
//! ("syscall user dispatch", Documentation/admin-guide/syscall-user-dispatch.rst), and the loader
//! then serves the call like any other.
//!
//! The kernel traps one range of the guest's text that contains these calls. That needs
//! `PR_SYS_DISPATCH_INCLUSIVE_ON` (Linux 6.18, and perhaps some versions before). On other kernels
//! such a program is not loaded.

use crate::guest::{TrapRange, guest};
use crate::raw;
use core::ffi::{c_int, c_void};
use libc::{REG_RCX, REG_RIP, ucontext_t};
use sojourn_abi::patch::Trampoline;

/// `PR_SET_SYSCALL_USER_DISPATCH`.
const DISPATCH: usize = 59;
/// `PR_SYS_DISPATCH_INCLUSIVE_ON`.
const INCLUSIVE: usize = 2;

fn set(mode: usize, range: TrapRange) -> isize {
    // SAFETY: only calls from that range are trapped.
    unsafe { raw::call(libc::SYS_prctl, [DISPATCH, mode, range.at, range.len, 0, 0]) }
}

/// Returns true if this kernel can trap one range.
pub(crate) fn is_possible() -> bool {
    let is_possible = set(INCLUSIVE, TrapRange { at: 4096, len: 64 }) == 0;
    set(0, TrapRange::default());
    is_possible
}

/// Traps the guest's calls that are not rewritten, in this thread.
pub(crate) fn arm() {
    if let Some(range) = guest().trapped {
        set(INCLUSIVE, range);
    }
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: unsafe extern "C" fn(c_int, *mut c_void, *mut ucontext_t),
    flags: usize,
    restorer: unsafe extern "C" fn(),
    mask: u64,
}

unsafe extern "C" {
    fn sojourn_restorer();
}

/// Installs the handler of the trap, if there are calls to trap.
pub(crate) fn install() {
    if guest().trapped.is_none() {
        return;
    }
    const RESTORER: usize = 0x0400_0000;
    let flags = libc::SA_SIGINFO as usize
        | libc::SA_NODEFER as usize
        | libc::SA_ONSTACK as usize
        | RESTORER;
    let action = Action { handler: on_trap, flags, restorer: sojourn_restorer, mask: 0 };
    let arguments = [libc::SIGSYS as usize, (&raw const action) as usize, 0, 8, 0, 0];
    // SAFETY: the handler lives as long as the process.
    unsafe { raw::call(libc::SYS_rt_sigaction, arguments) };
}

/// Makes the thread continue as if a trampoline had jumped to `enter`. This handler runs with the
/// guest's FS base, so it must not use thread-local storage.
unsafe extern "C" fn on_trap(_: c_int, _: *mut c_void, context: *mut ucontext_t) {
    // SAFETY: the kernel's context of this signal.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    registers[REG_RCX as usize] = registers[REG_RIP as usize];
    registers[REG_RIP as usize] = guest().entry as i64;
}

/// Returns true if a call was trapped: the `syscall` before `back` would be trapped again.
pub(crate) fn is_trapped(back: usize) -> bool {
    guest().left.binary_search(&(back - 2)).is_ok()
}

/// Returns the address at which a call whose thread goes on at `back` begins again.
pub(crate) fn again(back: usize) -> usize {
    match is_trapped(back) {
        true => back - 2,
        false => Trampoline::again(back as u64) as usize,
    }
}
