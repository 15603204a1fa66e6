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
        GET_FS => {
            // SAFETY: the guest's memory, as for the kernel.
            unsafe { (frame.rsi as *mut usize).write_unaligned(frame.fs) };
            0
        }
        // The GS register is the loader's. A program whose text sets it is not loaded at all
        // (`Refusal::Gs`).
        SET_GS => -(libc::EPERM as isize),
        GET_GS => {
            // SAFETY: the guest's memory, as for the kernel.
            unsafe { (frame.rsi as *mut usize).write_unaligned(0) };
            0
        }
        // SAFETY: the guest's own call.
        _ => unsafe { raw::call(libc::SYS_arch_prctl, frame.arguments()) },
    }
}
