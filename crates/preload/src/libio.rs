//! The function tables of the C library's streams (libio): this library puts its own functions into
//! them, so that reads and writes of a `FILE` arrive here like `read` and `write`.
//!
//! The streams of a C library share a handful of tables. They lie in one array, in memory that is
//! read-only after start. The tables keep their addresses, so the C library's own check of tables
//! (`_IO_vtable_check`) passes; only three entries of each table change. The search begins at the
//! table of `stdout` and recognizes tables by their contents, because no symbol names the array
//! since glibc 2.38.
//!
//! Most programs never need this, so the tables are hooked when it can first matter ([`hook`]): at
//! the start of a program whose standard input or output is a pipe or a socket, and when a `FILE`
//! is made for a pipe or a socket. A thread that is inside a function of the old table is not known
//! to the library; see [`Hooked`]. Not here: the functions that make and close streams (`stdio`).
//! Read `io` first.

use crate::first_calls::is_open_for;
use crate::guard::{home, tell_if_initialized};
use crate::handlers;
use crate::io::{is_surely_kernel_only, read_by, write_by};
use crate::library::Library;
use crate::next::{c_library, next};
use crate::objects;
use crate::prototypes::WriteFn as PlainWriteFn;
use core::ffi::{c_char, c_int, c_void};
use core::hint::black_box;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use libc::FILE;

/// `struct _IO_FILE` (bits/types/struct_FILE.h), as far as it is used here, and the table's address
/// that follows it (`struct _IO_FILE_plus`). The layout has not changed since glibc 2.1.
#[repr(C)]
struct Stream {
    flags: c_int,
    _pointers: [usize; 13],
    number: c_int,
    flags2: c_int,
    _old_offset: i64,
    _column: u64,
    _lock: usize,
    offset: i64,
    _rest: [usize; 8],
    table: *const usize,
}

const _: () = assert!(core::mem::offset_of!(Stream, number) == 112);
const _: () = assert!(core::mem::offset_of!(Stream, offset) == 144);
const _: () = assert!(core::mem::offset_of!(Stream, table) == 216);

/// `_IO_ERR_SEEN` and `_IO_CURRENTLY_PUTTING` (`libio.h`).
const ERR_SEEN: c_int = 0x20;
const CURRENTLY_PUTTING: c_int = 0x800;
/// `_IO_FLAGS2_NOTCANCEL`: the stream was opened with `c` in its mode (fopen(3)), so that its calls
/// are no cancellation points.
const NOT_CANCEL: c_int = 2;

/// Indices of entries in a table (`struct _IO_jump_t`); the first two entries are unused.
const READ: usize = 14;
const WRITE: usize = 15;
const CLOSE: usize = 17;
/// Bytes on either side of `stdout`'s table in which all other tables lie: the array is 3,432 bytes
/// long in glibc 2.28 to 2.41.
const AROUND: usize = 4096;
const WORD: usize = size_of::<usize>();

type ReadFn = unsafe extern "C-unwind" fn(*mut FILE, *mut c_void, isize) -> isize;
type WriteFn = unsafe extern "C-unwind" fn(*mut FILE, *const c_void, isize) -> isize;
type CloseFn = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;

/// The C library's own functions; 0 until the tables are hooked.
#[unsafe(link_section = ".data.start")]
static OWN_READ: AtomicUsize = AtomicUsize::new(0);
#[unsafe(link_section = ".data.start")]
static OWN_WRITE: AtomicUsize = AtomicUsize::new(0);
/// The C library's closing functions, which differ between tables: for files, files in memory, and
/// pipes to processes (`popen`).
#[unsafe(link_section = ".data.start")]
static OWN_CLOSE: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// Returns this library's closing functions, in the order of [`OWN_CLOSE`]. Not a constant array:
/// its addresses would have to be relocated, but the constructor hooks the tables (`relocation`).
fn closers() -> [usize; 4] {
    let address = |one: CloseFn| black_box(one as usize);
    [address(close::<0>), address(close::<1>), address(close::<2>), address(close::<3>)]
}

/// The state of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Hooked {
    /// The tables are unchanged, or another thread is changing them.
    No = 0,
    /// The tables were changed before another thread, or a call that a signal handler interrupted,
    /// can have been in a function of a stream.
    FromStart = 1,
    /// The tables were changed while threads may have been in the old functions, with the standard
    /// streams of that time.
    Later = 2,
    /// The tables are not as expected, or cannot be written.
    Never = 3,
}

