//! The assistants: who of them does which work, and for which users they still wait.
//!
//! # Theory of operation
//! Two assistants do all work as long as they come back from it. One that does not within a moment
//! is late: it does not count any more, and another is started in its place. The late ones are some
//! user's, who has few at most: further work for that user waits until one of them comes back, and
//! nobody else's does. One that is late for many looks counts as held, and its user's new sessions
//! wait a while, longer each time. Nothing is given up because of the clock: an assistant that the
//! machine has not let run comes back, and what waited goes on.
//!
//! Not here: the threads (`assistant`), the work (`work`).

use crate::assistant::{Assistant, Said};
use crate::clock::later;
use crate::program_socket::{ProgramSocket, Unused};
use crate::sessions::MakeLook;
use crate::turns::Turns;
use crate::work::{Done, Finished, Work};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Uid, getrlimit};
use sojourn_ipc::shares::{Share, Shares};
use sojourn_proto::time::Instant;
use sojourn_session::LocalNumber;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Assistants that work at the same time, without the late ones.
const WORKING_MAX: usize = 2;
/// A user's work that is with assistants at the same time, and that of all users.
const OF_USER_MAX: usize = 4;
const ALL_MAX: usize = 1024;
/// The time between two looks at an assistant that works (microseconds): after the first it is
/// late.
const LOOK_US: u64 = 20_000;
/// The looks after which an assistant counts as held. The clock alone does not tell: the machine
/// may have let nobody run.
const HELD_LOOKS: u32 = 50;
/// The pause after which another try is made, where there was no room (microseconds).
const RETRY_US: u64 = 20_000;
/// How long a user's new sessions wait, the first time and at most (microseconds).
const WAIT_MIN_US: u64 = 1_000_000;
const WAIT_MAX_US: u64 = 64_000_000;
/// The part of the process's descriptors that new sockets may be, which wait for their turn.
const NEW_PART: u64 = 4;
const NEW_MIN: u64 = 64;
const NEW_MAX: u64 = 64 << 10;
const EVENTS: usize = 16;
/// In place of the number of a session, for a socket that is to be closed.
const UNNUMBERED: LocalNumber = LocalNumber(0);

/// A piece of work for a session, and what it comes with.
struct Job {
    local: LocalNumber,
    user: Uid,
    socket: Arc<OwnedFd>,
    beside: Vec<Arc<OwnedFd>>,
    work: Work,
}

/// A piece of work that an assistant has.
struct Begun {
    local: LocalNumber,
    user: Uid,
    /// The time of its begin, or of the last look.
    seen_at: Instant,
    /// Looks that have found it at this work.
    looks: u32,
}

impl Begun {
    fn is_late(&self) -> bool {
        self.looks > 0
    }
}

/// An assistant, and its work.
struct Place {
    assistant: Assistant,
    begun: Option<Begun>,
}

/// What is known of a user whose work is, or was, with assistants.
#[derive(Default)]
struct OfUser {
    /// The number of pieces of work that assistants have.
    begun: usize,
    /// New sessions wait until then.
    until: Instant,
    /// How long they waited the last time (microseconds); 0: no assistant was held.
    wait_us: u64,
}

/// What came from an assistant, about a session.
pub(crate) struct Heard {
    pub(crate) local: LocalNumber,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// The session's packets are to reach its socket. [`Assistants::answer`] follows.
    Hear(u64),
    Finished(Finished),
}

/// All assistants.
pub(crate) struct Assistants {
    set: OwnedFd,
    make_look: MakeLook,
    places: HashMap<u64, Place>,
    last: u64,
    /// Work for sessions, and looks at new ones.
    waiting: Turns<Uid, Job>,
    new: Turns<Uid, Job>,
    users: HashMap<Uid, OfUser>,
    /// New sockets.
    shares: Arc<Shares>,
    unused: Sender<Unused>,
    to_close: Receiver<Unused>,
    /// The time of the next try, where there was no room for a thread or a message.
    retry_at: Option<Instant>,
}

impl Assistants {
    /// # Errors
    /// No descriptors left.
    pub(crate) fn new(make_look: MakeLook) -> Result<Self, Errno> {
        let (unused, to_close) = channel();
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Ok(Self {
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            make_look,
            places: HashMap::new(),
            last: 0,
            waiting: Turns::default(),
            new: Turns::default(),
            users: HashMap::new(),
            shares: Shares::new((files / NEW_PART).clamp(NEW_MIN, NEW_MAX) as usize),
            unused,
            to_close,
            retry_at: None,
        })
    }

    /// Returns a program's socket, which an assistant closes.
    pub(crate) fn socket(&self, fd: OwnedFd, user: Uid) -> ProgramSocket {
        ProgramSocket::new(fd, user, self.unused.clone())
    }

