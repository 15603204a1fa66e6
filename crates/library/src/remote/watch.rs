//! The choice of the thread that sleeps for packets: a call that waits for them anyway, or the
//! thread that does nothing else.
//!
//! Not here: taking packets in (`net`), and sleeping (`io::sleep`, `ready::poll_sleep`,
//! `ready::set_wait`).
//!
//! # Theory of operation
//! A packet that wakes the thread first, and the call by way of it, costs a second wake-up; and a
//! thread that wakes up beside a call that spins takes somebody's processor. So the thread does not
//! look for packets while calls do: the packet sockets are in a set of their own, and the thread
//! hears of that set only while *it* watches. Taking the watch costs a system call, and so does
//! giving it back. So a call keeps the watch at its end, as the next call comes soon. A timer is
//! for the case that none comes: the thread takes the watch back when no call has looked for
//! [`PERIOD`].
//!
//! While calls look and none sleeps, no thread needs to be woken. Then the packet sockets are in no
//! set at all, which shortens a packet's way into its ring. The timer takes them out; a call that
//! is about to sleep puts them back, and so does the thread before it watches.
//!
//! Of several calls that sleep one watches; the turning thread wakes the others. When the watching
//! call leaves and others still sleep, the thread watches at once. Sets of the program contain the
//! set of packet sockets, so a call that waits in one hears of packets in any case.

use crate::host::lock::lock;
use crate::process::engine::Engine;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sojourn_shm::MovableFd;
use sojourn_shm::descriptor::of_program;
use std::sync::Mutex;

/// Calls that look for packets at least this often keep the thread from watching.
const PERIOD: Duration = Duration::from_millis(2);

/// The state of the choice.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The set of the packet sockets.
    packets: MovableFd,
    /// The set that the thread sleeps in.
    set: MovableFd,
    /// The data of the events of `packets` in `set`.
    data: u64,
    timer: MovableFd,
    /// Calls watch, not the thread. Changed under `sockets`.
    by_calls: AtomicBool,
    /// A call sleeps and watches.
    asleep: AtomicBool,
    /// The number of calls that sleep and do not watch.
    waiting: AtomicU32,
    /// The timer is set.
    ticks: AtomicBool,
    /// The time at which a call last looked for packets (microseconds).
    looked_at: AtomicU64,
    /// A call has slept since the timer last expired.
    has_slept: AtomicBool,
    sockets: Mutex<Sockets>,
}

/// The packet sockets, by number.
#[derive(Debug, Default)]
struct Sockets {
    numbers: Vec<i32>,
    /// Not all of them are in `packets`.
    are_out: bool,
}

impl Watch {
    /// Starts with the thread watching. `set`: the set that it sleeps in; its events carry `data`
    /// if there are packets, and `tick` if [`Watch::tick`] is due.
    pub(crate) fn new(
        engine: &Engine,
        set: MovableFd,
        data: u64,
        tick: u64,
    ) -> Result<Self, Errno> {
        let packets = engine.own.make(true, || epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = engine.own.make(true, || timerfd_create(TimerfdClockId::Monotonic, flags))?;
        epoll::add(&set, &packets, EventData::new_u64(data), EventFlags::IN)?;
        epoll::add(&set, &timer, EventData::new_u64(tick), EventFlags::IN)?;
        Ok(Self {
            packets,
            set,
            data,
            timer,
            by_calls: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            ticks: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
            has_slept: AtomicBool::new(false),
            sockets: Mutex::default(),
        })
    }

    /// Returns the set that the thread sleeps in.
    pub(crate) fn set(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Returns the number of the packet sockets' set, which is readable while there are packets.
    pub(crate) fn packets(&self) -> i32 {
        self.packets.number()
    }

    /// Adds a packet socket.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut sockets = lock(&self.sockets);
        // The socket is added even while the others are out: `take_out` removes only sockets that
        // could be added.
        epoll::add(&self.packets, fd, EventData::new_u64(0), EventFlags::IN)?;
        sockets.numbers.push(fd.as_raw_fd());
        Ok(())
    }

    /// Removes a packet socket.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let mut sockets = lock(&self.sockets);
        sockets.numbers.retain(|number| *number != fd.as_raw_fd());
        let _ = epoll::delete(&self.packets, fd);
    }

    /// Takes the packet sockets out of their set, because no thread sleeps for packets: see the
    /// head of the file.
    #[cold]
    fn take_out(&self) {
        let mut sockets = lock(&self.sockets);
        // A sleeping call has said so before it takes this lock, and puts the sockets back once it
        // has it.
        let somebody_sleeps =
            self.asleep.load(Ordering::SeqCst) || self.waiting.load(Ordering::SeqCst) > 0;
        if sockets.are_out || somebody_sleeps || !self.by_calls.load(Ordering::SeqCst) {
            return;
        }
        sockets.are_out = true;
        for fd in sockets.numbers.iter().filter_map(|number| of_program(*number)) {
            let _ = epoll::delete(&self.packets, fd);
        }
    }

