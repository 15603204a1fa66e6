//! The C library's functions that several files call, as types: one place for each prototype.
//!
//! A function that one file alone calls has its type there.

use crate::library::PollFd;
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr, nfds_t};

/// write(2).
pub(crate) type WriteFn = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize;
/// readv(2), writev(2).
pub(crate) type VectorFn = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> isize;
/// sendmsg(2).
pub(crate) type SendMsgFn = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> isize;
/// recvmsg(2).
pub(crate) type RecvMsgFn = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> isize;
/// poll(2).
pub(crate) type PollFn = unsafe extern "C-unwind" fn(*mut PollFd, nfds_t, c_int) -> c_int;
