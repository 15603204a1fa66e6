//! A set of the kernel's with sessions that are no sessions, for the tests of `set` and `set_wait`:
//! real descriptors, a real inbox, and counters in place of rings.

use crate::host::epoll::{EpollEvent, Interest, bit, op};
use crate::host::{Host, Interrupt};
use crate::ready::set::Set;
use crate::ready::set_call::Call;
use crate::ready::set_call::deadline;
use crate::ready::set_readiness::{ReadinessSource, RingReadiness};
use crate::ready::set_round::Answer;
use crate::ready::set_state::event;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use core::time::Duration;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use sojourn_shm::wait::Wait;
use sojourn_shm::{Access, NewSegment, Segment};
use sojourn_stream::{Inbox, SlotNumber};
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Longer than any test may wait for an event that must come.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// One fake session: its descriptor is one end of a socket pair.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) end: UnixStream,
    pub(crate) peer: UnixStream,
    pub(crate) slot: SlotNumber,
    pub(crate) bytes: AtomicU32,
    pub(crate) is_full: AtomicBool,
    pub(crate) in_kernel: AtomicBool,
    pub(crate) kernel_events: AtomicU32,
    armed_input: AtomicBool,
    armed_output: AtomicBool,
}

impl Fake {
    pub(crate) fn fd(&self) -> i32 {
        self.end.as_raw_fd()
    }
}

/// A host that records the questions it gets, and whose handlers the test runs by hand.
#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    pub(crate) asks: AtomicU32,
    pub(crate) masked: AtomicU32,
    pub(crate) interrupt: AtomicBool,
    /// The kernel call made with a mask was cut short by a signal.
    pub(crate) cuts_masked: AtomicBool,
}

impl Host for FakeHost {
    fn wait_begins(&self) {}
    fn wait_ends(&self) {}
    fn interrupt(&self) -> Interrupt {
        if self.interrupt.load(Ordering::SeqCst) { Interrupt::Restart } else { Interrupt::None }
    }
    fn stdio_uses(&self, _fd: i32) -> bool {
        false
    }
    fn close(&self, _fd: i32) {}
    fn epoll_wait(
        &self,
        epfd: i32,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        self.asks.fetch_add(1, Ordering::SeqCst);
        if mask.is_some() {
            self.masked.fetch_add(1, Ordering::SeqCst);
            if self.cuts_masked.load(Ordering::SeqCst) {
                return Err(Errno::INTR);
            }
        }
        crate::host::epoll::wait(epfd, events, timeout)
    }
}

/// A set, its sessions and their inbox.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) epoll: OwnedFd,
    pub(crate) set: Set,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) host: FakeHost,
    pub(crate) wait: Wait,
    pub(crate) all: Vec<Fake>,
    /// Before each look at the inbox somebody has set a bit there that means nothing.
    pub(crate) is_flooded: AtomicBool,
    by_fd: HashMap<i32, usize>,
}

pub(crate) fn inbox() -> Arc<Inbox> {
    let NewSegment { mapping, .. } =
        Segment::create("test", Inbox::LEN, Access::ReadWrite).unwrap();
    let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    Arc::new(Inbox::new(mapping, event(), event()).unwrap())
}

