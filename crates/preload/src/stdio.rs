//! Streams of the C library (`FILE`): the functions that make and close streams, and a few
//! functions that use a descriptor inside the C library.
//!
//! Reads and writes of a stream arrive through its table of functions (`libio`). A descriptor stays
//! in the kernel if its stream is older than this library's entries in those tables: a thread may
//! still be in a function of the old table, uncounted. In that case descriptors 0 and 1, which
//! always have streams, stay as well. Descriptor 2 always stays: the C library writes to it without
//! its stream, for instance when it finds its heap damaged. Read `libio` first.

use crate::descriptors::{numbering_stream, opened};
use crate::exec::making;
use crate::first_calls::could_move;
use crate::guard::{can_open, is_initialized, is_open, tell, tell_if_initialized};
use crate::libio::{self, Hooked};
use crate::library::{Inherited, Library, Origin, ReasonT, numbers};
use crate::next::{c_library, next};
use crate::reopen::is_known_pipe;
use crate::shrinking;
use crate::trampoline::{Interposer, alias, asks_first};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use libc::FILE;

type FileFn = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;

const WORD: usize = 64;
const KNOWN: usize = 1 << 16;
/// Descriptors above 2 that have a stream with unseen calls, one bit for each.
static FILES: [AtomicU64; KNOWN / WORD] = [const { AtomicU64::new(0) }; KNOWN / WORD];
/// The number of such descriptors from `KNOWN` on.
static FILES_BEYOND: AtomicU32 = AtomicU32::new(0);
/// True once there has been such a descriptor.
#[unsafe(link_section = ".data.start")]
static HAS_FILES: AtomicBool = AtomicBool::new(false);

fn number_of(file: *mut FILE) -> c_int {
    if file.is_null() {
        return -1;
    }
    let kept = crate::errno::value();
    // SAFETY: the caller passes a `FILE`.
    let fd = unsafe { c_library!(c"fileno_unlocked" as FileFn)(file) };
    crate::errno::set_raw(kept);
    fd
}

/// Not 0 if this process belongs to a loader, whose guest has a C library of its own, or none.
#[unsafe(link_section = ".data.start")]
static IS_LOADER: AtomicU32 = AtomicU32::new(0);

/// Notes that the streams of this process's C library are not the program's.
pub(crate) fn belongs_to_loader() {
    IS_LOADER.store(1, Ordering::Relaxed);
}

/// Hooks the streams before the program's first instruction if descriptor 0 or 1 is of a kind that
/// could move: then every call of these streams is seen.
pub(crate) fn start() {
    if (0..2).any(could_move) {
        libio::hook();
    }
}

/// Returns true if a stream may make calls on `fd` that this library does not see.
///
/// The library asks when a descriptor is to move for the first time. The question hooks the
/// streams: from then on all new streams are seen.
pub(crate) fn uses(fd: c_int) -> bool {
    if IS_LOADER.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let hooked = libio::hook();
    match fd {
        // The program may have used these streams, or put other descriptors under them, before the
        // hook was set, unless it was set at the start.
        0 | 1 => hooked != Hooked::FromStart,
        2 => true,
        _ => has_file(fd),
    }
}

fn has_file(fd: c_int) -> bool {
    match usize::try_from(fd) {
        Ok(at) if at < KNOWN => FILES[at / WORD].load(Ordering::Relaxed) >> (at % WORD) & 1 != 0,
        _ => FILES_BEYOND.load(Ordering::Relaxed) != 0,
    }
}

/// Returns true if all streams that are made from now on are seen.
fn is_seen() -> bool {
    matches!(libio::hooked(), Hooked::FromStart | Hooked::Later)
}

/// Notes that `file` was made, or may have another descriptor than before. No thread has used the
/// stream yet.
fn made(file: *mut FILE, is_new_number: bool) -> *mut FILE {
    let fd = number_of(file);
    if fd < 0 || !can_open() {
        return file;
    }
    if is_new_number {
        opened(fd, Origin::Unknown);
    }
    // Most files that are opened by name are regular files, which never move. The exceptions are
    // fifos, and paths that lead to a pipe of the program's own (`reopen`).
    let may_move = is_known_pipe(fd) || !is_new_number;
    if may_move && could_move(fd) {
        libio::hook();
    }
    if !is_seen() {
        note(fd);
        if may_move {
            tell(|library| library.go_home(fd, ReasonT::Stdio, true));
        }
    }
    file
}

