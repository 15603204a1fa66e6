//! The signal mask that a call brings with it: ppoll(2) and its relatives, also of io_uring(7) and
//! kernel AIO. Not here: what becomes of signals that it lets through (`signals`, `pause`).

use crate::{buffers, relocation};

/// Bytes of the kernel's set.
const SIZE: usize = size_of::<u64>();

/// The number of io_pgetevents(2), which `libc` does not define everywhere.
pub(crate) const IO_PGETEVENTS: i64 = if cfg!(target_arch = "x86_64") { 333 } else { 292 };
/// `IORING_ENTER_GETEVENTS`, without which the call does not wait.
const WAITS: usize = 1;
/// `IORING_ENTER_EXT_ARG`: the mask is in a structure. With `IORING_ENTER_EXT_ARG_REG` that is in
/// memory of the ring's.
const IN_STRUCTURE: usize = 1 << 3;
const IN_RING: usize = 1 << 6;

/// Returns the addresses of the mask and its size that io_uring_enter(2) is given.
fn of_ring(arguments: &[usize; 6]) -> Option<[usize; 2]> {
    let [_, _, _, flags, at, size] = *arguments;
    match flags & (WAITS | IN_STRUCTURE | IN_RING) {
        WAITS => Some([at, size]),
        flags if flags == WAITS | IN_STRUCTURE => {
            relocation::all();
            // SAFETY: plain data, which the program leaves alone during the call.
            let [set, size] = unsafe { buffers::structure(at as *const [u64; 2]) }?;
            Some([set as usize, size as u32 as usize])
        }
        _ => None,
    }
}

/// Returns the mask with which the kernel makes a call that has one of its own.
pub(crate) fn of(number: i64, arguments: &[usize; 6]) -> Option<u64> {
    let [set, size] = match number {
        libc::SYS_rt_sigsuspend => [arguments[0], arguments[1]],
        libc::SYS_ppoll => [arguments[3], arguments[4]],
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => [arguments[4], arguments[5]],
        libc::SYS_pselect6 | IO_PGETEVENTS if arguments[5] != 0 => {
            relocation::all();
            // SAFETY: plain data, which the program leaves alone during the call.
            unsafe { buffers::structure(arguments[5] as *const [usize; 2]) }?
        }
        libc::SYS_io_uring_enter => of_ring(arguments)?,
        _ => return None,
    };
    if set == 0 || size != SIZE {
        return None;
    }
    relocation::all();
    // SAFETY: plain data, which the program leaves alone during the call.
    unsafe { buffers::structure(set as *const u64) }
}
