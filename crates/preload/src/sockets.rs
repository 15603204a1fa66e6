//! Data calls of sockets that take flags: `recv`, `recvfrom`, `send` and `sendto`.
//!
//! Not here: messages with headers (`messages`), socket options (`options`), making and connecting
//! sockets (`connections`). Read `transfer` first.

use crate::buffers::overflow;
use crate::flags::{RECV_SERVED, ReceiveFlags};
use crate::guard::kernel;
use crate::guard::{home, within};
use crate::library::{Attempt, DatagramCall, Recv, Route, Send, Use};
use crate::next::{next, own};
use crate::raw::Kernel;
use crate::trampoline::alias;
use crate::transfer::{self, Buffers, counted};
use crate::{buffers, datagrams, raw};
use core::ffi::{c_int, c_void};
use libc::{iovec, sockaddr, socklen_t};

type RecvFn = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize, c_int) -> isize;
type SendFn = unsafe extern "C-unwind" fn(c_int, *const c_void, usize, c_int) -> isize;
type RecvFromFn = unsafe extern "C-unwind" fn(
    c_int,
    *mut c_void,
    usize,
    c_int,
    *mut sockaddr,
    *mut socklen_t,
) -> isize;
type SendToFn = unsafe extern "C-unwind" fn(
    c_int,
    *const c_void,
    usize,
    c_int,
    *const sockaddr,
    socklen_t,
) -> isize;

/// Flags of sending calls that a session honours. Bytes in the ring are with the peer at once, so
/// hints about further bytes (`MSG_MORE`) change nothing.
const SEND_SERVED: c_int =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR | libc::MSG_CONFIRM;

/// Translates receiving flags. Returns `None` if a session cannot do what they ask for; then the
/// session is home from now on.
#[inline]
pub(crate) fn recv_flags(fd: c_int, flags: c_int) -> Option<Recv> {
    if flags & !RECV_SERVED == 0 {
        return Some(Recv {
            peek: flags & libc::MSG_PEEK != 0,
            wait_all: flags & libc::MSG_WAITALL != 0,
            dont_wait: flags & libc::MSG_DONTWAIT != 0,
            whole_len: false,
        });
    }
    if datagrams::is_concerned(fd)
        && let Some(how) = datagrams::recv_flags(flags)
    {
        return Some(how);
    }
    // A read of the error queue takes no bytes of the stream, so the session may stay away.
    if flags & libc::MSG_ERRQUEUE == 0 {
        home(fd, true);
    }
    None
}

