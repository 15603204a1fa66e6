//! Who sleeps for packets: a call that waits for them anyway, or the thread that does nothing else.
//!
//! Not here: taking packets (`net`), sleeping (`sleep`, `poll_sleep`, `set_wait`).
//!
//! # Theory of operation
//! A packet that wakes the thread first, and the call by way of it, costs a second wake-up; and a
//! thread that is woken beside a call that spins takes the processor from somebody. So while calls
//! look for packets the thread does not: the packet sockets are in a set of their own, and of that
//! set the thread hears only while *it* watches. Taking the watch, and giving it back, is a system
//! call each; so it is not given back at the end of a call, as the next one comes soon. A timer
//! sees to what happens if none comes: the thread takes the watch back when no call has looked for
//! [`PERIOD`].
//!
//! And while calls look and none sleeps, nobody needs to be woken: then the packet sockets are in
//! no set at all, and a packet's way into its ring is shorter. The timer takes them out; whoever is
//! about to sleep, and the thread before it watches, puts them back.
//!
//! Of several calls that sleep, one watches; the others are woken by whoever turns the pump. When
//! the one leaves and others still sleep the thread watches at once. Sets of the program contain
//! the set of packet sockets, so who waits in them hears of packets in any case.

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
use sojourn_shm::Held;
use sojourn_shm::descriptor::of_program;
use std::sync::Mutex;

/// Calls that look for packets at least so often keep the thread from it.
const PERIOD: Duration = Duration::from_millis(2);

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The packet sockets.
    packets: Held,
    /// What the thread sleeps in.
    set: Held,
    /// Of `packets` in `set`.
    data: u64,
    timer: Held,
    /// The thread does not watch. Changed under `sockets`.
    by_calls: AtomicBool,
    /// A call sleeps and watches.
    asleep: AtomicBool,
    /// Calls that sleep and do not watch.
    waiting: AtomicU32,
    /// The timer is set.
    ticks: AtomicBool,
    /// When a call last looked for packets (microseconds).
    looked_at: AtomicU64,
    /// A call has slept since the timer last went off.
    has_slept: AtomicBool,
    sockets: Mutex<Sockets>,
}

/// The packet sockets, by number.
#[derive(Debug, Default)]
struct Sockets {
    numbers: Vec<i32>,
    /// None of them is in `packets`, or not every one.
    are_out: bool,
}

impl Watch {
    /// The thread watches. `set`: what it sleeps in; its events have that `data` if there are
    /// packets, and `tick` if [`Watch::tick`] is to be called.
    pub(crate) fn new(engine: &Engine, set: Held, data: u64, tick: u64) -> Result<Self, Errno> {
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

    /// What the thread sleeps in.
    pub(crate) fn set(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Readable while there are packets.
    pub(crate) fn packets(&self) -> i32 {
        self.packets.number()
    }

    /// One more packet socket.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut sockets = lock(&self.sockets);
        // Also while the others are not: only those that could be put in are taken out.
        epoll::add(&self.packets, fd, EventData::new_u64(0), EventFlags::IN)?;
        sockets.numbers.push(fd.as_raw_fd());
        Ok(())
    }

    /// One less.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let mut sockets = lock(&self.sockets);
        sockets.numbers.retain(|number| *number != fd.as_raw_fd());
        let _ = epoll::delete(&self.packets, fd);
    }

    /// Nobody sleeps for packets: see the head of this file.
    #[cold]
    fn take_out(&self) {
        let mut sockets = lock(&self.sockets);
        // Who sleeps has said so before taking the lock, and puts them back once it has it.
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

    /// Somebody is to be woken. A packet that has come meanwhile shows at once.
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
            // No memory for it, or as many watches as the user may have: the thread looks instead,
            // and tries again.
            self.start_ticking();
        }
    }

    /// A call has looked for packets at `now` (microseconds), awake.
    #[inline]
    pub(crate) fn looked(&self, now: u64) {
        let before = self.looked_at.load(Ordering::Relaxed);
        self.looked_at.store(now, Ordering::Relaxed);
        let by_calls = self.by_calls.load(Ordering::Relaxed);
        if by_calls && self.ticks.load(Ordering::Relaxed) {
            return;
        }
        // The first of many, perhaps: one that stands alone changes nothing.
        if by_calls || now.saturating_sub(before) < PERIOD.as_micros() as u64 {
            self.take();
        }
    }

    /// The calls watch from now on, unless somebody relies on the thread.
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

    /// The thread hears of packets, or does not any more. If there are some it hears of them at
    /// once.
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

    /// A call is about to sleep for packets among others. True: it has to watch, that is to sleep
    /// on [`Watch::packets`] as well. In any case it must look once more before it sleeps, and call
    /// [`Watch::end_sleep`] with the answer. `may_watch`: it can sleep on those.
    pub(crate) fn begin_sleep(&self, may_watch: bool) -> bool {
        self.has_slept.store(true, Ordering::Relaxed);
        if may_watch && !self.asleep.swap(true, Ordering::SeqCst) {
            self.let_thread_watch(false);
            return true;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.put_in(&mut lock(&self.sockets));
        // SYNC: after `waiting`; pairs with `end_sleep` of the one that watches, and with `take`.
        if !self.asleep.load(Ordering::SeqCst) {
            self.let_thread_watch(true);
        }
        false
    }

    /// It is awake.
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

    /// Whether there will be another look in a moment, by a call or by the thread.
    #[inline]
    pub(crate) fn looks_again(&self) -> bool {
        self.by_calls.load(Ordering::Relaxed)
            && self.ticks.load(Ordering::Relaxed)
            && !self.asleep.load(Ordering::Relaxed)
    }

    /// The timer has gone off, at `now` (microseconds): for the thread. True: it does not go off
    /// again by itself, so the thread has to look.
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
