//! `io_submit`: the kernel executes operations that concern a session, so the session goes home
//! before they are submitted, and stays in the kernel, as with io_uring.
//!
//! `IOCB_CMD_POLL` tells of sockets and pipes as `epoll` does, and the other commands read and
//! write them. The C library has no function of this name, so only calls by number come here;
//! those that libaio makes inline come with the setting `rewrite`. Not here: POSIX AIO (`stdio`),
//! io_uring (`rings`). Read io_submit(2) first.

use crate::buffers;
use crate::guard::tell;

/// The most operations that are looked at in one call, which is the default limit of the whole
/// system (`/proc/sys/fs/aio-max-nr`).
const OPERATIONS_MAX: usize = 1 << 16;

/// The beginning of `struct iocb` (include/uapi/linux/aio_abi.h).
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "the kernel's layout")]
struct Operation {
    data: u64,
    key_and_flags: [u32; 2],
    command: u16,
    priority: i16,
    fd: u32,
}

/// Sends home the sessions of the operations that io_submit(2) is given. Where the list cannot be
/// read any further, the kernel submits what comes before.
#[cold]
pub(crate) fn before_submit(list: usize, count: usize) {
    let list = list as *const *const Operation;
    for at in 0..count.min(OPERATIONS_MAX) {
        // SAFETY: plain data, which the program leaves alone during the call.
        let Some(operation) = (unsafe { buffers::structure(list.wrapping_add(at)) }) else {
            return;
        };
        // SAFETY: plain data, which the program leaves alone during the call.
        let Some(operation) = (unsafe { buffers::structure(operation) }) else { return };
        tell(|library| library.ring_uses(operation.fd as i32));
    }
}
