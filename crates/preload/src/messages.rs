//! `sendmsg`, `recvmsg`, `sendmmsg` and `recvmmsg`, and the descriptors that messages carry
//! (unix(7), `SCM_RIGHTS`).
//!
//! Not here: moving the bytes (`transfer`), single datagrams (`datagrams`), and control data that a
//! session answers itself (`beside`).

use crate::beside::Beside;
use crate::buffers;
use crate::flags::ReceiveFlags;
use crate::guard::home;
use crate::guard::kernel;
use crate::guard::{is_open, tell};
use crate::library::{DatagramCall, Route, Send};
use crate::prototypes::{RecvMsgFn, SendMsgFn};
use crate::raw::Kernel;
use crate::sockets::{
    datagram_route, peer_name, receive_message, recv_flags, send_flags, send_message, send_to,
};
use crate::trampoline::alias;
use crate::transfer::{self, Buffers, counted};
use crate::{datagrams, raw};
use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use libc::{cmsghdr, mmsghdr, msghdr, timespec};
use std::time::{Duration, Instant};

type SendMMsgFn = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
type RecvMMsgFn =
    unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_sendmsg, c"sendmsg" as SendMsgFn; fd, message, flags) };
    sendmsg_by(fd, message, flags, kernel)
}

/// Serves [`sendmsg`]; `kernel` makes the kernel's call.
pub(crate) fn sendmsg_by(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
    kernel: impl Kernel,
) -> isize {
    if !is_open() {
        return kernel();
    }
    // SAFETY: plain data, which the program leaves alone during the call.
    let Some(header) = (unsafe { buffers::structure(message) }) else {
        return transfer::refused(fd, kernel);
    };
    let header = &header;
    let has_control = !header.msg_control.is_null() && header.msg_controllen > 0;
    let has_name = !header.msg_name.is_null() && header.msg_namelen > 0;
    if has_control && !datagrams::is_concerned(fd) {
        pass_on(header);
        return transfer::send_by_kernel(fd, flags & libc::MSG_DONTWAIT != 0, kernel);
    }
    if has_control || has_name {
        return send_to(fd, header, flags, kernel);
    }
    let Some(how) = send_flags(fd, flags) else { return kernel() };
    send_bytes(fd, header, how, flags, kernel)
}

#[inline]
fn send_bytes(fd: c_int, header: &msghdr, how: Send, flags: c_int, kernel: impl Kernel) -> isize {
    transfer::send(fd, how, Some(flags), Buffers::Many(header.msg_iov, header.msg_iovlen), kernel)
}

/// Tells the library about every descriptor that a message carries.
fn pass_on(header: &msghdr) {
    each_passed(header, |fd| tell(|library| library.passing(fd)));
}

/// Calls `passing` for every descriptor that a message carries. Control data that cannot be read,
/// or that is malformed, carries none: the kernel refuses such a message.
pub(crate) fn each_passed(header: &msghdr, mut passing: impl FnMut(c_int)) {
    let len = header.msg_controllen;
    let start = header.msg_control as usize;
    if buffers::accessible(start, len, buffers::Access::Read) < len {
        return;
    }
    let data_at = size_of::<cmsghdr>();
    let mut at = 0;
    while at + data_at <= len {
        // SAFETY: the whole of the control data is readable.
        let head = unsafe { ((start + at) as *const cmsghdr).read_unaligned() };
        if head.cmsg_len < data_at || head.cmsg_len > len - at {
            return;
        }
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            for index in 0..(head.cmsg_len - data_at) / size_of::<c_int>() {
                // SAFETY: `index` is below the number of descriptors within the control data.
                let fd =
                    unsafe { ((start + at + data_at) as *const c_int).add(index).read_unaligned() };
                passing(fd);
            }
        }
        at += head.cmsg_len.next_multiple_of(size_of::<usize>());
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_recvmsg, c"recvmsg" as RecvMsgFn; fd, message, flags) };
    recvmsg_by(fd, message, flags, kernel)
}

