//! The host: the GNU C library with the preload library, which come into the process when the guest
//! makes the first call that needs them.
//!
//! The loader's file names no interpreter, so the kernel starts the loader itself (`first`). Here
//! the loader starts the dynamic loader, ld.so(8), as the kernel would: with program headers that
//! name an interpreter, on a stack with arguments, environment and auxiliary vector. It ends in
//! `main`. A call of the guest's that waited for the host then goes on.
//!
//! Not here: which calls need the host (`early`).

use crate::block::{Block, fs_base};
use crate::guest;
use crate::load::{self, Code, File, Part};
use crate::plain::{Given, NOT_RUN, vector};
use crate::refusal::Refusal;
use crate::{heap, raw, starts};
use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use sojourn_abi::door::{self, Door, NoteFn};
use sojourn_abi::elf::PROGRAM_HEADER;
use sojourn_abi::layout::Room;
use sojourn_abi::stack::{AuxEntry, EXECFN, Facts, auxiliary, value, words};
use std::sync::OnceLock;

/// The dynamic loader of the GNU C library on x86-64.
const DYNAMIC_LOADER: &CStr = c"/lib64/ld-linux-x86-64.so.2";
/// Bytes of the stack on which the dynamic loader and `main` run.
const STACK: usize = 256 << 10;

/// The host is not in the process.
const ABSENT: u8 = 0;
/// The host is being started for a call of the guest's, which waits.
const AWAITED: u8 = 1;
const PRESENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(ABSENT);
/// The stack pointer of the call that waits.
static WAITING: AtomicUsize = AtomicUsize::new(0);

global_asm!(
    ".pushsection .text.sojourn_host, \"ax\", @progbits",
    ".globl sojourn_host_start, sojourn_host_arrived",
    ".hidden sojourn_host_start, sojourn_host_arrived",
    // start(entry, stack, place for the stack pointer): returns at `arrived`.
    "sojourn_host_start:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdx], rsp",
    "mov rsp, rsi",
    "xor ebp, ebp",
    // No function for atexit(3) from the kernel (System V ABI, AMD64 supplement).
    "xor edx, edx",
    "jmp rdi",
    // arrived(stack pointer)
    "sojourn_host_arrived:",
    "mov rsp, rdi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn sojourn_host_start(entry: usize, stack: usize, place: *mut usize);
    fn sojourn_host_arrived(stack: usize) -> !;
    /// The C library's start file, which calls `main`.
    fn _start();
}

/// The loader's own arguments, environment and auxiliary vector. The strings are copies: programs
/// write over theirs (setproctitle(3bsd)).
struct Kept {
    words: Vec<u64>,
    variables: Vec<u64>,
    auxiliary: Vec<AuxEntry>,
    path: u64,
}

// FORK: set before the guest runs.
static KEPT: OnceLock<Kept> = OnceLock::new();

/// Keeps what the host will be started with.
pub(crate) fn keep(given: &Given) {
    let copy = |text: *const c_char| {
        // SAFETY: a string of the process's stack.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes_with_nul();
        Box::leak(bytes.to_vec().into_boxed_slice()).as_ptr() as u64
    };
    let all = |list: &[*const c_char]| list.iter().map(|one| copy(*one)).collect();
    let path = value(&given.auxiliary, EXECFN);
    let kept = Kept {
        words: all(&given.words),
        variables: all(&given.variables),
        auxiliary: given.auxiliary.clone(),
        path: if path == 0 { 0 } else { copy(path as *const c_char) },
    };
    let _ = KEPT.set(kept);
}

/// Returns true if the host is in the process.
#[inline(always)]
pub(crate) fn is_present() -> bool {
    STATE.load(Ordering::Relaxed) == PRESENT
}

/// Returns the address of this program's own header. Needs no relocation.
#[inline(always)]
pub(crate) fn base() -> usize {
    let base;
    // SAFETY: computes an address.
    unsafe {
        asm!(
            "lea {}, [rip + __ehdr_start]",
            out(reg) base,
            options(nomem, nostack, preserves_flags)
        );
    }
    base
}

/// The dynamic loader in memory: its base and its first instruction.
struct Mapped {
    base: u64,
    entry: usize,
}

fn map() -> Result<Mapped, Refusal> {
    // The dynamic loader relocates this program as well, and closes the pages again.
    protect(libc::PROT_READ | libc::PROT_WRITE);
    let file = File::open(DYNAMIC_LOADER)?;
    let room = Room { trampolines: 0, gap: 0, breaks: 0 };
    let plan = load::place(&file, Part::Interpreter, room, Code::Closed)?;
    Ok(Mapped { base: plan.base, entry: plan.entry as usize })
}

/// Returns the loader's own program headers.
fn own_headers() -> &'static [u8] {
    let base = base();
    // SAFETY: the header of this program's own file, which is in memory; the fields `e_phoff` and
    // `e_phnum` (elf(5)).
    unsafe {
        let offset = ((base + 32) as *const usize).read();
        let count = usize::from(((base + 56) as *const u16).read());
        core::slice::from_raw_parts((base + offset) as *const u8, count * PROGRAM_HEADER)
    }
}

/// Sets the protection of the pages that are read-only after relocation (`PT_GNU_RELRO`).
pub(crate) fn protect(protection: i32) {
    const RELRO: u32 = 0x6474_e552;
    const PAGE: usize = 4096;
    let is_it = |header: &&[u8]| header.starts_with(&RELRO.to_le_bytes());
    let Some(header) = own_headers().chunks_exact(PROGRAM_HEADER).find(is_it) else { return };
    let word =
        |at: usize| header[at..at + 8].iter().rev().fold(0, |all, one| all << 8 | *one as usize);
    let (start, len) = (base() + word(16), word(40));
    let (first, end) = (start & !(PAGE - 1), (start + len) & !(PAGE - 1));
    // SAFETY: this program's own pages, which are written only while it is relocated.
    unsafe { raw::call(libc::SYS_mprotect, [first, end - first, protection as usize, 0, 0, 0]) };
}

