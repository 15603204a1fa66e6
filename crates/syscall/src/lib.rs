//! Bare system calls: they pass through no function of the C library.
//!
//! In a program under Sojourn the preload library replaces the C library's functions, and the
//! loader runs where there is none, so neither may call them. Every function is `inline(always)`:
//! it becomes a part of the crate that uses it, because the preload library's calls of other crates
//! need relocation, and some of its code runs before that. Not here: the meaning of the calls,
//! which those crates know.

#![allow(unsafe_code, reason = "a system call is an instruction")]

use core::arch::asm;
use core::mem::MaybeUninit;

/// Makes system call `number`. Returns the kernel's result: a negative error number if the call
/// failed.
///
/// # Safety
/// As for the system call itself.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the registers are those of the kernel's calling convention (syscall(2)); the caller
    // answers for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes system call `number`. Returns the kernel's result: a negative error number if the call
/// failed.
///
/// # Safety
/// As for the system call itself.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the registers are those of the kernel's calling convention (syscall(2)), which
    // changes none but the result's; the caller answers for the arguments.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    result
}

/// Returns what fstat(2) tells of a descriptor; `None` if it is not open.
#[inline(always)]
#[must_use]
pub fn status(fd: usize) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let arguments = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: `status` has room for the answer, and is zeroes if there is none.
    let (result, status) = unsafe { (call(libc::SYS_fstat, arguments), status.assume_init()) };
    (result == 0).then_some(status)
}

/// Returns the type and the permissions of a descriptor's file, as fstat(2) tells them; 0 if it is
/// not open.
#[inline(always)]
#[must_use]
pub fn mode(fd: usize) -> libc::mode_t {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let arguments = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: `status` has room for the answer, and is zeroes if there is none.
    unsafe {
        call(libc::SYS_fstat, arguments);
        status.assume_init_ref().st_mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn results_and_errors_are_the_kernels() {
        // SAFETY: no arguments, no effect.
        let number = unsafe { call(libc::SYS_getpid, [0; 6]) };
        assert_eq!(u32::try_from(number).unwrap(), std::process::id());
        // SAFETY: reads a flag of no descriptor.
        let error = unsafe { call(libc::SYS_fcntl, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(error, -(libc::EBADF as isize));
    }

    #[test]
    fn all_six_arguments_arrive() {
        let mut bytes = [0u8; 4];
        let (reader, writer) = std::io::pipe().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut offset = 1u64;
        let at = (&raw mut offset) as usize;
        let [from, to] = [file.as_raw_fd(), writer.as_raw_fd()].map(|fd| fd as usize);
        // SAFETY: the offset outlives the call, which writes into the pipe.
        let moved = unsafe { call(libc::SYS_splice, [from, at, to, 0, 3, 0]) };
        assert_eq!((moved, offset), (3, 4));
        let to = bytes.as_mut_ptr() as usize;
        let fd = reader.as_raw_fd() as usize;
        // SAFETY: there is room for the bytes.
        assert_eq!(unsafe { call(libc::SYS_read, [fd, to, 4, 0, 0, 0]) }, 3);
        assert_eq!(&bytes, b"ELF\0");
    }

    #[test]
    fn the_status_is_of_an_open_descriptor() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let status = status(reader.as_raw_fd() as usize).unwrap();
        assert_eq!(status.st_mode & libc::S_IFMT, libc::S_IFIFO);
        assert_eq!(mode(reader.as_raw_fd() as usize), status.st_mode);
        assert!(super::status(usize::MAX).is_none());
        assert_eq!(mode(usize::MAX), 0);
    }
}