/// A thread is changing the tables. No thread waits for it: in a child of `fork` that thread may
/// not exist.
const BUSY: u8 = 4;

#[unsafe(link_section = ".data.start")]
static HOOKED: AtomicU8 = AtomicU8::new(Hooked::No as u8);

/// Returns the state of the tables.
pub(crate) fn hooked() -> Hooked {
    // SYNC: acquire; pairs with the release store in `hook`.
    match HOOKED.load(Ordering::Acquire) {
        1 => Hooked::FromStart,
        2 => Hooked::Later,
        3 => Hooked::Never,
        _ => Hooked::No,
    }
}

/// Puts this library's functions into the tables, unless they are there already.
#[cold]
pub(crate) fn hook() -> Hooked {
    let [free, busy] = [Hooked::No as u8, BUSY];
    if HOOKED.compare_exchange(free, busy, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return hooked();
    }
    let now = match put_ours() {
        None => Hooked::Never,
        Some(()) if is_alone() => Hooked::FromStart,
        Some(()) => Hooked::Later,
    };
    // SYNC: release; pairs with the acquire load in `hooked`: the tables have this library's
    // functions.
    HOOKED.store(now as u8, Ordering::Release);
    now
}

/// Returns true if no other thread, and no call that a signal handler interrupted, can be in a
/// stream's function.
fn is_alone() -> bool {
    // The variable exists since glibc 2.32. Without it the number of threads is not known.
    let single = objects::of_c_library(c"__libc_single_threaded");
    // SAFETY: the C library's variable has this type.
    let is_single = single.is_some_and(|at| unsafe { (at as *const c_char).read_volatile() != 0 });
    is_single && !handlers::in_handler(crate::tls::here())
}

/// Returns the table of a stream.
///
/// # Safety
/// `file` must be a `FILE` of the C library's.
unsafe fn table_of(file: *mut FILE) -> *const usize {
    // SAFETY: the caller promises a `FILE`.
    unsafe { (*file.cast::<Stream>()).table }
}

fn put_ours() -> Option<()> {
    let stream = objects::of_c_library(c"_IO_2_1_stdout_")?;
    // SAFETY: the C library's own stream, even if the program assigns to `stdout`.
    let table = unsafe { table_of(stream as *mut FILE) } as usize;
    let library = objects::all().find(|object| object.has(table))?;
    let closed = library.closed().find(|range| range.contains(&table))?;
    let start = closed.start.max(table.saturating_sub(AROUND));
    let around = start.next_multiple_of(WORD)..closed.end.min(table + AROUND);
    let entry = |at: usize, index: usize| {
        let at = at + index * WORD;
        // SAFETY: a word of the C library's data, which its relocations have filled in.
        around.contains(&at).then(|| unsafe { (at as *const usize).read_volatile() })
    };
    let own_entry = |index| entry(table, index).unwrap_or(0);
    let own = [own_entry(READ), own_entry(WRITE), own_entry(CLOSE)];
    if own.iter().any(|at| !library.has(*at)) || entry(table, 0)? != 0 || entry(table, 1)? != 0 {
        return None;
    }
    OWN_READ.store(own[0], Ordering::Relaxed);
    OWN_WRITE.store(own[1], Ordering::Relaxed);
    let is_table = |at: usize| {
        let [read, write, _] = own;
        // Rules out nearly every word by itself.
        entry(at, READ) == Some(read)
            && entry(at, WRITE) == Some(write)
            && entry(at, 0) == Some(0)
            && entry(at, 1) == Some(0)
    };
    library.write_closed(around.clone(), || {
        for at in around.clone().step_by(WORD).filter(|at| is_table(*at)) {
            put(at, entry(at, CLOSE).unwrap_or(0));
        }
    })
}