/// Translates sending flags. Returns `None` if a session cannot do what they ask for; then the
/// session is home from now on.
#[inline]
pub(crate) fn send_flags(fd: c_int, flags: c_int) -> Option<Send> {
    if flags & !SEND_SERVED == 0 {
        return Some(Send { dont_wait: flags & libc::MSG_DONTWAIT != 0 });
    }
    if datagrams::is_concerned(fd) {
        // `datagrams::send` checks the flags of a datagram.
        return Some(Send { dont_wait: flags & libc::MSG_DONTWAIT != 0 });
    }
    home(fd, true);
    None
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recv(fd: c_int, at: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = move || unsafe { next!(c"recv" as RecvFn)(fd, at, len, flags) };
    let Some(how) = recv_flags(fd, flags) else { return kernel() };
    let buffers = Buffers::one(at, len);
    transfer::receive(fd, ReceiveFlags { how, given: Some(flags) }, buffers, kernel)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    room: usize,
    flags: c_int,
) -> isize {
    if len > room {
        overflow();
    }
    let same = own!(recv);
    // SAFETY: the same function, after the check of the buffer's length.
    unsafe { core::mem::transmute::<usize, RecvFn>(same)(fd, at, len, flags) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe {
        kernel!(SYS_recvfrom, c"recvfrom" as RecvFromFn; fd, at, len, flags, from, from_len)
    };
    recvfrom_by(fd, at, len, flags, from, from_len, kernel)
}

/// Serves [`recvfrom`]; `kernel` makes the kernel's call.
#[expect(clippy::too_many_arguments, reason = "those of the call that it serves")]
pub(crate) fn recvfrom_by(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
    kernel: impl Kernel,
) -> isize {
    let Some(how) = recv_flags(fd, flags) else { return kernel() };
    let flags = ReceiveFlags { how, given: Some(flags) };
    if from.is_null() {
        let buffers = Buffers::one(at, len);
        return transfer::receive(fd, flags, buffers, kernel);
    }
    match transfer::receive_route(fd) {
        Route::Plain => kernel(),
        Route::Kernel(usage) => counted(usage, kernel),
        Route::Datagrams(call) => {
            if !buffers::is_writable(from_len) {
                home(fd, false);
                return kernel();
            }
            let buffer = iovec { iov_base: at, iov_len: len };
            let mut header = datagrams::header_of(core::slice::from_ref(&buffer));
            header.msg_name = from.cast();
            // SAFETY: the length is writable, as checked above, and so readable.
            header.msg_namelen = unsafe { from_len.read_unaligned() };
            let got = receive_message(fd, call, &mut header, flags);
            if let Some(got) = got.filter(|got| *got >= 0) {
                // SAFETY: the length is writable, as checked above.
                unsafe { from_len.write_unaligned(header.msg_namelen) };
                return got;
            }
            got.unwrap_or_else(kernel)
        }
        Route::Stream(_) => {
            // A stream's bytes carry no address: `sender` fills in the peer's name afterwards.
            let got = transfer::receive(fd, flags, Buffers::one(at, len), kernel);
            // The kernel has served a call for 0 bytes.
            if got >= 0 && len > 0 && !sender(fd, got > 0, from, from_len) {
                bad_address()
            } else {
                got
            }
        }
    }
}

/// Receives a datagram into the buffers of `header`, whose other fields are filled in. Returns
/// `None` if the kernel is to serve the call.
pub(crate) fn receive_message(
    fd: c_int,
    mut call: DatagramCall<'static>,
    header: &mut libc::msghdr,
    flags: ReceiveFlags,
) -> Option<isize> {
    let handlers = crate::rest::HandlersRun::until_now();
    let mut attempt = Attempt::default();
    loop {
        let got = datagrams::receive(fd, &call, header, flags, &mut attempt);
        if got.is_some() {
            return got;
        }
        let dont_wait = flags.how.dont_wait;
        let is_another = call.number_is_another();
        if let Err(error) = transfer::homecoming(fd, is_another, handlers, dont_wait) {
            return Some(crate::errno::count(Err(error)));
        }
        call = datagram_route(fd)?;
    }
}

/// Returns the route of a receiving call on a UDP socket; `None` if the kernel is to serve the
/// call.
pub(crate) fn datagram_route(fd: c_int) -> Option<DatagramCall<'static>> {
    match transfer::receive_route(fd) {
        Route::Datagrams(call) => Some(call),
        // The number means another socket by now.
        Route::Stream(_) => {
            home(fd, true);
            None
        }
        Route::Plain | Route::Kernel(_) => None,
    }
}

fn bad_address() -> isize {
    crate::errno::set(rustix::io::Errno::FAULT);
    -1
}

/// Writes the address of the sender for bytes that a session received, as the kernel does: none for
/// a TCP socket and at the end of the stream, the peer's name, if it has one, for a Unix socket.
/// Returns false if the program's memory is not accessible.
fn sender(fd: c_int, has_some: bool, from: *mut sockaddr, from_len: *mut socklen_t) -> bool {
    if !buffers::is_writable(from_len) {
        return false;
    }
    // SAFETY: zeroes are a valid address.
    let mut name: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    let len = if has_some { peer_name(fd, &mut name) } else { 0 };
    // SAFETY: the length is writable, as checked above, and so readable.
    let room = unsafe { from_len.read_unaligned() } as usize;
    let copied = room.min(len);
    if copied > 0 && buffers::accessible(from as usize, copied, buffers::Access::Write) < copied {
        return false;
    }
    // SAFETY: `copied` bytes and the length are writable, as checked above; `name` has `len` bytes.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const name).cast::<u8>(), from.cast::<u8>(), copied);
        from_len.write_unaligned(len as socklen_t);
    }
    true
}