    /// Counts one more new socket of a user's. `None` if so many wait that the user would have more
    /// than it leaves for others.
    pub(crate) fn share(&self, user: Uid) -> Option<Share> {
        self.shares.take(user, 1)
    }

    /// Returns the descriptor that is readable when an assistant has said something.
    pub(crate) fn says_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Has an assistant do that work with the session's socket. `beside`: what the work comes with.
    pub(crate) fn give(
        &mut self,
        local: LocalNumber,
        socket: &ProgramSocket,
        work: Work,
        beside: Vec<Arc<OwnedFd>>,
    ) {
        let queue = if matches!(work, Work::Inspect) { &mut self.new } else { &mut self.waiting };
        let (user, socket) = (socket.user(), Arc::clone(socket.descriptor()));
        queue.push(user, Job { local, user, socket, beside, work });
        self.begin(sojourn_pump::now());
    }

    /// Does the same with work after which the socket is closed ([`Work::closes`]).
    pub(crate) fn give_last(
        &mut self,
        local: LocalNumber,
        Unused { fd: socket, user }: Unused,
        work: Work,
        beside: Vec<Arc<OwnedFd>>,
    ) {
        self.waiting.push(user, Job { local, user, socket, beside, work });
        self.begin(sojourn_pump::now());
    }

    /// Hands work to assistants, as far as there are some for it. Returns the time of the next
    /// call, if there is work that waits for time only.
    pub(crate) fn tidy(&mut self, at: Instant) -> Option<Instant> {
        while let Ok(unused) = self.to_close.try_recv() {
            self.give_last(UNNUMBERED, unused, Work::Close, Vec::new());
        }
        self.note_late(at);
        self.begin(at);
        self.users.retain(|_, user| user.begun > 0 || later(user.until, WAIT_MAX_US) > at);
        self.next_look(at)
    }

    /// Returns the time at which something may be done that cannot be done now.
    fn next_look(&self, at: Instant) -> Option<Instant> {
        let begun = self.places.values().filter_map(|place| place.begun.as_ref());
        let looked_at = begun.filter(|begun| begun.looks < HELD_LOOKS);
        let looks = looked_at.map(|begun| later(begun.seen_at, LOOK_US));
        let new = self.new.users().filter_map(|user| self.users.get(&user));
        let new = new.map(|user| user.until).filter(|until| *until > at);
        looks.chain(new).chain(self.retry_at).min()
    }

    /// Looks at the assistants that work, and notes who holds some of them.
    fn note_late(&mut self, at: Instant) {
        let Self { places, users, .. } = self;
        for begun in places.values_mut().filter_map(|place| place.begun.as_mut()) {
            if begun.looks >= HELD_LOOKS || at < later(begun.seen_at, LOOK_US) {
                continue;
            }
            (begun.seen_at, begun.looks) = (at, begun.looks + 1);
            let user = users.entry(begun.user).or_default();
            // Several that are held at the same time count once. An honest program's socket may
            // linger.
            if begun.looks == HELD_LOOKS && user.until <= at && begun.local != UNNUMBERED {
                user.wait_us = (2 * user.wait_us).clamp(WAIT_MIN_US, WAIT_MAX_US);
                user.until = later(at, user.wait_us);
            }
        }
    }

    /// Hands over as much work as there is somebody for.
    fn begin(&mut self, at: Instant) {
        if self.retry_at.is_none_or(|retry| retry <= at) {
            self.retry_at = None;
            while self.begin_one(at) {}
        }
    }

    /// Returns true if assistants have work, or there is some for them.
    pub(crate) fn are_busy(&self) -> bool {
        let has_work = |place: &Place| place.begun.as_ref().is_some_and(|begun| !begun.is_late());
        !self.waiting.is_empty() || self.places.values().any(has_work)
    }

    /// Hands one piece of work to an assistant; false if there is none, or nobody for it.
    fn begin_one(&mut self, at: Instant) -> bool {
        if self.waiting.is_empty() && self.new.is_empty() {
            return false;
        }
        let Some(number) = self.free() else { return false };
        let Self { waiting, new, users, .. } = self;
        let has_room = |user: &OfUser| user.begun < OF_USER_MAX;
        let may = |user: Uid| users.get(&user).is_none_or(has_room);
        let is_welcome = |user: &OfUser| has_room(user) && user.until <= at;
        let may_begin = |user: Uid| users.get(&user).is_none_or(is_welcome);
        let Some(job) = waiting.pop(may).or_else(|| new.pop(may_begin)) else { return false };
        self.hand_over(number, job, at);
        self.retry_at.is_none()
    }

