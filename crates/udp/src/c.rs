//! The C interface: `include/sojourn/udp.h` over the Rust one.
//!
//! Not here: anything but conversions. Pointers cannot be checked: they have to point to the
//! objects that the header names. No panic unwinds into C.

#![allow(unsafe_code, reason = "the C interface is given pointers")]

use crate::client::{Error, Socket};
use core::ffi::{CStr, c_char, c_int};
use core::net::SocketAddrV4;
use core::time::Duration;
use libc::{sockaddr_in, ssize_t};
use sojourn_ipc::rt::CallError;
use sojourn_ipc::{Address, ConnectError, Deadline, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`. Turns an error number, and a panic, into `errno` and the result `failed`.
fn guard<T>(failed: T, body: impl FnOnce() -> Result<T, c_int>) -> T {
    let number = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(number)) => number,
        Err(panic) => {
            // The payload of the panic is leaked, because its drop could panic once more.
            core::mem::forget(panic);
            libc::ENOTRECOVERABLE
        }
    };
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = number };
    failed
}

fn number(error: &Error) -> c_int {
    match error {
        Error::Refused(number) => *number,
        Error::TooLong => libc::EMSGSIZE,
        Error::Connect(ConnectError::NotFound(_)) => libc::ENOENT,
        Error::Connect(ConnectError::Permission(_)) => libc::EACCES,
        Error::Connect(ConnectError::System(_, error)) => error.raw_os_error(),
        Error::Connect(_) => libc::ECONNREFUSED,
        Error::Call(CallError::Timeout) => libc::EAGAIN,
        Error::Call(CallError::Disconnected(_)) => libc::EPIPE,
        Error::Call(CallError::System(number)) => *number,
        Error::Call(_) => libc::EPROTO,
    }
}

/// Reads the endpoint at `address`.
///
/// # Safety
/// `address` is null, or points to a `sockaddr_in`.
unsafe fn endpoint(address: *const sockaddr_in) -> Result<SocketAddrV4, c_int> {
    // SAFETY: the contract of this function, which the caller keeps.
    let address = unsafe { address.as_ref() }.ok_or(libc::EINVAL)?;
    if c_int::from(address.sin_family) != libc::AF_INET {
        return Err(libc::EAFNOSUPPORT);
    }
    let ip = u32::from_be(address.sin_addr.s_addr);
    Ok(SocketAddrV4::new(ip.into(), u16::from_be(address.sin_port)))
}

fn sockaddr(endpoint: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: endpoint.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*endpoint.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_udp_bind(
    server: *const c_char,
    local: *const sockaddr_in,
    wait: u32,
) -> *mut Socket {
    guard(core::ptr::null_mut(), || {
        let name = match server.is_null() {
            true => crate::SYSTEM,
            // SAFETY: not null, and so a string, by the header.
            false => unsafe { CStr::from_ptr(server) }.to_str().map_err(|_| libc::EINVAL)?,
        };
        let address = Address::parse(name).map_err(|_| libc::EINVAL)?;
        // SAFETY: null or an address, by the header.
        let local = unsafe { endpoint(local) }?;
        let ways = [Wait::Adaptive, Wait::Spin(None), Wait::Park, Wait::Yield];
        let wait = *ways.get(wait as usize).ok_or(libc::EINVAL)?;
        let socket = Socket::bind(address, local, wait).map_err(|error| number(&error))?;
        Ok(Box::into_raw(Box::new(socket)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_udp_local(socket: *const Socket, local: *mut sockaddr_in) -> c_int {
    guard(-1, || {
        // SAFETY: null or from `sj_udp_bind`, and null or room for an address, by the header.
        let (socket, local) = unsafe { (socket.as_ref(), local.as_mut()) };
        let (Some(socket), Some(local)) = (socket, local) else { return Err(libc::EINVAL) };
        *local = sockaddr(socket.local_addr());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_udp_sendto(
    socket: *mut Socket,
    data: *const u8,
    len: usize,
    to: *const sockaddr_in,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: null or from `sj_udp_bind`, used by one thread at a time, by the header.
        let socket = unsafe { socket.as_mut() }.ok_or(libc::EINVAL)?;
        let data = match (data.is_null(), len) {
            (_, 0) => &[],
            (true, _) => return Err(libc::EINVAL),
            // SAFETY: `len` readable bytes, by the header.
            (false, _) => unsafe { core::slice::from_raw_parts(data, len) },
        };
        // SAFETY: null or an address, by the header.
        socket.send_to(data, unsafe { endpoint(to) }?).map_err(|error| number(&error))?;
        Ok(len.cast_signed())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_udp_recvfrom(
    socket: *mut Socket,
    data: *mut u8,
    size: usize,
    from: *mut sockaddr_in,
    timeout_ns: i64,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: null or from `sj_udp_bind`, used by one thread at a time, by the header.
        let socket = unsafe { socket.as_mut() }.ok_or(libc::EINVAL)?;
        let buffer = match (data.is_null(), size) {
            (_, 0) => &mut [],
            (true, _) => return Err(libc::EINVAL),
            // SAFETY: room for `size` bytes, by the header.
            (false, _) => unsafe { core::slice::from_raw_parts_mut(data, size) },
        };
        let deadline = match timeout_ns {
            i64::MAX => Deadline::NEVER,
            ns => Deadline::after(Duration::from_nanos(u64::try_from(ns).unwrap_or(0))),
        };
        let received = socket.recv_from(buffer, deadline).map_err(|error| number(&error))?;
        // SAFETY: null or room for an address, by the header.
        if let Some(from) = unsafe { from.as_mut() } {
            *from = sockaddr(received.from);
        }
        Ok(received.len.cast_signed())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_udp_close(socket: *mut Socket) {
    if !socket.is_null() {
        // SAFETY: from `sj_udp_bind`, and not used any more, by the header.
        let socket = unsafe { Box::from_raw(socket) };
        guard((), move || {
            drop(socket);
            Ok(())
        });
    }
}
