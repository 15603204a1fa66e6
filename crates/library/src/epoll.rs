//! `epoll_ctl(2)` and its events, as the library makes and passes on such calls.
//!
//! Not here: what sets mean for sessions (`set`, `sets`).

use crate::kernel;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

/// An event as `epoll_wait(2)` gives it.
pub type EpollEvent = epoll::Event;

/// Values of `op` of `epoll_ctl(2)`.
pub(crate) mod op {
    pub(crate) const ADD: i32 = 1;
    pub(crate) const DEL: i32 = 2;
    pub(crate) const MOD: i32 = 3;
}

/// `epoll_ctl(2)`.
pub(crate) fn control(epfd: i32, op: i32, fd: i32, form: (u32, u64)) -> Result<(), Errno> {
    let (set, fd) = (kernel::at(epfd)?, kernel::at(fd)?);
    let (flags, data) = (EventFlags::from_bits_retain(form.0), EventData::new_u64(form.1));
    match op {
        op::ADD => epoll::add(set, fd, data, flags),
        op::DEL => epoll::delete(set, fd),
        _ => epoll::modify(set, fd, data, flags),
    }
}

/// `epoll_wait(2)`.
pub(crate) fn wait(
    epfd: i32,
    events: &mut [EpollEvent],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    epoll::wait(kernel::at(epfd)?, events, timeout.as_ref())
}
