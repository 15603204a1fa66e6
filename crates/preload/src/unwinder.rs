//! Symbols that the unwinder and Rust's run-time library need, and that usually come from the
//! compiler's start files or from the C library: the tables of frames, the address of thread-local
//! variables, a handle for this object.
//!
//! The start files are left out (`build.rs`), because they refer to symbols that no object defines,
//! which the loader would look up in every program at its start. The C library has a function for
//! the tables of frames only since 2.35. Read `inside` for the other functions.

use crate::objects::{self, Segment};
#[cfg(not(test))]
use core::arch::global_asm;
#[cfg(target_arch = "x86_64")]
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

/// `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    start: *const c_void,
    end: *const c_void,
    object: *const c_void,
    tables: *const c_void,
    reserved: [u64; 7],
}

unsafe extern "C" {
    /// This library's first byte, the ELF header; the linker defines the symbol.
    static __ehdr_start: u8;
}

/// The segment types `PT_LOAD` and `PT_GNU_EH_FRAME`, and the segment flag `PF_X`.
const LOAD: u32 = 1;
const TABLES: u32 = 0x6474_e550;
const CODE: u32 = 1;

/// Implements `_dl_find_object`: finds the object whose code contains `at`. Only this library's own
/// frames are found: a panic of this library is caught before it reaches frames of other objects.
unsafe extern "C" fn find_object(at: *const c_void, found: *mut Found) -> c_int {
    let base = (&raw const __ehdr_start) as usize;
    // SAFETY: this library's own headers.
    let segments = unsafe { objects::segments_of_file(base) };
    let is_here = |one: &&Segment| one.range(base).contains(&(at as usize));
    let is_code = |one: &&Segment| one.kind == LOAD && one.flags & CODE != 0;
    let code = segments.iter().filter(is_code).find(is_here);
    let tables = segments.iter().find(|one| one.kind == TABLES);
    let (Some(code), Some(tables)) = (code, tables) else { return -1 };
    let as_pointer = |address: usize| address as *const c_void;
    let this = Found {
        flags: 0,
        start: as_pointer(code.range(base).start),
        end: as_pointer(code.range(base).end),
        object: core::ptr::null(),
        tables: as_pointer(tables.range(base).start),
        reserved: [0; 7],
    };
    // SAFETY: the unwinder passes room for the answer.
    unsafe { found.write(this) };
    0
}

crate::inside::hidden!(_dl_find_object = find_object);

// An address in this object, by which the C library tells to which object a destructor belongs. A
// test program is linked with the start files, which define the symbol.
#[cfg(not(test))]
global_asm!(
    ".pushsection .rodata",
    ".globl __dso_handle",
    ".hidden __dso_handle",
    "__dso_handle: .quad 0",
    ".popsection",
);

/// Implements `__tls_get_addr`: returns the address of a thread-local variable, given its offset in
/// this library's block.
///
/// In every thread the loader has placed the block at the start, as `tls` demands by its
/// initial-exec access. So the address needs no allocation and no lock.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn thread_variable() {
    naked_asm!(
        "mov rax, qword ptr fs:[0]",
        "add rax, qword ptr [rip + sojourn_thread@GOTTPOFF]",
        "add rax, qword ptr [rdi + 8]",
        "sub rax, offset sojourn_thread@DTPOFF",
        "ret",
    )
}

// On AArch64 compilers use TLS descriptors instead, which the loader resolves at the start.
#[cfg(target_arch = "x86_64")]
crate::inside::hidden!(__tls_get_addr = thread_variable);
