//! Control data of a stream's messages: the kernel fills the program's control buffer, while the
//! library says how many bytes may be taken with it.
//!
//! Not here: control data of datagrams that the library receives itself (`datagrams`).

use crate::library::FromKernel;
use crate::raw;
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr};
use rustix::io::{Errno, IoSliceMut};

/// The control buffer of a `recvmsg`, and the kernel's answer in it.
pub(crate) struct Beside {
    control: *mut c_void,
    room: usize,
    /// `MSG_CMSG_CLOEXEC`, if the program asks for it.
    flags: c_int,
    came: ControlAnswer,
}

/// What the kernel answered about a control buffer.
struct ControlAnswer {
    /// The number of bytes in the buffer.
    len: usize,
    flags: c_int,
}

impl Beside {
    pub(crate) fn of(header: &msghdr, flags: c_int) -> Self {
        let room = if header.msg_control.is_null() { 0 } else { header.msg_controllen };
        let flags = flags & libc::MSG_CMSG_CLOEXEC;
        // The kernel returns that flag in `msg_flags`.
        let came = ControlAnswer { len: 0, flags };
        Self { control: header.msg_control, room, flags, came }
    }

    /// Receives into `buffers`, and control data into the program's control buffer. `call` makes
    /// `recvmsg`; its result is returned.
    pub(crate) fn receive(
        &mut self,
        buffers: &[iovec],
        flags: c_int,
        call: impl FnOnce(*mut msghdr, c_int) -> isize,
    ) -> isize {
        // SAFETY: zeroes are an empty header.
        let mut header: msghdr = unsafe { core::mem::zeroed() };
        header.msg_iov = buffers.as_ptr().cast_mut();
        header.msg_iovlen = buffers.len();
        header.msg_control = self.control;
        header.msg_controllen = self.room;
        let got = call(&raw mut header, flags | self.flags);
        if got >= 0 {
            self.came = ControlAnswer { len: header.msg_controllen, flags: header.msg_flags };
        }
        got
    }

    /// Writes the length of the control data and the flags into the program's header, as the kernel
    /// does.
    pub(crate) fn answer(&self, message: &mut msghdr) {
        (message.msg_controllen, message.msg_flags) = (self.came.len, self.came.flags);
    }
}

impl FromKernel for Beside {
    fn take(&mut self, fd: i32, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let peek = if peek { libc::MSG_PEEK } else { 0 };
        // SAFETY: an `IoSliceMut` has the layout of an `iovec`.
        let buffers = unsafe { core::slice::from_raw_parts(bufs.as_ptr().cast(), bufs.len()) };
        let got = self.receive(buffers, libc::MSG_DONTWAIT | peek, |header, flags| {
            let arguments = [fd as usize, header as usize, flags as usize, 0, 0, 0];
            // SAFETY: the header is valid; the kernel checks the program's pointers in it.
            unsafe { raw::call(libc::SYS_recvmsg, arguments) }
        });
        usize::try_from(got).map_err(|_| Errno::from_raw_os_error(-got as i32))
    }

    fn has_ended(&self) -> bool {
        self.came.len > 0 || self.came.flags & libc::MSG_CTRUNC != 0
    }
}