/// Reads the peer's name as received messages show it. Returns its length; 0 if there is none.
pub(crate) fn peer_name(fd: c_int, name: &mut libc::sockaddr_un) -> usize {
    let mut len = size_of::<libc::sockaddr_un>() as socklen_t;
    let arguments =
        [fd as usize, core::ptr::from_mut(name) as usize, (&raw mut len) as usize, 0, 0, 0];
    // SAFETY: the name and the length are local to this library.
    let result = unsafe { raw::call(libc::SYS_getpeername, arguments) };
    let has_name = result == 0 && c_int::from(name.sun_family) == libc::AF_UNIX && len > 2;
    if has_name { len as usize } else { 0 }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    room: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> isize {
    if len > room {
        overflow();
    }
    let same = own!(recvfrom);
    // SAFETY: the same function, after the check of the buffer's length.
    unsafe { core::mem::transmute::<usize, RecvFromFn>(same)(fd, at, len, flags, from, from_len) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn send(fd: c_int, at: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = move || unsafe { next!(c"send" as SendFn)(fd, at, len, flags) };
    let Some(how) = send_flags(fd, flags) else { return kernel() };
    let buffers = Buffers::one(at, len);
    transfer::send(fd, how, Some(flags), buffers, kernel)
}

alias!(__send = send);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        unsafe { kernel!(SYS_sendto, c"sendto" as SendToFn; fd, at, len, flags, to, to_len) };
    sendto_by(fd, at, len, flags, to, to_len, kernel)
}

/// Serves [`sendto`]; `kernel` makes the kernel's call.
#[expect(clippy::too_many_arguments, reason = "those of the call that it serves")]
pub(crate) fn sendto_by(
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
    kernel: impl Kernel,
) -> isize {
    if !to.is_null() {
        let buffer = iovec { iov_base: at.cast_mut(), iov_len: len };
        let mut header = datagrams::header_of(core::slice::from_ref(&buffer));
        header.msg_name = to.cast_mut().cast();
        header.msg_namelen = to_len;
        return send_to(fd, &header, flags, kernel);
    }
    let Some(how) = send_flags(fd, flags) else { return kernel() };
    let buffers = Buffers::one(at, len);
    transfer::send(fd, how, Some(flags), buffers, kernel)
}

/// Sends a message with an address: a datagram through its session if possible, anything else in
/// the kernel.
pub(crate) fn send_to(
    fd: c_int,
    header: &libc::msghdr,
    flags: c_int,
    kernel: impl Kernel,
) -> isize {
    if transfer::is_kernel_only(fd) {
        return kernel();
    }
    match transfer::send_route(fd) {
        Route::Plain => kernel(),
        Route::Kernel(usage) => counted(usage, kernel),
        Route::Datagrams(call) => datagrams::send(fd, &call, header, flags).unwrap_or_else(kernel),
        // A connected stream socket refuses the address or ignores it; the kernel decides.
        Route::Stream(_) => {
            home(fd, true);
            kernel()
        }
    }
}

/// Sends one of several datagrams through its session, if possible. Returns `None` if the kernel is
/// to serve the call.
pub(crate) fn send_message(fd: c_int, header: &libc::msghdr, flags: c_int) -> Option<isize> {
    if transfer::is_kernel_only(fd) {
        return None;
    }
    match transfer::send_route(fd) {
        Route::Datagrams(call) => datagrams::send(fd, &call, header, flags),
        Route::Kernel(usage) => {
            drop_unused(usage);
            None
        }
        _ => None,
    }
}

/// Drops a count of a call: the call is made and counted elsewhere.
#[inline(never)]
fn drop_unused(usage: Use<'static>) {
    within(|_| drop(usage));
}
