//! The program's memory, read and written by the kernel: what is not mapped any more is an error,
//! not a fault. Not here: what is read and why (`super`).

use crate::raw;
use core::ffi::c_int;

/// Reads memory at `at` into `to`. Returns the number of bytes that could be read.
pub(super) fn read(at: u64, to: &mut [u8]) -> usize {
    raw::read_memory(at as usize, to)
}

/// Returns the bytes at `at`, by way of `to`; `None` if they cannot be read.
pub(super) fn copy<const N: usize>(at: u64, to: &mut [u8; N]) -> Option<[u8; N]> {
    (read(at, to) == N).then_some(*to)
}

/// Returns `len` bytes at `at`; `None` if they cannot be read.
pub(super) fn bytes(at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    (read(at, &mut bytes) == len).then_some(bytes)
}

/// Writes one byte at `at`. A byte is written whole: who reads it meanwhile finds the old one or
/// the new one.
pub(super) fn put(at: u64, mut byte: u8) -> Option<()> {
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let done = raw::transfer_memory(libc::SYS_process_vm_writev, &local, at as usize);
    (done == 1).then_some(())
}

/// Changes the protection of whole pages (mprotect(2)).
pub(super) fn protect(at: u64, len: u64, protection: c_int) -> Option<()> {
    let arguments = [at as usize, len as usize, protection as usize, 0, 0, 0];
    // SAFETY: code stays readable and executable; nothing else is protected here.
    (unsafe { raw::call(libc::SYS_mprotect, arguments) } == 0).then_some(())
}
