//! Questions to proxies, and their answers: no thread that serves clients waits for an answer.
//!
//! A question goes over its ticket, and a thread of its own takes the answers as they come. An
//! answer that does not come in time is none: then the program holds the lock of the object that it
//! offered, or is stopped in the middle of using it, and the server has lost nothing but the
//! ticket. Not here: the other side (`proxy`), the use of an answer (`service`).

use crate::beat::Beat;
use crate::inspected::{INSPECTED_MAX, Inspected};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use sojourn_ipc::ancillary;
use sojourn_session::ReasonT;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time that an answer may take.
const LIMIT: Duration = Duration::from_secs(3);
/// The interval at which late questions are looked for, while there are questions.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const EVENTS: usize = 64;

/// The continuation for an answer; `None`: there is no answer.
pub(crate) type Continuation = Box<dyn FnOnce(Option<Inspected>) + Send>;

struct PendingInspection {
    ticket: OwnedFd,
    until: Instant,
    then: Continuation,
}

impl PendingInspection {
    /// Closes the ticket before the answer is used. No other process has this end of it, so the
    /// epoll set forgets it, too (epoll(7), Questions and answers).
    fn close(self) -> Continuation {
        drop(self.ticket);
        self.then
    }
}

#[derive(Default)]
struct Questions {
    /// By number, and so by age.
    asked: BTreeMap<u64, PendingInspection>,
    last: u64,
}

/// The questions that have no answer yet.
pub(crate) struct Inspections {
    set: OwnedFd,
    /// Rung for the first question after a time without any, so that the thread waits with a limit.
    bell: OwnedFd,
    questions: Mutex<Questions>,
}

impl core::fmt::Debug for Inspections {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Inspections").field("set", &self.set).finish_non_exhaustive()
    }
}

impl Inspections {
    /// Starts the thread that takes the answers.
    ///
    /// # Errors
    /// No descriptors left, or no thread.
    pub(crate) fn start(beat: Beat) -> std::io::Result<Arc<Self>> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)?;
        epoll::add(&set, &bell, EventData::new_u64(0), EventFlags::IN)?;
        let inspections = Arc::new(Self { set, bell, questions: Mutex::default() });
        let thread = Arc::clone(&inspections);
        std::thread::Builder::new()
            .name("sojourn-answers".into())
            .spawn(move || thread.work(&beat))?;
        Ok(inspections)
    }

    fn lock(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a look at the object of which this is the ticket. Another thread calls `then`, or
    /// this one does if nobody can be asked.
    pub(crate) fn ask(&self, ticket: OwnedFd, then: Continuation) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&ticket, &[0], flags) {
            Ok(_) => {}
            // Event descriptors and memory come without a ticket: they are sent themselves.
            Err(Errno::NOTSOCK) => return then(Some(Inspected::refused(ReasonT::Kind))),
            Err(_) => return then(None),
        }
        // The lock is held until the question is listed, because its answer may come at once.
        let mut questions = self.lock();
        questions.last += 1;
        let number = questions.last;
        let added = epoll::add(&self.set, &ticket, EventData::new_u64(number), EventFlags::IN);
        let asked = PendingInspection { ticket, until: Instant::now() + LIMIT, then };
        match added {
            Ok(()) => {
                if questions.asked.insert(number, asked).is_none() && questions.asked.len() == 1 {
                    let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
                }
            }
            Err(_) => {
                drop(questions);
                (asked.then)(None);
            }
        }
    }

    fn work(&self, beat: &Beat) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            let is_idle = self.lock().asked.is_empty();
            // An error leaves `events` empty.
            let _ = epoll::wait(&self.set, spare, (!is_idle).then_some(&LOOK_EVERY));
            let _busy = beat.busy();
            // A bell that is not emptied would end the next wait at once.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            for event in &events {
                let number = event.data.u64();
                let asked = self.lock().asked.remove(&number);
                if let Some(asked) = asked {
                    let inspected = receive(&asked.ticket).ok().flatten();
                    (asked.close())(inspected);
                }
            }
            self.give_up();
        }
    }

    fn give_up(&self) {
        let now = Instant::now();
        loop {
            let mut questions = self.lock();
            let late = questions.asked.first_entry().filter(|first| first.get().until <= now);
            let Some(asked) = late.map(|late| late.remove()) else { return };
            drop(questions);
            (asked.close())(None);
        }
    }
}

/// Receives the answer over a ticket.
fn receive(ticket: &OwnedFd) -> Result<Option<Inspected>, Errno> {
    let mut bytes = [0; INSPECTED_MAX];
    let arrived = ancillary::receive(ticket.as_fd(), &mut bytes)?;
    Ok(Inspected::read(&bytes[..arrived.len], arrived.fds.into_iter().next()))
}
