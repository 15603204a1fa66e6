//! The prober as the serving process sees it: counts holders, pins pipes, tells users.
//!
//! These looks need rights over other users' processes and pipes. Where the server is one process
//! it makes them itself; otherwise a process of its own does (`apart::probe`), and this asks it. An
//! answer that does not come in time is none. Not here: the looks (`holders`, `pins`), the bytes of
//! questions (`probing`).

use crate::holders::{self, FifoHolders, Question};
use crate::pins::{Holder, Opens, Pin, Pins};
use crate::probing::{
    self, ASK_LEN, LOOK_MAX, OPENED_LEN, ProbeAnswer, ProbeRequest, QUESTIONS_MAX, Verdict,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{RecvFlags, recv};
use rustix::process::Uid;
use sojourn_ipc::ancillary;
use sojourn_session::{ProcessId, ReasonT};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time for an answer about one object, and about holders: the prober looks at all processes
/// for that.
const ASK_LIMIT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const LOOK_LIMIT: Timespec = Timespec { tv_sec: 8, tv_nsec: 0 };
/// The time after which no further questions about holders are asked together with these.
const LOOKS_LIMIT: Duration = Duration::from_secs(3);
/// The most pins that wait to be let go of because the prober's queue is full.
const UNPINS_MAX: usize = 1 << 16;

/// The way to look at other users' processes and pipes.
#[derive(Clone, Debug)]
pub(crate) enum Prober {
    /// This process looks itself.
    Here(Pins, FifoHolders),
    /// A process of its own does.
    Apart(Arc<ProberClient>),
}

/// The lines to the prober's process.
#[derive(Debug)]
pub(crate) struct ProberClient {
    asks: Mutex<Asks>,
    looks: Mutex<Looks>,
    /// Over this the prober reports pipes that were opened once more.
    opens: OwnedFd,
    /// Watches to let go of as soon as the prober's queue has room.
    unpins: Mutex<Vec<u32>>,
}

#[derive(Debug)]
struct Asks {
    line: OwnedFd,
    last: u32,
}

/// The line for questions about holders, and the number of the last message on it.
#[derive(Debug)]
struct Looks {
    line: OwnedFd,
    last: u64,
}

impl Prober {
    /// Has the process at the other ends of these lines look.
    pub(crate) fn apart(asks: OwnedFd, looks: OwnedFd, opens: OwnedFd) -> Self {
        let asks = Mutex::new(Asks { line: asks, last: 0 });
        Self::Apart(Arc::new(ProberClient {
            asks,
            looks: Mutex::new(Looks { line: looks, last: 0 }),
            opens,
            unpins: Mutex::default(),
        }))
    }

    /// Pins the pipe that `name` names: see [`Pins::pin`].
    ///
    /// # Errors
    /// Those of [`Pins::pin`]; `ETIMEDOUT` or `EPIPE` if the prober does not answer.
    pub(crate) fn pin(&self, name: BorrowedFd<'_>) -> Result<Pin, Errno> {
        match self {
            Self::Here(pins, _) => pins.pin(name),
            Self::Apart(asking) => {
                let watch = asking.ask(ProbeRequest::Pin, Some(name))?;
                let watch = i32::try_from(watch).map_err(|_| Errno::BADMSG)?;
                Ok(Pin::held(watch, Arc::clone(asking) as Arc<dyn Holder>))
            }
        }
    }

    /// Waits until a pipe that is pinned is opened once more: see [`Pins::await_opens`]. `None`
    /// also if the prober has gone.
    pub(crate) fn await_opens(&self, end: BorrowedFd<'_>) -> Option<Opens> {
        match self {
            Self::Here(pins, _) => pins.await_opens(end),
            Self::Apart(asking) => await_report(&asking.opens, end),
        }
    }

    /// Returns the user as which a process runs now: see [`holders::user_of`].
    ///
    /// # Errors
    /// The prober does not answer.
    pub(crate) fn user_of(&self, pid: ProcessId) -> Result<Option<Uid>, Errno> {
        match self {
            Self::Here(..) => Ok(holders::user_of(pid)),
            Self::Apart(asking) => match asking.ask(ProbeRequest::User(pid), None) {
                Ok(user) => Ok(Some(Uid::from_raw_unchecked(user))),
                Err(Errno::SRCH) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Answers questions about holders: see [`holders::find_holders`].
    pub(crate) fn find_holders(&self, questions: &[Question]) -> Vec<Verdict> {
        let asking = match self {
            Self::Here(_, fifos) => return holders::find_holders(questions, &[], *fifos),
            Self::Apart(asking) => asking,
        };
        let unknown = |some: &[Question]| vec![Err(ReasonT::HoldersUnknown); some.len()];
        let begun = Instant::now();
        let is_late = || begun.elapsed() > LOOKS_LIMIT;
        let ask = |some| if is_late() { None } else { asking.find_holders(some) };
        let some = questions.chunks(QUESTIONS_MAX);
        some.flat_map(|some| ask(some).unwrap_or_else(|| unknown(some))).collect()
    }
}

impl ProberClient {
    fn ask(&self, what: ProbeRequest, beside: Option<BorrowedFd<'_>>) -> Result<u32, Errno> {
        let mut asks = lock(&self.asks);
        self.unpin_all(&asks.line);
        asks.last = asks.last.wrapping_add(1);
        let number = asks.last;
        tell(&asks.line, &what.to_bytes(number), beside)?;
        loop {
            await_answer(&asks.line, &ASK_LIMIT)?;
            let mut bytes = [0; ASK_LEN + 1];
            let (len, _) = recv(&asks.line, &mut bytes, RecvFlags::DONTWAIT)?;
            if len == 0 {
                return Err(Errno::PIPE);
            }
            let ProbeAnswer { number: of, value } =
                probing::read_answer(&bytes[..len]).ok_or(Errno::BADMSG)?;
            // An answer to an earlier question, which came too late, is passed over.
            if of == number {
                return value.map_err(|error| match i32::try_from(error) {
                    Ok(error) if (1..4096).contains(&error) => Errno::from_raw_os_error(error),
                    _ => Errno::BADMSG,
                });
            }
        }
    }

    /// Sends what is to be let go of, as far as there is room. The messages of one line stay in
    /// order, so that no later pin is let go of.
    fn unpin_all(&self, line: &OwnedFd) {
        let mut unpins = lock(&self.unpins);
        while let Some(watch) = unpins.first().copied() {
            if tell(line, &ProbeRequest::Unpin(watch).to_bytes(0), None) == Err(Errno::AGAIN) {
                return;
            }
            unpins.swap_remove(0);
        }
    }

    fn find_holders(&self, questions: &[Question]) -> Option<Vec<Verdict>> {
        let mut looks = lock(&self.looks);
        looks.last += 1;
        let (line, number) = (&looks.line, looks.last);
        tell(line, &probing::questions(number, questions), None).ok()?;
        loop {
            await_answer(line, &LOOK_LIMIT).ok()?;
            let mut bytes = [0; LOOK_MAX];
            let (len, _) = recv(line, &mut bytes, RecvFlags::DONTWAIT).ok()?;
            // The answer to an earlier question may have another length.
            let of = bytes.first_chunk().filter(|_| len > 0).map(|of| u64::from_ne_bytes(*of))?;
            if of == number {
                let answer = probing::read_verdicts(&bytes[..len], questions.len())?;
                return Some(answer.verdicts);
            }
        }
    }
}

impl Holder for ProberClient {
    fn release(&self, watch: i32) {
        let mut unpins = lock(&self.unpins);
        // Each waiting number costs the prober a watch and nothing else.
        if unpins.len() < UNPINS_MAX {
            unpins.push(watch.unsigned_abs());
        }
        drop(unpins);
        // Somebody who asks just now sends it with the next question.
        if let Ok(asks) = self.asks.try_lock() {
            self.unpin_all(&asks.line);
        }
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(line: &OwnedFd, bytes: &[u8], beside: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    ancillary::send(line, &[IoSlice::new(bytes)], beside.as_slice())
}

/// Waits for a report, or the end of `end`. What makes no sense is taken for the end, as of a
/// prober that has gone.
fn await_report(line: &OwnedFd, end: BorrowedFd<'_>) -> Option<Opens> {
    loop {
        let mut both = [PollFd::new(line, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
        if poll(&mut both, None).is_ok() && !both[1].revents().is_empty() {
            return None;
        }
        let mut bytes = [0; OPENED_LEN + 1];
        match recv(line, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return None,
            Ok((len, _)) => {
                let watch = probing::read_opened(&bytes[..len])?;
                let watches = if watch == 0 { Vec::new() } else { vec![watch] };
                return Some(Opens { watches, may_be_any: watch == 0 });
            }
        }
    }
}

fn await_answer(line: impl AsFd, limit: &Timespec) -> Result<(), Errno> {
    let mut set = [PollFd::new(&line, PollFlags::IN)];
    loop {
        match poll(&mut set, Some(limit)) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
