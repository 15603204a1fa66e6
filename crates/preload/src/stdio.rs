//! The C library's streams: their system calls are made inside it, so their descriptors stay in the
//! kernel.
//!
//! Descriptors with a `FILE` are known by the calls that make one. `stdin` and `stdout` have always
//! one; while it has not been used, descriptors 0 and 1 may move, and then every function that
//! could use it asks first (`ARMED`) and sends the descriptor home for good. Descriptor 2 never
//! moves.

use crate::descriptors::{numbering_stream, opened};
use crate::guard::{is_open, tell};
use crate::library::{Library, Origin, ReasonT, numbers};
use crate::next::{c_library, next};
use crate::objects;
use crate::reopen::is_again;
use crate::trampoline::{Interposer, asks_first, asks_while};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use libc::FILE;

type FileFn = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;
type SizeFn = unsafe extern "C-unwind" fn(*mut FILE) -> usize;

/// Bits 0 and 1: `stdin`, `stdout` may have a descriptor away from the kernel.
static ARMED: AtomicU32 = AtomicU32::new(0);

const WORD: usize = 64;
const KNOWN: usize = 1 << 16;
/// Descriptors that have a `FILE` other than the standard ones.
static FILES: [AtomicU64; KNOWN / WORD] = [const { AtomicU64::new(0) }; KNOWN / WORD];
/// How many there are beyond those.
static FILES_BEYOND: AtomicU32 = AtomicU32::new(0);

/// `stdin` and `stdout`, which may be the program's own copies of the variables.
fn standard() -> [*mut FILE; 2] {
    static SLOTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    [(&SLOTS[0], c"stdin"), (&SLOTS[1], c"stdout")].map(|(slot, name)| {
        // Every thread would store the same.
        let mut at = slot.load(Ordering::Relaxed);
        if at == 0 {
            at = objects::first(name).unwrap_or(0);
            slot.store(at, Ordering::Relaxed);
        }
        if at == 0 {
            return core::ptr::null_mut();
        }
        // SAFETY: a variable of that name; the program may assign it, as it may at any time.
        unsafe { (at as *const *mut FILE).read_volatile() }
    })
}

fn number_of(file: *mut FILE) -> c_int {
    if file.is_null() {
        return -1;
    }
    let kept = crate::errno::value();
    // SAFETY: a `FILE`, as the caller knows.
    let fd = unsafe { c_library!(c"fileno_unlocked" as FileFn)(file) };
    crate::errno::set_raw(kept);
    fd
}

/// Not 0: this process is a loader's, whose guest has a C library of its own, or none.
static IS_LOADER: AtomicU32 = AtomicU32::new(0);

/// The streams here are none of the program's.
pub(crate) fn belongs_to_loader() {
    IS_LOADER.store(1, Ordering::Relaxed);
}

/// Whether a `FILE` has used `fd`, or any that is not a standard one has it. If not, from now on
/// those who could begin to use it ask first.
pub(crate) fn uses(fd: c_int) -> bool {
    if IS_LOADER.load(Ordering::Relaxed) != 0 {
        return false;
    }
    if fd == 2 || has_file(fd) {
        return true;
    }
    for (index, file) in standard().into_iter().enumerate() {
        if number_of(file) == fd {
            // Armed before looking: a use that is not seen here asks.
            ARMED.fetch_or(1 << index, Ordering::SeqCst);
            // A stream has a buffer, of one byte at least, from its first use on.
            // SAFETY: a standard stream.
            if unsafe { c_library!(c"__fbufsize" as SizeFn)(file) } > 0 {
                return true;
            }
        }
    }
    false
}

fn has_file(fd: c_int) -> bool {
    match usize::try_from(fd) {
        Ok(at) if at < KNOWN => FILES[at / WORD].load(Ordering::Relaxed) >> (at % WORD) & 1 != 0,
        _ => FILES_BEYOND.load(Ordering::Relaxed) != 0,
    }
}