    /// Puts the packet sockets back, because a thread is to be woken. Packets that came meanwhile
    /// show at once.
    fn put_in(&self, sockets: &mut Sockets) {
        if !sockets.are_out {
            return;
        }
        sockets.are_out = false;
        for fd in sockets.numbers.iter().filter_map(|number| of_program(*number)) {
            let added = epoll::add(&self.packets, fd, EventData::new_u64(0), EventFlags::IN);
            sockets.are_out |= matches!(added, Err(Errno::NOMEM | Errno::NOSPC));
        }
        if sockets.are_out {
            // There is no memory, or the user has as many watches as allowed (epoll_ctl(2)): the
            // thread looks by itself meanwhile, and tries again.
            self.start_ticking();
        }
    }

    /// Notes that an awake call has looked for packets, at `now` (microseconds).
    #[inline]
    pub(crate) fn looked(&self, now: u64) {
        let before = self.looked_at.load(Ordering::Relaxed);
        self.looked_at.store(now, Ordering::Relaxed);
        let by_calls = self.by_calls.load(Ordering::Relaxed);
        if by_calls && self.ticks.load(Ordering::Relaxed) {
            return;
        }
        // A second look within the period is likely the first of many; a single one changes
        // nothing.
        if by_calls || now.saturating_sub(before) < PERIOD.as_micros() as u64 {
            self.take();
        }
    }

    /// Gives the watch to the calls, unless a sleeping call relies on the thread.
    #[cold]
    fn take(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 && !self.asleep.load(Ordering::SeqCst) {
            return;
        }
        self.let_thread_watch(false);
        // SYNC: after `by_calls`; pairs with `begin_sleep`, which counts itself and then looks
        // there.
        if self.waiting.load(Ordering::SeqCst) > 0 && !self.asleep.load(Ordering::SeqCst) {
            return self.let_thread_watch(true);
        }
        self.start_ticking();
    }

    fn start_ticking(&self) {
        if !self.ticks.swap(true, Ordering::SeqCst) {
            self.set_timer();
        }
    }

    fn set_timer(&self) {
        let limit = Timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: limit };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Makes the thread hear of packets, or not any more. It hears at once of those that are there.
    #[cold]
    fn let_thread_watch(&self, does: bool) {
        let mut sockets = lock(&self.sockets);
        self.put_in(&mut sockets);
        if self.by_calls.load(Ordering::SeqCst) != does {
            return;
        }
        // SYNC: before the others' counts are looked at; pairs with `begin_sleep`.
        self.by_calls.store(!does, Ordering::SeqCst);
        let events = if does { EventFlags::IN } else { EventFlags::empty() };
        let _ = epoll::modify(&self.set, &self.packets, EventData::new_u64(self.data), events);
    }

    /// Begins the sleep of a call that waits for packets. Returns true if the call has to watch,
    /// that is, to sleep on [`Watch::packets`] as well. In any case the call must look once more
    /// before it sleeps, and pass the result to [`Watch::end_sleep`]. `may_watch`: the call can
    /// sleep on [`Watch::packets`].
    pub(crate) fn begin_sleep(&self, may_watch: bool) -> bool {
        self.has_slept.store(true, Ordering::Relaxed);
        if may_watch && !self.asleep.swap(true, Ordering::SeqCst) {
            self.let_thread_watch(false);
            return true;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.put_in(&mut lock(&self.sockets));
        // SYNC: after `waiting`; pairs with `end_sleep` of the call that watches, and with `take`.
        if !self.asleep.load(Ordering::SeqCst) {
            self.let_thread_watch(true);
        }
        false
    }

    /// Ends a call's sleep.
    pub(crate) fn end_sleep(&self, watches: bool) {
        if !watches {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        // SYNC: before `waiting` and `ticks`; pairs with `begin_sleep` and `tick`.
        self.asleep.store(false, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.let_thread_watch(true);
        } else if self.by_calls.load(Ordering::SeqCst) {
            self.start_ticking();
        }
    }

    /// Returns true if a call, or the thread, will look again in a moment.
    #[inline]
    pub(crate) fn will_look_again(&self) -> bool {
        self.by_calls.load(Ordering::Relaxed)
            && self.ticks.load(Ordering::Relaxed)
            && !self.asleep.load(Ordering::Relaxed)
    }

    /// Handles the timer's expiry at `now` (microseconds), on the thread. Returns true if the timer
    /// stays off, so that the thread has to look.
    pub(crate) fn tick(&self, now: u64) -> bool {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.ticks.store(false, Ordering::SeqCst);
        // SYNC: after `ticks`; pairs with `end_sleep`.
        if self.asleep.load(Ordering::SeqCst) || !self.by_calls.load(Ordering::SeqCst) {
            self.put_in(&mut lock(&self.sockets));
            return true;
        }
        let idle = now.saturating_sub(self.looked_at.load(Ordering::Relaxed));
        if idle >= PERIOD.as_micros() as u64 {
            self.let_thread_watch(true);
            return true;
        }
        self.start_ticking();
        if !self.has_slept.swap(false, Ordering::Relaxed) {
            self.take_out();
        }
        false
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