/// Notes that `fd` has a stream with unseen calls.
fn note(fd: c_int) {
    HAS_FILES.store(true, Ordering::Relaxed);
    match usize::try_from(fd) {
        Ok(at) if at < KNOWN => {
            FILES[at / WORD].fetch_or(1 << (at % WORD), Ordering::Relaxed);
        }
        _ => {
            FILES_BEYOND.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Prepares for the closing of `file`'s descriptor. With `by_table`, and if the stream is seen, its
/// own entry in the table tells the library, after the stream has written its buffer. Otherwise
/// this function tells the library now.
fn closing(file: *mut FILE, by_table: bool) {
    let is_of_interest = is_initialized() || HAS_FILES.load(Ordering::Relaxed);
    if file.is_null() || !is_of_interest || !can_open() {
        return;
    }
    let fd = number_of(file);
    if let Ok(at) = usize::try_from(fd) {
        if at < KNOWN {
            FILES[at / WORD].fetch_and(!(1 << (at % WORD)), Ordering::Relaxed);
        }
        if !(by_table && is_seen()) {
            tell_if_initialized(|library| library.closing(fd));
        }
    }
}

/// Prepares for `file` to get another file under its number, which the C library does without the
/// tables.
fn reopening(file: *mut FILE) {
    if is_seen() && !file.is_null() && can_open() {
        libio::flush(file);
    }
    closing(file, false);
}

type OpenFn = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;
type DescriptorFn = unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut FILE;
type ReopenFn = unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
type CloseFn = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's arguments, passed on unchanged.
    made(unsafe { next!(c"fdopen" as DescriptorFn)(fd, mode) }, false)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's arguments, passed on unchanged.
    unsafe { shrinking::stream_opened(mode) };
    // SAFETY: the program's arguments, passed on unchanged.
    made(numbering_stream(|| unsafe { next!(c"fopen" as OpenFn)(path, mode) }), true)
}

alias!(fopen64 = fopen);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's arguments, passed on unchanged.
    let open = || unsafe { next!(c"popen" as OpenFn)(command, mode) };
    let file = making(Inherited::OpenOverExec, open);
    if !file.is_null() && is_open() {
        libio::hook();
    }
    made(file, true)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's arguments, passed on unchanged.
    unsafe { shrinking::stream_opened(mode) };
    reopening(file);
    numbers::pass();
    // SAFETY: the program's arguments, passed on unchanged.
    let file = made(unsafe { next!(c"freopen" as ReopenFn)(path, mode, file) }, true);
    tell_if_initialized(Library::ended);
    file
}

alias!(freopen64 = freopen);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    closing(file, true);
    // SAFETY: the program's arguments, passed on unchanged.
    let result = unsafe { next!(c"fclose" as CloseFn)(file) };
    tell_if_initialized(Library::ended);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pclose(file: *mut FILE) -> c_int {
    closing(file, true);
    // SAFETY: the program's arguments, passed on unchanged.
    let result = unsafe { next!(c"pclose" as CloseFn)(file) };
    tell_if_initialized(Library::ended);
    result
}

/// Serves functions that read or write a descriptor inside the C library, unseen: the session goes
/// home and stays in the kernel.
unsafe extern "C" fn before_inner(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    let fd = match entry.detail {
        NUMBER => Some(arguments[0] as c_int),
        THIRD_NUMBER => Some(arguments[2] as c_int),
        // SAFETY: plain data. The first member of a `struct aiocb` is the descriptor (aio(7)).
        _ => unsafe { crate::buffers::structure(arguments[0] as *const c_int) },
    };
    if let Some(fd) = fd {
        tell(|library| library.go_home(fd, ReasonT::Stdio, true));
    }
    entry.next()
}

/// Values of `Interposer::detail` for the functions below: which argument names the descriptor.
const NUMBER: usize = 0;
const CONTROL_BLOCK: usize = 1;
const THIRD_NUMBER: usize = 2;

asks_first!(before_inner;
    dprintf = NUMBER, vdprintf = NUMBER, __dprintf_chk = NUMBER, __vdprintf_chk = NUMBER,
    aio_read = CONTROL_BLOCK, aio_read64 = CONTROL_BLOCK, aio_write = CONTROL_BLOCK, aio_write64 = CONTROL_BLOCK,
    backtrace_symbols_fd = THIRD_NUMBER, __backtrace_symbols_fd = THIRD_NUMBER,
);

/// Serves `lio_listio(MODE, LIST, COUNT, ...)` (lio_listio(3)) as [`before_inner`] does, for each
/// control block of the list that is not null.
unsafe extern "C" fn before_list(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    let (list, count) = (arguments[1] as *const *const c_int, arguments[2] as c_int);
    // SAFETY: plain data, which the program leaves alone during the call. The first member of each
    // control block is its descriptor (aio(7)).
    let blocks = unsafe { crate::buffers::structures(list, count.max(0) as usize) };
    for block in blocks.unwrap_or_default().iter().filter(|block| !block.is_null()) {
        // SAFETY: plain data, which the program leaves alone during the call.
        if let Some(fd) = unsafe { crate::buffers::structure(*block) } {
            tell(|library| library.go_home(fd, ReasonT::Stdio, true));
        }
    }
    entry.next()
}

asks_first!(before_list; lio_listio = 0, lio_listio64 = 0);