/// `file` was made, or may have another descriptor than before.
fn made(file: *mut FILE, is_new_number: bool) -> *mut FILE {
    let fd = number_of(file);
    if fd < 0 || !is_open() {
        return file;
    }
    match usize::try_from(fd) {
        Ok(at) if at < KNOWN => {
            FILES[at / WORD].fetch_or(1 << (at % WORD), Ordering::Relaxed);
        }
        _ => {
            FILES_BEYOND.fetch_add(1, Ordering::Relaxed);
        }
    }
    if is_new_number {
        opened(fd, Origin::Unknown);
        if is_again(fd) {
            tell(|library| library.go_home(fd, ReasonT::Stdio, true));
        }
    }
    file
}

/// Before `file`'s descriptor is closed.
fn closing(file: *mut FILE) {
    if file.is_null() || !is_open() {
        return;
    }
    let fd = number_of(file);
    if let Ok(at) = usize::try_from(fd) {
        if at < KNOWN {
            FILES[at / WORD].fetch_and(!(1 << (at % WORD)), Ordering::Relaxed);
        }
        tell(|library| library.closing(fd));
    }
}

type OpenFn = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;
type DescriptorFn = unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut FILE;
type ReopenFn = unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
type CloseFn = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    tell(|library| library.go_home(fd, ReasonT::Stdio, true));
    // SAFETY: passed on.
    made(unsafe { next!(c"fdopen" as DescriptorFn)(fd, mode) }, false)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: passed on.
    made(numbering_stream(|| unsafe { next!(c"fopen" as OpenFn)(path, mode) }), true)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the same function.
    unsafe { fopen(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    tell(|library| library.before_exec());
    // SAFETY: passed on.
    made(unsafe { next!(c"popen" as OpenFn)(command, mode) }, true)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    closing(file);
    numbers::pass();
    // SAFETY: passed on.
    let file = made(unsafe { next!(c"freopen" as ReopenFn)(path, mode, file) }, true);
    tell(Library::ended);
    file
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the same function.
    unsafe { freopen(path, mode, file) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    closing(file);
    // SAFETY: passed on.
    let result = unsafe { next!(c"fclose" as CloseFn)(file) };
    tell(Library::ended);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pclose(file: *mut FILE) -> c_int {
    closing(file);
    // SAFETY: passed on.
    let result = unsafe { next!(c"pclose" as CloseFn)(file) };
    tell(Library::ended);
    result
}

/// Details of the functions below: which streams they may use.
const IN: usize = 8;
const OUT: usize = 9;
const BOTH: usize = 10;

/// A function of stdio is about to run, and `stdin` or `stdout` is away, or the function is not
/// known yet.
unsafe extern "C" fn before_stdio(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    let armed = ARMED.load(Ordering::SeqCst);
    if armed != 0 && is_open() {
        let standard = standard();
        let is_meant = |index: usize| match entry.detail {
            IN => index == 0,
            OUT => index == 1,
            BOTH => true,
            at => arguments[at] == standard[index] as usize || arguments[at] == 0,
        };
        for index in (0..2).filter(|index| armed >> index & 1 != 0 && is_meant(*index)) {
            let fd = number_of(standard[index]);
            tell(|library| library.go_home(fd, ReasonT::Stdio, true));
            ARMED.fetch_and(!(1 << index), Ordering::SeqCst);
        }
    }
    entry.next()
}

asks_while!(ARMED, before_stdio;
    printf = OUT, vprintf = OUT, puts = OUT, putchar = OUT, putchar_unlocked = OUT, wprintf = OUT, vwprintf = OUT,
    putwchar = OUT, putwchar_unlocked = OUT, __printf_chk = OUT, __vprintf_chk = OUT, __wprintf_chk = OUT,
    __vwprintf_chk = OUT,
    fprintf = 0, vfprintf = 0, fwprintf = 0, vfwprintf = 0, __fprintf_chk = 0, __vfprintf_chk = 0, __fwprintf_chk = 0,
    __vfwprintf_chk = 0,
    fputs = 1, fputs_unlocked = 1, fputws = 1, fputws_unlocked = 1, fputc = 1, fputc_unlocked = 1, putc = 1,
    putc_unlocked = 1, _IO_putc = 1, fputwc = 1, fputwc_unlocked = 1, putwc = 1, putwc_unlocked = 1, putw = 1,
    fwrite = 3, fwrite_unlocked = 3, fflush = 0, fflush_unlocked = 0, __overflow = 0, __woverflow = 0,
);

asks_while!(ARMED, before_stdio;
    getchar = IN, getchar_unlocked = IN, gets = IN, __gets_chk = IN, getwchar = IN, getwchar_unlocked = IN, scanf = IN,
    vscanf = IN, wscanf = IN, vwscanf = IN, __isoc99_scanf = IN, __isoc99_vscanf = IN, __isoc99_wscanf = IN,
    __isoc99_vwscanf = IN, __isoc23_scanf = IN, __isoc23_vscanf = IN, __isoc23_wscanf = IN, __isoc23_vwscanf = IN,
    getc = 0, getc_unlocked = 0, _IO_getc = 0, fgetc = 0, fgetc_unlocked = 0, getwc = 0, getwc_unlocked = 0,
    fgetwc = 0, fgetwc_unlocked = 0, getw = 0, fgets = 2, fgets_unlocked = 2, fgetws = 2, fgetws_unlocked = 2,
    __fgets_chk = 3, __fgets_unlocked_chk = 3, __fgetws_chk = 3, __fgetws_unlocked_chk = 3, fread = 3,
    fread_unlocked = 3, __fread_chk = 4, __fread_unlocked_chk = 4, getline = 2, getdelim = 3, __getdelim = 3,
    fscanf = 0, vfscanf = 0, fwscanf = 0, vfwscanf = 0, __isoc99_fscanf = 0, __isoc99_vfscanf = 0,
    __isoc99_fwscanf = 0, __isoc99_vfwscanf = 0, __isoc23_fscanf = 0, __isoc23_vfscanf = 0, __isoc23_fwscanf = 0,
    __isoc23_vfwscanf = 0, ungetc = 1, ungetwc = 1, __underflow = 0, __uflow = 0, __wunderflow = 0, __wuflow = 0,
);

asks_while!(ARMED, before_stdio;
    fgetpwent = 0, fgetpwent_r = 0, fgetgrent = 0, fgetgrent_r = 0, fgetspent = 0, fgetspent_r = 0, getmntent = 0,
    getmntent_r = 0, addmntent = 0, putpwent = 1, putgrent = 1, putspent = 1, malloc_info = 1, argp_help = 1,
    argp_parse = BOTH, getpass = BOTH, fcloseall = BOTH,
    fseek = 0, fseeko = 0, fseeko64 = 0, rewind = 0, fsetpos = 0, fsetpos64 = 0, setvbuf = 0, setbuf = 0,
    setbuffer = 0, setlinebuf = 0, error = BOTH, error_at_line = BOTH,
);

/// Functions that write to, or read from, a descriptor inside the C library: it is in the kernel
/// from now on.
unsafe extern "C" fn before_inner(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    let fd = match entry.detail {
        NUMBER => Some(arguments[0] as c_int),
        // SAFETY: plain data: the first member of a `struct aiocb` is its descriptor.
        _ => unsafe { crate::buffers::structure(arguments[0] as *const c_int) },
    };
    if let Some(fd) = fd {
        tell(|library| library.go_home(fd, ReasonT::Stdio, true));
    }
    entry.next()
}

/// Details of the functions below: what the first argument is.
const NUMBER: usize = 0;
const CONTROL_BLOCK: usize = 1;

asks_first!(before_inner;
    dprintf = NUMBER, vdprintf = NUMBER, __dprintf_chk = NUMBER, __vdprintf_chk = NUMBER,
    aio_read = CONTROL_BLOCK, aio_read64 = CONTROL_BLOCK, aio_write = CONTROL_BLOCK, aio_write64 = CONTROL_BLOCK,
);

/// `lio_listio(MODE, LIST, COUNT, ...)`: the same for each control block of the list that there is.
unsafe extern "C" fn before_list(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    let (list, count) = (arguments[1] as *const *const c_int, arguments[2] as c_int);
    // SAFETY: plain data, which the program leaves alone during the call; of each block the first
    // member, as above.
    let blocks = unsafe { crate::buffers::structures(list, count.max(0) as usize) };
    for block in blocks.unwrap_or_default().iter().filter(|block| !block.is_null()) {
        // SAFETY: as above.
        if let Some(fd) = unsafe { crate::buffers::structure(*block) } {
            tell(|library| library.go_home(fd, ReasonT::Stdio, true));
        }
    }
    entry.next()
}

asks_first!(before_list; lio_listio = 0, lio_listio64 = 0);