impl World {
    /// A set with nothing registered, and sessions to be.
    pub(crate) fn new(sessions: u32, wait: Wait) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let set = Set::default();
        set.open(epoll.as_raw_fd());
        let fake = |slot| {
            let (end, peer) = UnixStream::pair().unwrap();
            Fake {
                end,
                peer,
                slot: SlotNumber(slot),
                bytes: AtomicU32::new(0),
                is_full: AtomicBool::new(false),
                in_kernel: AtomicBool::new(false),
                kernel_events: AtomicU32::new(0),
                armed_input: AtomicBool::new(false),
                armed_output: AtomicBool::new(false),
            }
        };
        let all: Vec<Fake> = (0..sessions).map(fake).collect();
        let by_fd = all.iter().enumerate().map(|(at, fake)| (fake.fd(), at)).collect();
        Self {
            epoll,
            set,
            inbox: inbox(),
            host: FakeHost::default(),
            wait,
            all,
            is_flooded: AtomicBool::new(false),
            by_fd,
        }
    }

    /// As `new`, all sessions registered for `events` with their index as data, and joined.
    pub(crate) fn joined(sessions: u32, wait: Wait, events: u32) -> Self {
        let world = Self::new(sessions, wait);
        for at in 0..world.all.len() {
            world.control(op::ADD, at, events).unwrap();
            if events & bit::ONESHOT != 0 {
                // One-shot registrations join after they have been changed once.
                assert!(!world.set.watch(world.all[at].fd()));
                world.control(op::MOD, at, events).unwrap();
            }
            assert!(world.join(at));
        }
        world
    }

    pub(crate) fn control(&self, op: i32, at: usize, events: u32) -> Result<(), Errno> {
        self.control_fd(op, self.all[at].fd(), (events, at as u64))
    }

    pub(crate) fn control_fd(&self, op: i32, fd: i32, form: (u32, u64)) -> Result<(), Errno> {
        let interest = Interest { events: form.0, data: form.1 };
        self.set.change(self, self.epoll.as_raw_fd(), op, fd, interest).map(|_| ())
    }

    pub(crate) fn join(&self, at: usize) -> bool {
        self.set.join(self.all[at].fd(), &self.inbox, self.all[at].slot)
    }

    /// The peer writes a byte.
    pub(crate) fn publish(&self, at: usize) {
        let fake = &self.all[at];
        fake.bytes.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if fake.armed_input.swap(false, Ordering::SeqCst) {
            self.inbox.post_ready(fake.slot);
        }
    }

    /// The peer reads.
    pub(crate) fn make_room(&self, at: usize) {
        let fake = &self.all[at];
        fake.is_full.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if fake.armed_output.swap(false, Ordering::SeqCst) {
            self.inbox.post_ready(fake.slot);
        }
    }

    /// The program reads all there is.
    pub(crate) fn consume(&self, at: usize) -> u32 {
        self.all[at].bytes.swap(0, Ordering::SeqCst)
    }

    /// Waits; returns the events and data that came.
    pub(crate) fn wait(
        &self,
        room: usize,
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<Vec<(u32, u64)>, Errno> {
        let mut events = vec![event(0, 0); room];
        let found = self.wait_into(&mut events, timeout, mask)?;
        let form = |event: &EpollEvent| ({ event.flags }.bits(), { event.data }.u64());
        Ok(events[..found].iter().map(form).collect())
    }

    pub(crate) fn wait_into(
        &self,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let wait = || self.wait;
        self.set.wait(&mut self.call(events, timeout, mask, &wait))
    }

    /// Returns the data that a waiter reports whose pause has ended in this way.
    pub(crate) fn after_pause(
        &self,
        events: &mut [EpollEvent],
        since: u64,
        answer: Answer,
    ) -> Vec<u64> {
        let wait = || self.wait;
        let mut call = self.call(events, None, None, &wait);
        let found = self.set.after_pause(&mut call, since, answer).unwrap();
        events[..found].iter().map(|event| { event.data }.u64()).collect()
    }

    fn call<'a>(
        &'a self,
        events: &'a mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<u64>,
        wait: &'a dyn Fn() -> Wait,
    ) -> Call<'a> {
        let (host, epfd, deadline) = (&self.host, self.epoll.as_raw_fd(), deadline(timeout));
        Call { host, source: self, epfd, events, timeout, deadline, mask, wait }
    }

    pub(crate) fn now(&self) -> Vec<(u32, u64)> {
        self.wait(64, Some(Duration::ZERO), None).unwrap()
    }

    fn fake(&self, fd: i32) -> &Fake {
        &self.all[self.by_fd[&fd]]
    }
}

impl ReadinessSource for World {
    fn kernel_decides_room(&self, fd: i32) -> bool {
        self.fake(fd).in_kernel.load(Ordering::SeqCst)
    }

    fn ring(&self, fd: i32, _wanted: u32) -> RingReadiness {
        let fake = self.fake(fd);
        let in_kernel = fake.in_kernel.load(Ordering::SeqCst);
        RingReadiness {
            input: fake.bytes.load(Ordering::SeqCst) > 0,
            output: (!in_kernel).then(|| !fake.is_full.load(Ordering::SeqCst)),
            error: false,
            is_home: false,
            is_in_kernel: in_kernel,
            others: 0,
        }
    }

    fn arm(&self, fd: i32, input: bool, output: bool) {
        let fake = self.fake(fd);
        if input {
            fake.armed_input.store(true, Ordering::SeqCst);
        }
        if output {
            fake.armed_output.store(true, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }

    fn kernel(&self, fd: i32, events: u32) -> u32 {
        crate::process::library::library().kernel(fd, events)
    }

    fn turn(&self) {
        if self.is_flooded.load(Ordering::SeqCst) {
            self.inbox.post_ready(SlotNumber(Inbox::SLOTS - 1));
        }
    }

    fn note_kernel_event(&self, fd: i32) {
        self.fake(fd).kernel_events.fetch_add(1, Ordering::SeqCst);
    }
}