    fn hand_over(&mut self, number: u64, job: Job, at: Instant) {
        let Self { places, users, waiting, .. } = self;
        let Some(place) = places.get_mut(&number) else { return };
        let Job { local, user, socket, beside, work } = job;
        let fds = std::iter::once(&socket).chain(&beside);
        let fds: Vec<BorrowedFd<'_>> = fds.map(|fd| fd.as_fd()).collect();
        let closes = work.closes();
        match place.assistant.give(work, &fds) {
            Ok(()) => {
                if closes {
                    // This is not the last descriptor, because the assistant closes its own later.
                    drop(socket);
                    place.assistant.let_close();
                }
                users.entry(user).or_default().begun += 1;
                place.begun = Some(Begun { local, user, seen_at: at, looks: 0 });
            }
            Err(work) => {
                // Too many descriptors are on their way between processes, or no memory is left.
                self.retry_at = Some(later(at, RETRY_US));
                waiting.push(user, Job { local, user, socket, beside, work });
            }
        }
    }

    /// Returns an assistant that has nothing to do, and starts one if there is none and not enough
    /// come back from their work.
    fn free(&mut self) -> Option<u64> {
        let free = self.places.iter().find(|(_, place)| place.begun.is_none());
        if let Some((number, _)) = free {
            return Some(*number);
        }
        let is_at_work =
            |place: &&Place| place.begun.as_ref().is_some_and(|begun| !begun.is_late());
        let at_work = self.places.values().filter(is_at_work).count();
        if at_work >= WORKING_MAX || self.places.len() >= ALL_MAX {
            return None;
        }
        let number = self.last + 1;
        let started = Assistant::start(Arc::clone(&self.make_look)).and_then(|assistant| {
            epoll::add(&self.set, &assistant, EventData::new_u64(number), EventFlags::IN)?;
            Ok(assistant)
        });
        let Ok(assistant) = started else {
            self.retry_at = Some(later(sojourn_pump::now(), RETRY_US));
            return None;
        };
        self.last = number;
        self.places.insert(number, Place { assistant, begun: None });
        Some(number)
    }

    /// Waits for assistants, for so long at most, and takes what they have said.
    pub(crate) fn wait(&mut self, limit: Timespec) -> Vec<Heard> {
        let mut events = Vec::with_capacity(EVENTS);
        let spare = rustix::buffer::spare_capacity(&mut events);
        // An error leaves the events empty.
        let _ = epoll::wait(&self.set, spare, Some(&limit));
        let numbers: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        numbers.into_iter().flat_map(|number| self.take_said(number)).collect()
    }

    /// Takes what assistants have said.
    pub(crate) fn heard(&mut self) -> Vec<Heard> {
        let mut heard = self.wait(Timespec { tv_sec: 0, tv_nsec: 0 });
        let ended = self.places.iter().filter(|(_, place)| place.assistant.has_ended());
        let ended: Vec<u64> = ended.map(|(number, _)| *number).collect();
        heard.extend(ended.into_iter().filter_map(|number| self.lose(number)));
        self.begin(sojourn_pump::now());
        heard
    }

    fn take_said(&mut self, number: u64) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Some(place) = self.places.get_mut(&number)
            && let Some(said) = place.assistant.take_said()
        {
            match said {
                Said::Hear => {
                    let local = place.begun.as_ref().map(|begun| begun.local);
                    heard.extend(local.map(|local| Heard { local, what: What::Hear(number) }));
                }
                Said::Finished(finished) => heard.extend(self.finish(number, finished)),
                Said::Ended => heard.extend(self.lose(number)),
            }
        }
        heard
    }

    /// Notes that an assistant has done its work.
    fn finish(&mut self, number: u64, finished: Finished) -> Option<Heard> {
        let begun = self.places.get_mut(&number)?.begun.take()?;
        let Begun { local, user, .. } = begun;
        if let Some(user) = self.users.get_mut(&user) {
            user.begun -= 1;
        }
        let free = self.places.values().filter(|place| place.begun.is_none()).count();
        if begun.is_late() && free > WORKING_MAX {
            self.places.remove(&number);
        }
        Some(Heard { local, what: What::Finished(finished) })
    }

    /// Notes that an assistant has ended, and its work with it.
    fn lose(&mut self, number: u64) -> Option<Heard> {
        let heard = self.finish(number, Done::Lost.into());
        self.places.remove(&number);
        heard
    }

    /// Answers [`What::Hear`].
    pub(crate) fn answer(&self, number: u64) {
        if let Some(place) = self.places.get(&number) {
            place.assistant.answer();
        }
    }
}

impl Drop for Assistants {
    /// Leaves the sockets that are still to be closed to the end of the process, which does not
    /// linger. The assistants end with their lines.
    fn drop(&mut self) {
        for unused in self.to_close.try_iter() {
            std::mem::forget(unused);
        }
        for queue in [&mut self.waiting, &mut self.new] {
            while let Some(job) = queue.pop(|_| true) {
                std::mem::forget(job);
            }
        }
    }
}

#[cfg(test)]
#[path = "assistants_tests.rs"]
mod tests;