/// Serves [`recvmsg`]; `kernel` makes the kernel's call.
pub(crate) fn recvmsg_by(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    kernel: impl Kernel,
) -> isize {
    let Some(how) = recv_flags(fd, flags) else { return kernel() };
    match transfer::receive_route(fd) {
        Route::Plain => return took_in(kernel(), message),
        Route::Kernel(usage) => return took_in(counted(usage, kernel), message),
        Route::Datagrams(call) => {
            let flags = ReceiveFlags { how, given: Some(flags) };
            return receive_datagram(fd, call, message, flags, kernel);
        }
        Route::Stream(_) => {}
    }
    if !buffers::is_writable(message) {
        return transfer::refused(fd, kernel);
    }
    // SAFETY: the header is writable, as checked above, and so readable.
    let header = unsafe { message.read_unaligned() };
    let from_kernel = Cell::new(false);
    let serve = || {
        from_kernel.set(true);
        took_in(kernel(), message)
    };
    let mut beside = Beside::of(&header, flags);
    let buffers = Buffers::Many(header.msg_iov, header.msg_iovlen);
    let flags = ReceiveFlags { how, given: Some(flags) };
    let got = transfer::receive_noted(fd, flags, buffers, Some(&mut beside), serve);
    if !from_kernel.get() && got >= 0 {
        // At the end of the stream there is no sender.
        let name_of = (got > 0).then_some(fd);
        answer_header(name_of, message, &header, &beside);
        return took_in(got, message);
    }
    got
}

/// Receives a datagram into the buffers that the program's header names.
fn receive_datagram(
    fd: c_int,
    call: DatagramCall<'static>,
    message: *mut msghdr,
    flags: ReceiveFlags,
    kernel: impl Kernel,
) -> isize {
    if !buffers::is_writable(message) {
        return transfer::refused(fd, kernel);
    }
    // SAFETY: the header is writable, as checked above, and so readable.
    let mut header = unsafe { message.read_unaligned() };
    match receive_message(fd, call, &mut header, flags) {
        None => kernel(),
        Some(got) => {
            if got >= 0 {
                answer_message(message, &header);
            }
            got
        }
    }
}

/// Writes the fields of the header that a receiving call fills in.
fn answer_message(message: *mut msghdr, filled: &msghdr) {
    // SAFETY: the caller has checked that the header is writable; it may be unaligned.
    unsafe {
        if !filled.msg_name.is_null() {
            (&raw mut (*message).msg_namelen).write_unaligned(filled.msg_namelen);
        }
        (&raw mut (*message).msg_controllen).write_unaligned(filled.msg_controllen);
        (&raw mut (*message).msg_flags).write_unaligned(filled.msg_flags);
    }
}

/// Writes the fields that the kernel answers beside the bytes of a stream: the name of the peer of
/// `name_of`, and the control data.
fn answer_header(name_of: Option<c_int>, message: *mut msghdr, asked: &msghdr, beside: &Beside) {
    // SAFETY: zeroes are a valid address.
    let mut name: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    let mut name_len = 0;
    if !asked.msg_name.is_null() {
        name_len = name_of.map_or(0, |fd| peer_name(fd, &mut name));
        let copied = name_len.min(asked.msg_namelen as usize);
        if buffers::accessible(asked.msg_name as usize, copied, buffers::Access::Write) == copied {
            // SAFETY: `copied` bytes are writable, as checked above, and the name has at least as
            // many.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    (&raw const name).cast::<u8>(),
                    asked.msg_name.cast(),
                    copied,
                )
            };
        }
    }
    let mut header = *asked;
    if !asked.msg_name.is_null() {
        header.msg_namelen = name_len as libc::socklen_t;
    }
    beside.answer(&mut header);
    answer_message(message, &header);
}

/// Notes the descriptors that came with a message: they are new here, and other processes may hold
/// them.
#[inline]
fn took_in(got: isize, message: *const msghdr) -> isize {
    // SAFETY: the kernel has just written the header, which may be unaligned.
    if got >= 0 && unsafe { (&raw const (*message).msg_controllen).read_unaligned() } > 0 {
        // SAFETY: the kernel has just written the header, which may be unaligned.
        note_received(&unsafe { message.read_unaligned() });
    }
    got
}

