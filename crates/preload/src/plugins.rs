//! Libraries that a program loads in a way that bypasses this library: `dlopen` with
//! `RTLD_DEEPBIND`, and `dlmopen`.
//!
//! With `RTLD_DEEPBIND` (dlopen(3)) the symbols of a library are searched for in the library itself
//! and its dependencies first, so it calls the C library where the rest of the program calls this
//! library. Afterwards those of its references that the C library serves are bound to this library,
//! and likewise in every library that was loaded along with it. References that these libraries
//! serve themselves stay.
//!
//! Where that is not possible, the kernel serves the whole process from then on. A library in
//! another namespace has a C library of its own. And `dlopen` takes its search path from its
//! caller, so for a name without a folder a call from this library would not find the same file.
//!
//! Not here: libraries that are linked with the C library statically, which are not noticed
//! (docs/use/linux-differences.md). Read `objects` first.

use crate::code;
use crate::guard::is_open;
use crate::library::ReasonT;
use crate::next::next;
use crate::objects::{self, Object, Relocation};
use crate::process::shut;
use crate::trampoline::{Interposer, asks_first};
use core::ffi::{CStr, c_char, c_int, c_void};

type OpenFn = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;

asks_first!(before_open; dlopen = 0);
asks_first!(before_namespace; dlmopen = 0);

/// `LM_ID_BASE`: the program's own namespace.
const BASE: usize = 0;

unsafe extern "C" fn before_open(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    let [name, flags, ..] = *arguments;
    let is_deep = flags as c_int & libc::RTLD_DEEPBIND != 0;
    if name == 0 || !(is_deep || code::is_rewritten()) || !is_open() {
        return entry.next();
    }
    // SAFETY: a string, as for the C library's `dlopen`.
    let name = unsafe { CStr::from_ptr(name as *const c_char) }.to_bytes();
    // `$` begins a token such as `$ORIGIN`, which the loader replaces by a path of the caller
    // (ld.so(8)).
    let is_path = name.contains(&b'/') && !name.contains(&b'$');
    if is_path || !is_deep && !has_search_paths() {
        return open as OpenFn as usize;
    }
    if is_deep {
        shut(ReasonT::Operation);
    }
    code::may_come();
    entry.next()
}

/// Returns true if an object names folders in which the libraries that it opens are searched for,
/// so that it matters who opens them (ld.so(8)).
fn has_search_paths() -> bool {
    /// `DT_RPATH` and `DT_RUNPATH`.
    const TAGS: [usize; 2] = [15, 29];
    objects::all().any(|object| object.entries().any(|entry| TAGS.contains(&entry.tag)))
}

unsafe extern "C" fn before_namespace(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    if arguments[0] != BASE {
        shut(ReasonT::Operation);
    }
    entry.next()
}

/// Opens a file as `dlopen` does. With `RTLD_DEEPBIND` binds the new libraries; where system calls
/// are rewritten, has theirs rewritten.
unsafe extern "C-unwind" fn open(name: *const c_char, flags: c_int) -> *mut c_void {
    let last = objects::all().last();
    // SAFETY: the program's arguments, passed on unchanged.
    let handle = unsafe { next!(c"dlopen" as OpenFn)(name, flags) };
    let is_deep = flags & libc::RTLD_DEEPBIND != 0;
    if let (false, Some(last)) = (handle.is_null() || !is_deep, last) {
        bind(last);
    }
    if code::is_rewritten() {
        code::came();
    }
    handle
}

/// Binds references to the C library in objects behind `last` to this library.
fn bind(last: &'static Object) {
    let Some(own) = objects::own() else { return };
    for object in last.behind() {
        for relocation in object.relocations() {
            bind_one(own, object, relocation, last);
        }
    }
}

fn bind_one(own: &Object, object: &Object, relocation: Relocation, last: &'static Object) {
    let Some(name) = object.name_of(relocation) else { return };
    let Some(ours) = own.find(name) else { return };
    let slot = relocation.place(object) as *mut usize;
    // SAFETY: a word of the object that holds an address, as its relocation says.
    let bound = unsafe { slot.read_volatile() };
    let is_lazy = object.has(bound);
    let is_theirs = || last.behind().any(|object| object.find(name).is_some());
    let is_c_librarys =
        || Some(bound) == objects::of_c_library(name) || Some(bound) == objects::next(name);
    // A lazy reference is bound at the first call, to the symbol that the loader's search finds
    // then.
    if if is_lazy { !is_theirs() } else { is_c_librarys() } {
        put(object, slot, ours);
    }
}

/// Stores `value` in a word that may be read-only since the end of the relocation.
fn put(object: &Object, slot: *mut usize, value: usize) {
    let at = slot as usize;
    object.write_closed(at..at + size_of::<usize>(), || {
        // SAFETY: a word of the object that holds an address; writable now.
        unsafe { slot.write_volatile(value) };
    });
}