/// Puts this library's functions into one table.
fn put(table: usize, closes: usize) {
    let store = |index: usize, ours: usize| {
        // SAFETY: an entry of a table, which is writable now. A thread that reads the entry
        // meanwhile finds the old function or the new one.
        unsafe { ((table + index * WORD) as *mut usize).write_volatile(ours) };
    };
    store(READ, read as ReadFn as usize);
    store(WRITE, write as WriteFn as usize);
    let known = OWN_CLOSE.iter().zip(closers()).find(|(own, _)| {
        let seen = own.compare_exchange(0, closes, Ordering::Relaxed, Ordering::Relaxed);
        seen.is_ok() || seen == Err(closes)
    });
    // If there are more closing functions than places, the rest stays. The library then finds out
    // about a closed number when the number is used again.
    if let Some((_, ours)) = known {
        store(CLOSE, ours);
    }
}

/// Returns the descriptor of a stream if it may have a session.
///
/// # Safety
/// `file` must be a `FILE` that the caller has locked.
unsafe fn session_number(file: *mut FILE) -> Option<c_int> {
    // SAFETY: the caller promises a locked `FILE`.
    let (fd, flags2) =
        unsafe { ((*file.cast::<Stream>()).number, (*file.cast::<Stream>()).flags2) };
    if is_surely_kernel_only(fd) {
        return None;
    }
    if flags2 & NOT_CANCEL != 0 {
        // The library's waits can be cancelled, but this stream's calls must not be.
        if is_open_for(fd) {
            home(fd, true);
        }
        return None;
    }
    Some(fd)
}

/// Takes the place of `_IO_file_read`.
unsafe extern "C-unwind" fn read(file: *mut FILE, at: *mut c_void, len: isize) -> isize {
    // SAFETY: the C library's own function for this table, with the arguments of its caller.
    let own = || unsafe {
        let own = OWN_READ.load(Ordering::Relaxed);
        core::mem::transmute::<usize, ReadFn>(own)(file, at, len)
    };
    // SAFETY: the C library calls this function with a locked stream.
    match unsafe { session_number(file) } {
        Some(fd) => read_by(fd, at, len as usize, own),
        None => own(),
    }
}

/// Takes the place of `_IO_new_file_write`: writes all bytes, or marks the stream as failed.
unsafe extern "C-unwind" fn write(file: *mut FILE, at: *const c_void, len: isize) -> isize {
    let stream = file.cast::<Stream>();
    // SAFETY: the C library calls this function with a locked stream. A stream that knows its file
    // offset is neither a pipe nor a socket.
    let (Some(fd), ..0) = (unsafe { (session_number(file), (*stream).offset) }) else {
        // SAFETY: the C library's own function for this table, with the arguments of its caller.
        return unsafe {
            let own = OWN_WRITE.load(Ordering::Relaxed);
            core::mem::transmute::<usize, WriteFn>(own)(file, at, len)
        };
    };
    let mut sent = 0;
    while sent < len {
        // SAFETY: `sent` is less than `len`.
        let (rest, left) = (unsafe { at.byte_offset(sent) }, (len - sent) as usize);
        // SAFETY: a part of the bytes that the caller passes.
        let kernel = || unsafe { next!(c"write" as PlainWriteFn)(fd, rest, left) };
        let done = write_by(fd, rest, left, kernel);
        if done < 0 {
            // SAFETY: the stream is locked.
            unsafe { (*stream).flags |= ERR_SEEN };
            break;
        }
        sent += done;
    }
    sent
}

/// Takes the place of `_IO_file_close` and its variants.
unsafe extern "C-unwind" fn close<const KIND: usize>(file: *mut FILE) -> c_int {
    // SAFETY: the C library calls this function with a locked stream.
    let fd = unsafe { (*file.cast::<Stream>()).number };
    tell_if_initialized(|library| library.closing(fd));
    // SAFETY: the C library's own function for this table, with the argument of its caller.
    let result = unsafe {
        let own = OWN_CLOSE[KIND].load(Ordering::Relaxed);
        core::mem::transmute::<usize, CloseFn>(own)(file)
    };
    tell_if_initialized(Library::ended);
    result
}

/// Writes a stream's buffered bytes before its descriptor changes its meaning.
pub(crate) fn flush(file: *mut FILE) {
    // SAFETY: the caller passes a `FILE`.
    let flags = unsafe { (*file.cast::<Stream>()).flags };
    if flags & CURRENTLY_PUTTING != 0 {
        // SAFETY: the caller passes a `FILE`.
        unsafe { c_library!(c"fflush" as CloseFn)(file) };
    }
}