#[cold]
fn note_received(header: &msghdr) {
    // SAFETY: the kernel has filled in `msg_controllen` bytes of control data.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !at.is_null() {
        // SAFETY: the C library's macros stay within the control data (cmsg(3)).
        let (head, data) = unsafe { (at.read_unaligned(), libc::CMSG_DATA(at).cast::<c_int>()) };
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            let count = (head.cmsg_len - size_of::<cmsghdr>()) / size_of::<c_int>();
            for index in 0..count {
                // SAFETY: `count` descriptors lie behind `data`.
                let fd = unsafe { data.add(index).read_unaligned() };
                crate::descriptors::opened(fd, crate::library::Origin::Unknown);
            }
        }
        // SAFETY: the C library's macros stay within the control data (cmsg(3)).
        at = unsafe { libc::CMSG_NXTHDR(header, at) };
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        unsafe { kernel!(SYS_sendmmsg, c"sendmmsg" as SendMMsgFn; fd, messages, count, flags) };
    sendmmsg_by(fd, messages, count, flags, kernel) as c_int
}

/// Serves [`sendmmsg`]; `kernel` makes the kernel's call.
pub(crate) fn sendmmsg_by(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    kernel: impl Kernel,
) -> isize {
    if is_open() {
        for index in 0..(count as usize).min(transfer::MESSAGES_MAX) {
            // SAFETY: plain data, which the program leaves alone during the call.
            let message = unsafe { buffers::structure(messages.wrapping_add(index)) };
            let Some(message) = message else { break };
            if !message.msg_hdr.msg_control.is_null() && message.msg_hdr.msg_controllen > 0 {
                pass_on(&message.msg_hdr);
            }
        }
    }
    match transfer::send_route(fd) {
        Route::Plain => kernel(),
        Route::Kernel(usage) => counted(usage, kernel),
        Route::Datagrams(_) => send_datagrams(fd, messages, count, flags).unwrap_or_else(kernel),
        Route::Stream(_) => {
            // The library has no `sendmmsg` for byte streams, so the kernel serves the call.
            home(fd, true);
            kernel()
        }
    }
}

/// Sends messages one after another, each through its session or through the kernel. Returns how
/// many were sent, or the first one's error; `None` if the kernel is to serve the whole call.
fn send_datagrams(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> Option<isize> {
    let count = (count as usize).min(transfer::MESSAGES_MAX);
    // SAFETY: plain data, which the program leaves alone during the call.
    unsafe { buffers::structures(messages, count) }?;
    for index in 0..count {
        // SAFETY: one of `count` messages, which are readable, as checked above.
        let message = unsafe { &mut *messages.add(index) };
        let sent = send_message(fd, &message.msg_hdr, flags).unwrap_or_else(|| {
            let header = (&raw const message.msg_hdr) as usize;
            let arguments = [fd as usize, header, flags as usize, 0, 0, 0];
            // SAFETY: the kernel checks the program's message.
            crate::errno::kernel(unsafe { raw::call(libc::SYS_sendmsg, arguments) })
        });
        if sent < 0 {
            // sendmmsg(2) reports an error only if no message was sent.
            return Some(if index > 0 { index as isize } else { sent });
        }
        if !buffers::is_writable(&raw mut message.msg_len) {
            return Some(if index > 0 { index as isize } else { sent });
        }
        message.msg_len = sent as c_uint;
    }
    Some(count as isize)
}

alias!(__sendmmsg = sendmmsg);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe {
        kernel!(SYS_recvmmsg, c"recvmmsg" as RecvMMsgFn; fd, messages, count, flags, limit)
    };
    recvmmsg_by(fd, messages, count, flags, limit, kernel) as c_int
}

