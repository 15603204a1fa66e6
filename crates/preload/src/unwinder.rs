//! What the unwinder and the language's run-time library are usually given by start files of the
//! compiler and by the C library: where the tables of frames are, where a thread's variables are,
//! which object this is.
//!
//! The start files are left out (`build.rs`), because they ask for symbols that nobody has, in
//! every program at its start. The C library has a function for the tables from 2.35 on alone. Read
//! `inside` for the other functions.

use crate::objects::{self, Segment};
#[cfg(not(test))]
use core::arch::global_asm;
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
    /// The linker's: this library's first byte, the ELF header.
    static __ehdr_start: u8;
}

/// `PT_LOAD`, `PT_GNU_EH_FRAME`; in a segment's flags, that it can be executed.
const LOAD: u32 = 1;
const TABLES: u32 = 0x6474_e550;
const CODE: u32 = 1;

/// `_dl_find_object`: the object whose code is at `at`. Frames of others are nobody's whom a panic
/// here concerns: it is caught before.
unsafe extern "C" fn find_object(at: *const c_void, found: *mut Found) -> c_int {
    let base = (&raw const __ehdr_start) as usize;
    // SAFETY: this library's headers.
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
    // SAFETY: the unwinder's own.
    unsafe { found.write(this) };
    0
}

crate::inside::hidden!(_dl_find_object = find_object);

// An address of this object, by which the C library tells whose a destructor is. A test program is
// linked with the start files, which define it.
#[cfg(not(test))]
global_asm!(
    ".pushsection .rodata",
    ".globl __dso_handle",
    ".hidden __dso_handle",
    "__dso_handle: .quad 0",
    ".popsection",
);

/// `__tls_get_addr`: the address of a thread's variable, given its place in this library's block.
/// The block is where the loader put it at the start, in every thread, because `tls` reaches its
/// variable so: no allocation, no lock.
#[unsafe(naked)]
unsafe extern "C" fn thread_variable() {
    naked_asm!(
        "mov rax, qword ptr fs:[0]",
        "add rax, qword ptr [rip + sojourn_thread@GOTTPOFF]",
        "add rax, qword ptr [rdi + 8]",
        "sub rax, offset sojourn_thread@DTPOFF",
        "ret",
    )
}

crate::inside::hidden!(__tls_get_addr = thread_variable);
