//! One `epoll_wait(2)` of the program's, as its rounds and pauses see it.
//!
//! Not here: rounds (`set_round`), pauses (`set_wait`).

use crate::host::Host;
use crate::host::Interrupt;
use crate::host::epoll::EpollEvent;
use crate::ready::set_readiness::ReadinessSource;
use core::slice::SliceIndex;
use core::time::Duration;
use rustix::io::Errno;
use sojourn_shm::Deadline;
use sojourn_shm::wait::Wait;

/// The longest time between two questions to the kernel while sessions are busy.
pub(crate) const ASK_INTERVAL_NS: u64 = 32_000;
/// One call.
pub(crate) struct Call<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) source: &'a dyn ReadinessSource,
    pub(crate) epfd: i32,
    pub(crate) events: &'a mut [EpollEvent],
    /// The program's timeout, and the time at which it is over.
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Deadline,
    pub(crate) mask: Option<u64>,
    /// Returns the way to wait; called once in the life of a set.
    pub(crate) wait: &'a dyn Fn() -> Wait,
}

impl Call<'_> {
    /// Returns true if a handler that ran since the pause began ends the call. With a mask only the
    /// kernel knows which handlers ran while the mask held.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.mask.is_none() && self.host.interrupt() != Interrupt::None
    }

    /// Calls the kernel's `epoll_wait`, with that part of the events.
    pub(crate) fn ask(
        &mut self,
        part: impl SliceIndex<[EpollEvent], Output = [EpollEvent]>,
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        self.host.epoll_wait(self.epfd, &mut self.events[part], timeout, mask)
    }
}

/// Returns the end of a timeout that begins now.
pub(crate) fn deadline(timeout: Option<Duration>) -> Deadline {
    match timeout {
        None => Deadline::NEVER,
        Some(Duration::ZERO) => Deadline::NOW,
        Some(timeout) => Deadline::after(timeout),
    }
}
