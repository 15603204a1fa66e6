//! The guest's FS and GS bases, as arch_prctl(2) sets and tells them. Not here: how the FS base
//! changes at each call (`enter`).

use crate::block::Frame;
use crate::raw;

/// The operations of arch_prctl(2).
const SET_GS: usize = 0x1001;
const SET_FS: usize = 0x1002;
const GET_FS: usize = 0x1003;
const GET_GS: usize = 0x1004;

/// Serves arch_prctl(2).
pub(crate) fn arch_prctl(frame: &mut Frame) -> isize {
    match frame.rdi {
        SET_FS => {
            // The kernel refuses addresses beyond user space, for which `wrfsbase` would fault.
            if frame.rsi >> 47 != 0 {
                return -(libc::EPERM as isize);
            }
            frame.fs = frame.rsi;
            0
        }
        GET_FS => told(frame, frame.fs),
        // The GS register is the loader's. A program whose text sets it is not loaded at all
        // (`Refusal::Gs`).
        SET_GS => -(libc::EPERM as isize),
        GET_GS => told(frame, 0),
        // SAFETY: the guest's own call.
        _ => unsafe { raw::call(libc::SYS_arch_prctl, frame.arguments()) },
    }
}

/// Stores a base where the guest wants it. The kernel, which stores the host's first, says whether
/// that is possible.
fn told(frame: &Frame, base: usize) -> isize {
    // SAFETY: the guest's own call.
    let result = unsafe { raw::call(libc::SYS_arch_prctl, frame.arguments()) };
    if result == 0 {
        // SAFETY: the kernel has just written there.
        unsafe { (frame.rsi as *mut usize).write_unaligned(base) };
    }
    result
}
