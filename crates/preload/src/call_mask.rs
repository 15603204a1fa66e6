//! The signal mask that a call brings with it: ppoll(2) and its relatives. Not here: what becomes
//! of signals that it lets through (`signals`, `pause`).

use crate::{buffers, relocation};

/// Bytes of the kernel's set.
const SIZE: usize = size_of::<u64>();

/// Returns the mask with which the kernel makes a call that has one of its own.
pub(crate) fn of(number: i64, arguments: &[usize; 6]) -> Option<u64> {
    let [set, size] = match number {
        libc::SYS_rt_sigsuspend => [arguments[0], arguments[1]],
        libc::SYS_ppoll => [arguments[3], arguments[4]],
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => [arguments[4], arguments[5]],
        libc::SYS_pselect6 if arguments[5] != 0 => {
            relocation::all();
            // SAFETY: plain data, which the program leaves alone during the call.
            unsafe { buffers::structure(arguments[5] as *const [usize; 2]) }?
        }
        _ => return None,
    };
    if set == 0 || size != SIZE {
        return None;
    }
    relocation::all();
    // SAFETY: plain data, which the program leaves alone during the call.
    unsafe { buffers::structure(set as *const u64) }
}
