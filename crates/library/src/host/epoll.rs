//! `epoll_ctl(2)`, `epoll_wait(2)` and their event bits, called without the C library.
//!
//! Not here: what sets mean for sessions (`ready::set`, `ready::sets`).

use crate::host::kernel;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

/// An event as `epoll_wait(2)` fills it in.
pub type EpollEvent = epoll::Event;

/// Event bits of `epoll_ctl(2)`. Those of `poll(2)` have the same values.
pub(crate) mod bit {
    pub(crate) const IN: u32 = 0x1;
    pub(crate) const PRI: u32 = 0x2;
    pub(crate) const OUT: u32 = 0x4;
    pub(crate) const ERR: u32 = 0x8;
    pub(crate) const HUP: u32 = 0x10;
    pub(crate) const NVAL: u32 = 0x20;
    pub(crate) const RDNORM: u32 = 0x40;
    pub(crate) const RDBAND: u32 = 0x80;
    pub(crate) const WRNORM: u32 = 0x100;
    pub(crate) const WRBAND: u32 = 0x200;
    pub(crate) const RDHUP: u32 = 0x2000;
    pub(crate) const EXCLUSIVE: u32 = 1 << 28;
    pub(crate) const ONESHOT: u32 = 1 << 30;
    pub(crate) const ET: u32 = 1 << 31;

    /// Bits reported for a descriptor that can be read.
    pub(crate) const INPUT: u32 = IN | RDNORM;
    /// Bits reported for a descriptor that can be written.
    pub(crate) const OUTPUT: u32 = OUT | WRNORM | WRBAND;
    /// Bits reported whether or not they were asked for.
    pub(crate) const ALWAYS: u32 = ERR | HUP;
}

/// Values of `op` of `epoll_ctl(2)`.
pub(crate) mod op {
    pub(crate) const ADD: i32 = 1;
    pub(crate) const DEL: i32 = 2;
    pub(crate) const MOD: i32 = 3;
}

/// An entry of a set's interest list (epoll(7)). `EPOLL_CTL_DEL` takes the default, which counts
/// for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    /// The events asked for, and how they are reported.
    pub(crate) events: u32,
    /// What the kernel reports beside the events.
    pub(crate) data: u64,
}

/// Calls `epoll_ctl(2)`.
pub(crate) fn control(epfd: i32, op: i32, fd: i32, interest: Interest) -> Result<(), Errno> {
    let (set, fd) = (kernel::at(epfd)?, kernel::at(fd)?);
    let flags = EventFlags::from_bits_retain(interest.events);
    let data = EventData::new_u64(interest.data);
    match op {
        op::ADD => epoll::add(set, fd, data, flags),
        op::DEL => epoll::delete(set, fd),
        _ => epoll::modify(set, fd, data, flags),
    }
}

/// Calls `epoll_pwait2(2)` or `epoll_wait(2)`, without a signal mask.
pub(crate) fn wait(
    epfd: i32,
    events: &mut [EpollEvent],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    epoll::wait(kernel::at(epfd)?, events, timeout.as_ref())
}
