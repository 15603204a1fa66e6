//! Libraries that a program loads so that they look past us: `dlopen` with `RTLD_DEEPBIND`, and
//! `dlmopen`.
//!
//! With that flag a library's names are looked for in itself and in what it depends on before all
//! else, so that it calls the C library where the rest of the program calls us. What of its names
//! the C library serves is bound to us afterwards, in every library that came along. What it, or
//! they, have of those names themselves stays. Where that cannot be done the kernel serves the
//! whole process from then on: a library of another namespace has a C library of its own, and
//! `dlopen` looks at who calls it (for its search path), so a call of ours is not the same for a
//! name without a folder.
//!
//! Not here: libraries with the C library linked into them, which nobody sees
//! (docs/use/linux-differences.md). Read `objects` first.

use crate::guard::is_open;
use crate::library::ReasonT;
use crate::next::next;
use crate::objects::{self, Object, Relocation};
use crate::process::shut;
use crate::raw;
use crate::trampoline::{Interposer, asks_first};
use core::ffi::{CStr, c_char, c_int, c_void};

type OpenFn = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;

asks_first!(before_open; dlopen = 0);
asks_first!(before_namespace; dlmopen = 0);

/// `LM_ID_BASE`: the program's own namespace.
const BASE: usize = 0;

unsafe extern "C" fn before_open(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    let [name, flags, ..] = *arguments;
    if name == 0 || flags as c_int & libc::RTLD_DEEPBIND == 0 || !is_open() {
        return entry.next();
    }
    // SAFETY: a string, as for the C library.
    let name = unsafe { CStr::from_ptr(name as *const c_char) }.to_bytes();
    if name.contains(&b'/') && !name.contains(&b'$') {
        return open as OpenFn as usize;
    }
    shut(ReasonT::Operation);
    entry.next()
}

unsafe extern "C" fn before_namespace(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    if arguments[0] != BASE {
        shut(ReasonT::Operation);
    }
    entry.next()
}

/// `dlopen` of a file, with `RTLD_DEEPBIND`.
unsafe extern "C-unwind" fn open(name: *const c_char, flags: c_int) -> *mut c_void {
    let last = objects::all().last();
    // SAFETY: passed on.
    let handle = unsafe { next!(c"dlopen" as OpenFn)(name, flags) };
    if let (false, Some(last)) = (handle.is_null(), last) {
        bind(last);
    }
    handle
}

/// Binds to us what is the C library's in objects behind `last`.
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
    // SAFETY: a word of the object's that holds an address, as its relocation says.
    let bound = unsafe { slot.read_volatile() };
    let is_lazy = object.has(bound);
    let is_theirs = || last.behind().any(|object| object.find(name).is_some());
    let is_c_librarys =
        || Some(bound) == objects::of_c_library(name) || Some(bound) == objects::next(name);
    // Not bound before it is first called: then by what would be found.
    if if is_lazy { !is_theirs() } else { is_c_librarys() } {
        put(object, slot, ours);
    }
}

/// Stores `value` in a word which may have been made read-only once everything was bound.
fn put(object: &Object, slot: *mut usize, value: usize) {
    const PAGE: usize = 4096;
    let page = slot as usize & !(PAGE - 1);
    let protect = |protection: c_int| {
        let arguments = [page, PAGE, protection as usize, 0, 0, 0];
        // SAFETY: a page of the object's data, which is written as it was before it was closed.
        unsafe { raw::call(libc::SYS_mprotect, arguments) == 0 }
    };
    let is_closed = object.is_closed(slot as usize);
    if is_closed && !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return;
    }
    // SAFETY: as in `bind_one`, and writable.
    unsafe { slot.write_volatile(value) };
    if is_closed {
        protect(libc::PROT_READ);
    }
}