/// Serves [`recvmmsg`]; `kernel` makes the kernel's call.
#[allow(clippy::too_many_arguments, reason = "those of the call that it serves")]
pub(crate) fn recvmmsg_by(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
    kernel: impl Kernel,
) -> isize {
    let got = match transfer::receive_route(fd) {
        Route::Plain => kernel(),
        Route::Kernel(usage) => counted(usage, kernel),
        Route::Datagrams(_) => {
            let got = receive_datagrams(fd, messages, count, flags, limit);
            return got.unwrap_or_else(kernel);
        }
        Route::Stream(_) => {
            // The library has no `recvmmsg` for byte streams, so the kernel serves the call.
            home(fd, true);
            kernel()
        }
    };
    if got > 0 && is_open() {
        for index in 0..got as usize {
            // SAFETY: the kernel has just written `got` messages, which may be unaligned.
            let message = unsafe { messages.wrapping_add(index).read_unaligned() };
            // `SCM_RIGHTS` travels in the control data.
            if message.msg_hdr.msg_controllen > 0 {
                note_received(&message.msg_hdr);
            }
        }
    }
    got
}

/// Writes what is left of a time limit of `whole` that began then (recvmmsg(2)). Returns true if
/// nothing is.
///
/// # Safety
/// `limit` must be writable.
unsafe fn is_spent(limit: *mut timespec, whole: Duration, begun: Instant) -> bool {
    let left = whole.saturating_sub(begun.elapsed());
    let (tv_sec, tv_nsec) = (left.as_secs() as i64, i64::from(left.subsec_nanos()));
    // SAFETY: the caller promises it.
    unsafe { limit.write(timespec { tv_sec, tv_nsec }) };
    left == Duration::ZERO
}

/// Receives datagrams one after another. As recvmmsg(2) documents, the time limit is checked only
/// after each datagram. Returns how many were received; `None` if the kernel is to serve the call.
fn receive_datagrams(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> Option<isize> {
    let count = (count as usize).min(transfer::MESSAGES_MAX);
    // SAFETY: plain data, which the program leaves alone during the call.
    unsafe { buffers::structures(messages, count) }?;
    let has_limit = !limit.is_null();
    if has_limit && !buffers::is_writable(limit) {
        return None;
    }
    // SAFETY: the time limit is writable, as checked above, and so readable.
    let limit_is = if has_limit { Some(span(unsafe { &*limit })?) } else { None };
    let begun = Instant::now();
    let mut flags = flags;
    let mut done = 0;
    while done < count {
        let each = flags & !libc::MSG_WAITFORONE;
        let how = datagrams::recv_flags(each)?;
        // SAFETY: `done` is below `count`.
        let message = unsafe { messages.add(done) };
        // An error after the first datagram is left for the next call (recvmmsg(2)).
        if !buffers::is_writable(message) || (done > 0 && raw::has_failed(fd)) {
            break;
        }
        // SAFETY: the message is writable, as checked above, and so readable.
        let mut header = unsafe { (*message).msg_hdr };
        let each = ReceiveFlags { how, given: Some(each) };
        let got = datagram_route(fd).and_then(|call| receive_message(fd, call, &mut header, each));
        // `None` means that the session has gone home meanwhile. Datagrams received so far are
        // returned, and the program's next call goes to the kernel.
        let got = got.or((done > 0).then_some(-1))?;
        if got < 0 {
            return Some(if done > 0 { done as isize } else { got });
        }
        // SAFETY: the message is writable, as checked above.
        unsafe {
            answer_message(&raw mut (*message).msg_hdr, &header);
            (*message).msg_len = got as c_uint;
        }
        done += 1;
        // `MSG_WAITFORONE` turns on `MSG_DONTWAIT` after the first datagram (recvmmsg(2)).
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        // SAFETY: the time limit is writable, as checked above.
        if limit_is.is_some_and(|span| unsafe { is_spent(limit, span, begun) }) {
            break;
        }
    }
    Some(done as isize)
}

fn span(limit: &timespec) -> Option<Duration> {
    let nanos = u32::try_from(limit.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(limit.tv_sec).ok()?, nanos))
}
