//! The protocol library's interface, in one place.

pub(crate) use standin::*;

/// TEMPORARY: same names, all sessions stay in the kernel.
mod standin {
    #![allow(dead_code, unused_variables, reason = "stand-in until the library crate compiles")]
    use core::time::Duration;
    use rustix::fd::BorrowedFd;
    use rustix::io::{Errno, IoSlice, IoSliceMut};
    pub(crate) use sojourn_session::ReasonT;

    pub(crate) struct Library(u8);
    static LIBRARY: Library = Library(0);
    pub(crate) fn library() -> &'static Library {
        &LIBRARY
    }
    pub(crate) enum Origin {
        Fresh,
        Unknown,
    }
    pub(crate) enum SocketOption {
        Timeouts,
        Binding,
    }
    #[derive(Clone, Copy, Default)]
    pub(crate) struct Recv {
        pub(crate) peek: bool,
        pub(crate) wait_all: bool,
        pub(crate) dont_wait: bool,
    }
    #[derive(Clone, Copy, Default)]
    pub(crate) struct Send {
        pub(crate) dont_wait: bool,
    }
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Interrupt {
        None,
        Restart,
        Break,
    }
    pub(crate) trait Host: Sync {
        fn wait_begins(&self);
        fn wait_ends(&self);
        fn interrupt(&self) -> Interrupt;
        fn stdio_uses(&self, fd: i32) -> bool;
    }
    pub(crate) enum Path<'a> {
        Plain,
        Kernel(Use<'a>),
        Session(Call<'a>),
    }
    pub(crate) struct Use<'a>(&'a Library);
    impl Use<'_> {
        pub(crate) fn done(self, result: isize) {}
    }
    impl Drop for Use<'_> {
        fn drop(&mut self) {
            core::hint::black_box(1);
        }
    }
    pub(crate) struct Call<'a>(&'a Library);
    impl Call<'_> {
        pub(crate) fn recv(
            &self,
            bufs: &mut [IoSliceMut<'_>],
            how: Recv,
        ) -> Option<Result<usize, Errno>> {
            None
        }
        pub(crate) fn send(&self, bufs: &[IoSlice<'_>], how: Send) -> Option<Result<usize, Errno>> {
            None
        }
        pub(crate) fn send_file(
            &self,
            file: BorrowedFd<'_>,
            offset: Option<&mut u64>,
            count: usize,
        ) -> Option<Result<usize, Errno>> {
            None
        }
    }
    #[derive(Clone, Copy)]
    #[repr(C)]
    pub(crate) struct PollFd {
        pub(crate) fd: i32,
        pub(crate) events: i16,
        pub(crate) revents: i16,
    }
    #[derive(Clone, Copy)]
    #[repr(C, packed)]
    pub(crate) struct EpollEvent {
        pub(crate) events: u32,
        pub(crate) data: u64,
    }
    fn span(limit: Option<Duration>) -> Option<libc::timespec> {
        limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        })
    }
    fn give(result: isize) -> Result<usize, Errno> {
        if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
    }
    impl Library {
        pub(crate) fn set_host(&self, host: &'static dyn Host) {}
        pub(crate) fn reading(&self, fd: i32) -> Path<'_> {
            if fd % 2 == 0 { Path::Plain } else { Path::Kernel(Use(self)) }
        }
        pub(crate) fn writing(&self, fd: i32) -> Path<'_> {
            if fd % 2 == 0 { Path::Plain } else { Path::Kernel(Use(self)) }
        }
        pub(crate) fn opened(&self, fd: i32, origin: Origin) {}
        pub(crate) fn closing(&self, fd: i32) {}
        pub(crate) fn replacing(&self, fd: i32) {}
        pub(crate) fn duplicated(&self, old: i32, new: i32) {}
        pub(crate) fn closing_range(&self, first: u32, last: u32) {}
        pub(crate) fn next_own(&self, from: u32) -> Option<u32> {
            None
        }
        pub(crate) fn waits_for(&self, fd: i32) -> bool {
            false
        }
        pub(crate) fn is_own(&self, fd: i32) -> bool {
            false
        }
        pub(crate) fn go_home(&self, fd: i32, reason: ReasonT, stay: bool) {}
        pub(crate) fn all_home(&self, reason: ReasonT, forbid: bool) {}
        pub(crate) fn passing(&self, fd: i32) {}
        pub(crate) fn before_fork(&self) {}
        pub(crate) fn after_fork_parent(&self) {}
        pub(crate) fn after_fork_child(&self) {}
        pub(crate) fn before_exec(&self) {}
        pub(crate) fn before_vfork(&self) {}
        pub(crate) fn flags_changed(&self, fd: i32) {}
        pub(crate) fn option_changed(&self, fd: i32, option: SocketOption) {}
        pub(crate) fn input_queue(&self, fd: i32) -> Option<usize> {
            None
        }
        pub(crate) fn output_queue(&self, fd: i32) -> Option<usize> {
            None
        }
        pub(crate) fn poll(
            &self,
            fds: &mut [PollFd],
            timeout: Option<Duration>,
            mask: Option<u64>,
        ) -> Result<usize, Errno> {
            Err(Errno::NOSYS)
        }
        pub(crate) fn epoll_made(&self, epfd: i32) {}
        pub(crate) fn epoll_ctl(
            &self,
            epfd: i32,
            op: i32,
            fd: i32,
            event: Option<&EpollEvent>,
        ) -> Result<(), Errno> {
            let event = event.map_or(0, |event| event as *const _ as usize);
            let arguments = [epfd as usize, op as usize, fd as usize, event, 0, 0];
            // SAFETY: stand-in.
            give(unsafe { crate::raw::call(libc::SYS_epoll_ctl, arguments) }).map(|_| ())
        }
        pub(crate) fn epoll_wait(
            &self,
            epfd: i32,
            events: &mut [EpollEvent],
            timeout: Option<Duration>,
            mask: Option<u64>,
        ) -> Result<usize, Errno> {
            let span = span(timeout);
            let span = span.as_ref().map_or(0, |span| span as *const _ as usize);
            let mask = mask.as_ref().map_or(0, |mask| mask as *const _ as usize);
            let arguments =
                [epfd as usize, events.as_mut_ptr() as usize, events.len(), span, mask, 8];
            // SAFETY: stand-in.
            give(unsafe { crate::raw::call(libc::SYS_epoll_pwait2, arguments) })
        }
    }
}
