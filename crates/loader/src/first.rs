//! The loader's first instruction, and its work before any C library is in the process.
//!
//! To start a dynamic program costs several hundred microseconds, most of it in the dynamic loader
//! and in the C library. A guest that only opens a few files and ends needs neither. So the kernel
//! starts the loader without an interpreter, and the guest begins without a host (`host`).
//!
//! Code that may run before the host is there calls no function of the C library, and so nothing of
//! `std` that does: no I/O, no environment, no locks that wait. A panic ends the process. Read
//! `main` first.

use crate::exec::PRELOAD;
use crate::plain::{self, Given, starts_with};
use crate::refusal::Refusal;
use crate::{begin, early, host, raw};
use core::arch::{asm, global_asm};
use core::ffi::c_char;
use std::sync::OnceLock;

global_asm!(
    ".pushsection .text.sojourn_first, \"ax\", @progbits",
    ".globl sojourn_first",
    ".hidden _DYNAMIC, __ehdr_start",
    "sojourn_first:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {first}",
    "ud2",
    ".popsection",
    first = sym first,
);

/// The reason why the program is not loaded.
// FORK: set before the guest runs.
static REFUSED: OnceLock<Refusal> = OnceLock::new();

/// Returns the reason why the program is not loaded, if that is decided.
pub(crate) fn refused() -> Option<Refusal> {
    REFUSED.get().copied()
}

unsafe extern "C" fn first(stack: *mut u64) -> ! {
    relocate();
    host::protect(libc::PROT_READ);
    // SAFETY: the kernel's layout of a new process's stack: the number of arguments, the arguments
    // with a null pointer, the environment.
    let given = unsafe {
        let count = *stack as usize;
        let words = stack.add(1).cast::<*const c_char>();
        plain::given(count, words, words.add(count + 1))
    };
    if let Some(given) = given.filter(can_wait) {
        host::keep(&given);
        early::start(&given.variables);
        let refusal = begin::without_host(&given);
        let _ = REFUSED.set(refusal);
    }
    // SAFETY: the kernel's stack pointer.
    unsafe { host::start_first(stack) }
}

/// Returns true if the host can be started later: the preload library is there, and no other is to
/// be preloaded. Otherwise the host is started now, so that what is missing is said before the
/// guest begins, and other libraries begin when they would.
fn can_wait(given: &Given) -> bool {
    const LIBRARY: &[u8] = b"/libsojourn_preload.so";
    let Some(list) = given.variables.iter().find(|one| starts_with(**one, PRELOAD)) else {
        return false;
    };
    // SAFETY: a string of the environment, which begins with the name.
    let list = unsafe { core::ffi::CStr::from_ptr(list.add(PRELOAD.len())) }.to_bytes();
    let is_one = list.starts_with(b"/") && !list.iter().any(|byte| b": ".contains(byte));
    if !is_one || !list.ends_with(LIBRARY) {
        return false;
    }
    let arguments = [list.as_ptr() as usize, libc::R_OK as usize, 0, 0, 0, 0];
    // SAFETY: a string of the environment, which ends with a zero.
    unsafe { raw::call(libc::SYS_access, arguments) == 0 }
}

/// Writes the addresses within this program that depend on its place, as the dynamic loader does
/// again later. Uses nothing that needs relocation. Relocations that a linker has packed
/// (`DT_RELR`) would be done twice; there are none.
fn relocate() {
    const TABLE: usize = 7;
    const TABLE_LEN: usize = 8;
    const RELATIVE: usize = 8;
    let base = host::base();
    let (mut table, mut len) = (0, 0);
    let mut entry: *const [usize; 2];
    // SAFETY: computes the address of this program's own dynamic section.
    unsafe { asm!("lea {}, [rip + _DYNAMIC]", out(reg) entry, options(nomem, nostack)) };
    // SAFETY: the dynamic section ends with a tag of 0; `DT_RELA` has triples of words: the place,
    // the type, the address.
    unsafe {
        while (*entry)[0] != 0 {
            let [tag, value] = entry.read();
            match tag {
                TABLE => table = base + value,
                TABLE_LEN => len = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        let mut at = table as *const [usize; 3];
        while (at as usize) < table + len {
            let [place, kind, address] = at.read();
            if kind == RELATIVE {
                ((base + place) as *mut usize).write_volatile(base + address);
            }
            at = at.add(1);
        }
    }
}
