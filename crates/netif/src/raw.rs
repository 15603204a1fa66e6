//! System calls for which `rustix` has no function: socket options by number, and messages with
//! control data of packet sockets.
//!
//! The calls do not go through the C library: in a program under Sojourn the preload library
//! replaces its functions and would call back into this crate. Not here: the meaning of the options
//! (`packet`).

use core::mem::MaybeUninit;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{Errno, Result};

/// Makes system call `number` and returns the kernel's result.
///
/// # Safety
/// As the system call.
#[inline]
unsafe fn call(number: libc::c_long, args: [usize; 5]) -> Result<usize> {
    let [a, b, c, d, e] = args;
    // SAFETY: the caller's contract.
    let result = unsafe { sojourn_syscall::call(number, [a, b, c, d, e, 0]) };
    if (-4095..0).contains(&result) {
        return Err(Errno::from_raw_os_error(-(result as i32)));
    }
    Ok(result as usize)
}

/// setsockopt(2). `T` is the option's type: plain data without padding.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &T,
) -> Result<()> {
    let at = core::ptr::from_ref(value) as usize;
    let args = [fd.as_raw_fd() as usize, level as usize, name as usize, at, size_of::<T>()];
    // SAFETY: the kernel reads as many bytes as the value has.
    unsafe { call(libc::SYS_setsockopt, args).map(drop) }
}

/// getsockopt(2) for options that are numbers; `EINVAL` if the kernel's value has another size.
pub(crate) fn option<T: Number>(fd: BorrowedFd<'_>, level: i32, name: i32) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as u32;
    let (at, len_at) = (value.as_mut_ptr() as usize, (&raw mut len) as usize);
    let args = [fd.as_raw_fd() as usize, level as usize, name as usize, at, len_at];
    // SAFETY: room for the value and for its length.
    unsafe { call(libc::SYS_getsockopt, args)? };
    if len as usize != size_of::<T>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: whole, and any bytes are a value of a type of numbers.
    Ok(unsafe { value.assume_init() })
}

/// Types for which any bytes are a valid value.
///
/// # Safety
/// Any bytes must be a valid value, and there must be no padding.
pub(crate) unsafe trait Number: Copy {}
// SAFETY: integers.
unsafe impl Number for i32 {}
// SAFETY: two integers of one size.
unsafe impl Number for libc::tpacket_stats {}

/// recvmsg(2).
///
/// # Safety
/// Every pointer in `message` must be valid for writing as many bytes as it says.
#[inline]
pub(crate) unsafe fn receive_message(
    fd: BorrowedFd<'_>,
    message: &mut libc::msghdr,
    flags: i32,
) -> Result<usize> {
    let at = core::ptr::from_mut(message) as usize;
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_recvmsg, [fd.as_raw_fd() as usize, at, flags as usize, 0, 0]) }
}

/// sendmsg(2).
///
/// # Safety
/// Every pointer in `message` must be valid for reading as many bytes as it says.
#[inline]
pub(crate) unsafe fn send_message(
    fd: BorrowedFd<'_>,
    message: &libc::msghdr,
    flags: i32,
) -> Result<usize> {
    let at = core::ptr::from_ref(message) as usize;
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_sendmsg, [fd.as_raw_fd() as usize, at, flags as usize, 0, 0]) }
}
