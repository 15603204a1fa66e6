//! The ways by which system calls come here with their numbers: the C library's function `syscall`,
//! and the table of functions for the loader of programs that make their own system calls
//! (`crates/loader`, `sojourn_abi::door`).
//!
//! The loader asks for the table by a number that is no system call. Not here: what becomes of a
//! call (`syscalls`), and programs whose calls are rewritten while they run (`own_calls`).

use crate::guard::{has_started, is_initialized, is_inside, is_open};
use crate::guests::Numbered;
use crate::library::{FdEntry, library};
use crate::process::{ends_by_call, is_first_thread};
use crate::syscalls::{Dispatch, concerns, dispatch, forked, serve, served};
use crate::trampoline::{Interposer, asks_first};
use crate::{deferred, guard, guests, io, signals, stdio, taken, vfork};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, Ordering};
use sojourn_abi::door::{self, Door, Entries, NoteFn};

type NumberFn =
    unsafe extern "C-unwind" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// The loader's function that notes a hot session, a [`NoteFn`]; null outside the loader's process.
static NOTE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the loader's function that notes a hot session.
pub(crate) fn note_of_loader() -> Option<NoteFn> {
    let note = NOTE.load(Ordering::Relaxed);
    // SAFETY: the loader, which has stored it, has passed a function of this type.
    (!note.is_null()).then(|| unsafe { core::mem::transmute::<*mut (), NoteFn>(note) })
}

asks_first!(before_syscall; syscall = 0);

/// Chooses the function that `syscall` jumps to.
unsafe extern "C" fn before_syscall(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    if arguments[0] as i64 == door::NUMBER && has_started() {
        return open_door as NumberFn as usize;
    }
    if !is_open() {
        // The library's own calls (mostly waits) bypass other preloaded libraries.
        return if is_inside() { plain as NumberFn as usize } else { entry.next() };
    }
    match dispatch(arguments) {
        Dispatch::Served => serve as NumberFn as usize,
        Dispatch::Forked => forked as NumberFn as usize,
        Dispatch::AsItIs => entry.next(),
    }
}

/// Makes a system call without any other library.
#[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
unsafe extern "C-unwind" fn plain(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    Numbered { number, arguments: [a, b, c, d, e, f] }.make() as c_long
}

/// The table of functions for the loader of programs that make their own system calls.
struct Table(UnsafeCell<MaybeUninit<Door>>);

// SAFETY: written before the loader has its address, and never again.
unsafe impl Sync for Table {}

#[unsafe(link_section = ".data.start")]
static TABLE: Table = Table(UnsafeCell::new(MaybeUninit::uninit()));

impl Table {
    /// Fills the table, field by field and volatile: a constant table would hold addresses, which
    /// wait for relocation, and a compiler may copy from one.
    fn fill(&self) -> *const Door {
        let at = self.0.get().cast::<Door>();
        // SAFETY: this table's own fields; the only caller is the loader's first thread, once.
        unsafe {
            (&raw mut (*at).call).write_volatile(by_number);
            (&raw mut (*at).concerns).write_volatile(concerns);
            (&raw mut (*at).is_kernels).write_volatile(is_kernels);
            (&raw mut (*at).entries).write_volatile(entries);
            (&raw mut (*at).vfork_begins).write_volatile(vfork::before_shared_child);
            (&raw mut (*at).vfork_ends).write_volatile(vfork::shared_child_ended);
            (&raw mut (*at).signal).write_volatile(signals::came_through_door);
            (&raw mut (*at).due).write_volatile(deferred::due);
            (&raw mut (*at).thread_ends).write_volatile(thread_ends_by_call);
        }
        at
    }
}

extern "C" fn is_kernels(fd: c_int) -> bool {
    io::is_surely_kernel_only(fd)
}

/// What the loader reads by itself is where it looks.
const _: () = {
    let layout = FdEntry::LAYOUT;
    assert!(layout.count == Entries::COUNT && layout.stride == Entries::STRIDE);
    assert!(layout.session == Entries::SESSION && layout.marks == Entries::MARKS);
    assert!(layout.decisive == Entries::DECISIVE && layout.settled == Entries::SETTLED);
};

extern "C" fn entries() -> Entries {
    Entries { first: library().first_entry().cast(), guard: guard::word() }
}

extern "C" fn thread_ends_by_call(status: c_int) {
    // A library that has done nothing has no threads, which would keep the process alive.
    if (is_initialized() || is_first_thread()) && is_open() {
        ends_by_call(status as usize);
    }
}

/// Gives the table to a caller that asks for its version. From then on the C library's streams
/// belong to the loader, which does not use any; the guest program has its own.
#[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
unsafe extern "C-unwind" fn open_door(
    _: c_long,
    version: usize,
    at: usize,
    note: usize,
    _: usize,
    _: usize,
    _: usize,
) -> c_long {
    if version != door::VERSION {
        crate::errno::set_raw(libc::EINVAL);
        return -1;
    }
    stdio::belongs_to_loader();
    taken::take();
    NOTE.store(note as *mut (), Ordering::Relaxed);
    // SAFETY: a caller that knows the number passes such an address.
    unsafe { (at as *mut *const Door).write(TABLE.fill()) };
    0
}

/// Makes a system call for a program that makes its own, as `syscall` would. Returns the kernel's
/// result.
unsafe extern "C-unwind" fn by_number(number: i64, arguments: &[usize; 6]) -> isize {
    guests::begin();
    // SAFETY: the program's own call.
    let result =
        unsafe { served(number, arguments).unwrap_or_else(|| guests::call(number, *arguments)) };
    guests::ended(number, arguments, result)
}
