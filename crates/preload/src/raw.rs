//! Bare system calls. They come back to no function of this library, and are no cancellation points.

use core::arch::asm;

/// Makes system call `number`; the result is the kernel's: negative for an error.
///
/// # Safety
/// As the system call.
#[inline]
pub(crate) unsafe fn call(number: i64, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the registers are those of the kernel's calling convention; the rest is the caller's.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The process's number, from the kernel, not from a copy.
#[inline]
pub(crate) fn process_number() -> i32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// `F_GETFD`: whether `fd` is open.
pub(crate) fn is_open(fd: i32) -> bool {
    // SAFETY: reads a flag.
    unsafe { call(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) >= 0 }
}

/// `O_NONBLOCK` of the description.
pub(crate) fn is_nonblocking(fd: i32) -> bool {
    // SAFETY: reads flags.
    let flags = unsafe { call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) };
    flags >= 0 && flags as i32 & libc::O_NONBLOCK != 0
}

/// Whether the next call on `fd` has an error to say. It is left for that call: one that has done something by then
/// tells that first.
pub(crate) fn has_failed(fd: i32) -> bool {
    let mut one = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: one descriptor, and no time to wait.
    let found = unsafe { call(libc::SYS_poll, [(&raw mut one) as usize, 1, 0, 0, 0, 0]) };
    found > 0 && one.revents & libc::POLLERR != 0
}