/// Returns the loader's own program headers, with one that names the interpreter.
fn headers() -> &'static [u8] {
    const INTERPRETER: u32 = 3;
    const HEADERS: u32 = 6;
    let base = base();
    let mut all = own_headers().to_vec();
    let path = DYNAMIC_LOADER.to_bytes_with_nul();
    let mut header = [0u8; PROGRAM_HEADER];
    header[..4].copy_from_slice(&INTERPRETER.to_le_bytes());
    let address = (path.as_ptr() as usize).wrapping_sub(base);
    header[16..24].copy_from_slice(&address.to_le_bytes());
    for at in [32, 40] {
        header[at..at + 8].copy_from_slice(&path.len().to_le_bytes());
    }
    all.extend(header);
    let all = Box::leak(all.into_boxed_slice());
    let address = (all.as_ptr() as usize).wrapping_sub(base);
    for header in all.chunks_exact_mut(PROGRAM_HEADER) {
        if header.starts_with(&HEADERS.to_le_bytes()) {
            // The dynamic loader takes the difference for the program's base.
            header[16..24].copy_from_slice(&address.to_le_bytes());
        }
    }
    all
}

fn facts(base: u64, path: u64) -> Facts {
    let headers = headers();
    Facts {
        headers_at: headers.as_ptr() as u64,
        headers: (headers.len() / PROGRAM_HEADER) as u64,
        interpreter: base,
        entry: _start as *const () as u64,
        path,
    }
}

/// Starts the host at the process's start, on the process's own stack: `main` follows.
///
/// # Safety
/// `stack` must be the stack pointer that the kernel has set.
pub(crate) unsafe fn start_first(stack: *mut u64) -> ! {
    let Ok(mapped) = map() else { die() };
    STATE.store(PRESENT, Ordering::Relaxed);
    // SAFETY: the layout of the System V ABI, AMD64 supplement ("Process Initialization").
    unsafe {
        let mut at = stack.add(*stack as usize + 2);
        while *at != 0 {
            at = at.add(1);
        }
        let first = at.add(1).cast::<AuxEntry>();
        let vector = vector(first);
        let changed = auxiliary(&vector, facts(mapped.base, value(&vector, EXECFN)));
        core::ptr::copy_nonoverlapping(changed.as_ptr(), first, changed.len());
        sojourn_host_start(mapped.entry, stack as usize, WAITING.as_ptr());
    }
    die()
}

/// Starts the host for a call of the guest's, in its thread, the only one.
#[cold]
#[inline(never)]
pub(crate) fn start(block: &mut Block) {
    let Some(kept) = KEPT.get() else { die() };
    let (Ok(mapped), Some(stack)) = (map(), stack()) else { die() };
    let vector = auxiliary(&kept.auxiliary, facts(mapped.base, kept.path));
    let words = words(&kept.words, &kept.variables, &vector);
    let at = (stack - size_of_val(words.as_slice())) & !15;
    STATE.store(AWAITED, Ordering::Relaxed);
    // SAFETY: the stack has room, and the dynamic loader finds it as the kernel would have left it.
    // `main` returns here.
    unsafe {
        core::ptr::copy_nonoverlapping(words.as_ptr(), at as *mut u64, words.len());
        drop(words);
        sojourn_host_start(mapped.entry, at, WAITING.as_ptr());
    }
    STATE.store(PRESENT, Ordering::Relaxed);
    block.host_fs = fs_base();
}

/// Notes in `main` that the C library is there. Returns to the call that waits for the host, if
/// there is one.
pub(crate) fn arrive() {
    heap::use_host();
    if STATE.load(Ordering::Relaxed) != AWAITED {
        return;
    }
    if let Some(door) = find_door() {
        guest::set_door(door);
    }
    // SAFETY: `start` waits in the same thread, on another stack, whose frames are untouched. The
    // frames of the C library and of `main` have nothing to drop.
    unsafe { sojourn_host_arrived(WAITING.load(Ordering::Relaxed)) }
}

/// Returns the preload library's functions, if the library is in this process.
pub(crate) fn find_door() -> Option<&'static Door> {
    let mut found: Option<&'static Door> = None;
    let at = (&raw mut found) as usize;
    // SAFETY: the number is the preload library's; without the library the kernel refuses it.
    let result =
        unsafe { libc::syscall(door::NUMBER, door::VERSION, at, starts::is_hot as NoteFn) };
    if result == 0 { found } else { None }
}

/// Maps a stack. Returns the address behind it.
fn stack() -> Option<usize> {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let arguments = [0, STACK, access, flags as usize, usize::MAX, 0];
    // SAFETY: the kernel chooses an address that is not in use.
    let at = usize::try_from(unsafe { raw::call(libc::SYS_mmap, arguments) }).ok()?;
    Some(at + STACK)
}

/// Ends the process: there is no C library to go on with.
fn die() -> ! {
    const MESSAGE: &[u8] =
        b"sojourn-abi: the dynamic loader /lib64/ld-linux-x86-64.so.2 cannot be loaded\n";
    let arguments = [2, MESSAGE.as_ptr() as usize, MESSAGE.len(), 0, 0, 0];
    loop {
        // SAFETY: writes constant bytes; ends the process.
        unsafe {
            raw::call(libc::SYS_write, arguments);
            raw::call(libc::SYS_exit_group, [NOT_RUN as usize, 0, 0, 0, 0, 0]);
        }
    }
}
