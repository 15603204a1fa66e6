//! Sockets: making, accepting, connecting, shutting down.
//!
//! Not here: the data calls (`sockets`, `messages`), options (`options`).

use crate::descriptors::{numbering, numbering_first, opened};
use crate::guard::kernel;
use crate::guard::{home, tell};
use crate::library::{Library, Origin};
use crate::raw::Kernel;
use crate::trampoline::alias;
use core::ffi::c_int;
use libc::{sockaddr, socklen_t};

type SocketFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
type PairFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut c_int) -> c_int;
type AcceptFn = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
type Accept4Fn = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
type ConnectFn = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type ShutdownFn = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    socket_by(unsafe { kernel!(SYS_socket, c"socket" as SocketFn; domain, kind, protocol) })
        as c_int
}

/// Serves [`socket`]; `kernel` makes the kernel's call.
pub(crate) fn socket_by(kernel: impl Kernel) -> isize {
    opened(numbering(kernel) as c_int, Origin::Fresh) as isize
}

alias!(__socket = socket);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        unsafe { kernel!(SYS_socketpair, c"socketpair" as PairFn; domain, kind, protocol, pair) };
    socketpair_by(pair, kernel) as c_int
}

/// Serves [`socketpair`]; `kernel` makes the kernel's call.
pub(crate) fn socketpair_by(pair: *const c_int, kernel: impl Kernel) -> isize {
    let result = numbering(kernel);
    if result == 0 {
        // SAFETY: the kernel has just written both numbers.
        let [first, second] = unsafe { pair.cast::<[c_int; 2]>().read_unaligned() };
        opened(first, Origin::Fresh);
        opened(second, Origin::Fresh);
    }
    result
}

/// Serves the calls that accept a connection; `kernel` makes the kernel's call.
pub(crate) fn opened_by(kernel: impl Kernel) -> isize {
    opened(numbering_first(kernel) as c_int, Origin::Fresh) as isize
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    opened_by(unsafe { kernel!(SYS_accept, c"accept" as AcceptFn; fd, from, len) }) as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    opened_by(unsafe { kernel!(SYS_accept4, c"accept4" as Accept4Fn; fd, from, len, flags) })
        as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    connect_by(fd, unsafe { kernel!(SYS_connect, c"connect" as ConnectFn; fd, to, len) }) as c_int
}

/// Serves [`connect`]; `kernel` makes the kernel's call.
pub(crate) fn connect_by(fd: c_int, kernel: impl Kernel) -> isize {
    // The kernel decides about a second `connect` and about dissolving an association (`AF_UNSPEC`,
    // connect(2)).
    home(fd, false);
    kernel()
}

alias!(__connect = connect);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_shutdown, c"shutdown" as ShutdownFn; fd, how) };
    shutdown_by(fd, how, kernel) as c_int
}

/// Serves [`shutdown`]; `kernel` makes the kernel's call.
pub(crate) fn shutdown_by(fd: c_int, how: c_int, kernel: impl Kernel) -> isize {
    if (0..=2).contains(&how) {
        tell(|library| library.shutting(fd, how != libc::SHUT_WR));
    }
    let result = kernel();
    tell(Library::ended);
    result
}
