//! `select` and `pselect`: served through `poll` if the sets contain a session, else by the kernel.
//!
//! Not here: the waiting itself (`readiness`).

use crate::buffers::{self, Access, accessible};
use crate::errno;
use crate::guard::home;
use crate::guard::{is_open, within};
use crate::library::PollFd;
use crate::next::next;
use crate::raw::Kernel;
use crate::readiness::{Countdown, WaitTerms, poll_in_library, terms};
use crate::trampoline::alias;
use core::ffi::c_int;
use core::time::Duration;
use libc::{fd_set, sigset_t, timespec, timeval};
use rustix::io::Errno;
use std::time::Instant;

type SelectFn = unsafe extern "C-unwind" fn(
    c_int,
    *mut fd_set,
    *mut fd_set,
    *mut fd_set,
    *mut timeval,
) -> c_int;
type PSelectFn = unsafe extern "C-unwind" fn(
    c_int,
    *mut fd_set,
    *mut fd_set,
    *mut fd_set,
    *const timespec,
    *const sigset_t,
) -> c_int;

/// The most descriptors that fit into an `fd_set`. Programs that make larger sets by hand have
/// their sessions in the kernel.
const MOST: usize = libc::FD_SETSIZE;
const WORD: usize = 64;
/// The most descriptors for which no memory is allocated.
const FEW: usize = 64;

/// For each of the three sets: the events to ask `poll` for, and the events of the answer that make
/// a descriptor ready (`POLLIN_SET`, `POLLOUT_SET` and `POLLEX_SET` in fs/select.c).
const KINDS: [(i16, i16); 3] = [
    (
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    ),
    (
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
    ),
    (libc::POLLPRI, libc::POLLPRI),
];

/// The program's three sets, of which each may be missing.
struct Sets {
    words: [*mut u64; 3],
    /// The number of descriptors to look at. If a set is larger than `MOST`, only the accessible
    /// part counts: the kernel also stops at the end of the descriptor table.
    count: usize,
}

impl Sets {
    /// Takes the program's sets; `None` if they are not all accessible.
    fn new(count: c_int, sets: [*mut fd_set; 3]) -> Option<Self> {
        let mut count = usize::try_from(count).ok()?;
        let len = count.div_ceil(WORD) * size_of::<u64>();
        for set in sets.iter().filter(|set| !set.is_null()) {
            let good = accessible(*set as usize, len, Access::Write);
            if good < len && count <= MOST {
                return None;
            }
            count = count.min(good / size_of::<u64>() * WORD).max(MOST.min(count));
        }
        let words = sets.map(|set| set.cast());
        Some(Self { words, count })
    }

    /// Returns true if the sets are still accessible: another thread may have unmapped them.
    fn are_there(&self) -> bool {
        let len = self.count.div_ceil(WORD) * size_of::<u64>();
        self.words
            .iter()
            .filter(|words| !words.is_null())
            .all(|words| accessible(*words as usize, len, Access::Write) == len)
    }

    #[inline]
    fn word(&self, kind: usize, index: usize) -> u64 {
        let words = self.words[kind];
        // SAFETY: null, or accessible up to `count` bits.
        if words.is_null() { 0 } else { unsafe { words.add(index).read_unaligned() } }
    }

    /// Returns the events for which `fd` is polled.
    fn events(&self, fd: usize) -> i16 {
        let mut events = 0;
        for (kind, (ask, _)) in KINDS.iter().enumerate() {
            if self.word(kind, fd / WORD) >> (fd % WORD) & 1 != 0 {
                events |= ask;
            }
        }
        events
    }

    /// Iterates over every descriptor in any of the sets.
    fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count.div_ceil(WORD)).flat_map(move |index| {
            let mut bits = self.word(0, index) | self.word(1, index) | self.word(2, index);
            core::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(index * WORD + bit)
            })
            .filter(|fd| *fd < self.count)
        })
    }

    /// Fills in the array for `poll`: `few` if the descriptors fit there, else `many`.
    fn fill<'a>(&self, few: &'a mut [PollFd; FEW], many: &'a mut Vec<PollFd>) -> &'a mut [PollFd] {
        let count = self.numbers().take(MOST).count();
        let room = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, PollFd::NONE);
                many
            }
        };
        for (fd, place) in self.numbers().zip(room.iter_mut()) {
            *place = PollFd { fd: fd as i32, events: self.events(fd), revents: 0 };
        }
        room
    }

    /// Writes the ready descriptors into the sets. Returns the number of bits set.
    fn answer(&self, found: &[PollFd]) -> usize {
        let mut answers = [[0u64; MOST / WORD]; 3];
        let mut count = 0;
        for place in found.iter().filter(|place| place.fd >= 0) {
            for (answer, (ask, counts)) in answers.iter_mut().zip(KINDS) {
                if place.events & ask == ask && place.revents & counts != 0 {
                    answer[place.fd as usize / WORD] |= 1 << (place.fd as usize % WORD);
                    count += 1;
                }
            }
        }
        for (words, answer) in self.words.iter().zip(answers).filter(|(words, _)| !words.is_null())
        {
            for (index, word) in answer.iter().take(self.count.div_ceil(WORD)).enumerate() {
                // SAFETY: accessible up to `count` bits.
                unsafe { words.add(index).write_unaligned(*word) };
            }
        }
        count
    }
}

/// Returns true if the answer makes the descriptor ready in any set that contains it.
fn counts(place: &PollFd) -> bool {
    KINDS.iter().any(|(ask, counts)| place.events & ask == *ask && place.revents & counts != 0)
}

/// Serves the call in the library; `None` if the kernel is to serve it.
#[inline(never)]
fn serve(sets: &Sets, terms: WaitTerms) -> Option<Result<usize, Errno>> {
    let is_concerned = |fd: usize| within(|library| library.concerns(fd as i32)) == Some(true);
    if !sets.numbers().any(is_concerned) {
        return None;
    }
    // `answer` has room for `MOST` descriptors.
    if sets.count > MOST {
        sets.numbers().for_each(|fd| home(fd as i32, true));
        return None;
    }
    let (mut few, mut many) = ([PollFd::NONE; FEW], Vec::new());
    let fds = sets.fill(&mut few, &mut many);
    let start = Instant::now();
    loop {
        let limit = terms.limit.map(|limit| limit.saturating_sub(start.elapsed()));
        let found = match poll_in_library(fds, WaitTerms { limit, ..terms })? {
            Ok(found) => found,
            // The process may have fewer descriptors than these: poll(2) knows such a limit,
            // select(2) does not.
            Err(Errno::INVAL) => {
                sets.numbers().for_each(|fd| home(fd as i32, false));
                return None;
            }
            Err(error) => return Some(Err(error)),
        };
        if fds.iter().any(|place| place.revents & libc::POLLNVAL != 0) {
            return Some(Err(Errno::BADF));
        }
        if found == 0 || fds.iter().any(counts) {
            if !sets.are_there() {
                return Some(Err(Errno::FAULT));
            }
            return Some(Ok(sets.answer(fds)));
        }
        // These descriptors only have hang-ups or errors, which their sets do not include. `poll`
        // would report them at once again and again, so they are left out from now on.
        for place in fds.iter_mut().filter(|place| place.revents != 0) {
            place.fd = -1;
        }
    }
}

/// Serves `select` and its relatives; `kernel` makes the kernel's call. `terms` returns `None` if
/// the kernel is to refuse them.
pub(crate) fn select_by(
    count: c_int,
    sets: [*mut fd_set; 3],
    terms: impl FnOnce() -> Option<WaitTerms>,
    kernel: impl Kernel,
) -> isize {
    let served = || serve(&Sets::new(count, sets)?, terms()?);
    if !is_open() || count <= 0 {
        return kernel();
    }
    served().map_or_else(kernel, errno::count)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn select(
    count: c_int,
    input: *mut fd_set,
    output: *mut fd_set,
    except: *mut fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = || unsafe { next!(c"select" as SelectFn)(count, input, output, except, limit) };
    select_counted(count, [input, output, except], limit, || kernel() as isize) as c_int
}

/// Serves [`select`] with its time limit; `kernel` makes the kernel's call.
pub(crate) fn select_counted(
    count: c_int,
    sets: [*mut fd_set; 3],
    limit: *mut timeval,
    kernel: impl Kernel,
) -> isize {
    let countdown = Countdown::default();
    let terms = || {
        if limit.is_null() {
            return Some(WaitTerms { limit: None, mask: None });
        }
        // SAFETY: plain data, which the program leaves alone during the call.
        let span = to_span(unsafe { buffers::structure(limit) }?)?;
        countdown.begin(span);
        Some(WaitTerms { limit: Some(span), mask: None })
    };
    let result = select_by(count, sets, terms, || countdown.left_to(kernel));
    if let Some(left) = countdown.left()
        && buffers::is_writable(limit)
    {
        let left = timeval { tv_sec: left.as_secs() as i64, tv_usec: left.subsec_micros().into() };
        // SAFETY: writable, as checked above. Linux writes the remaining time whatever the result
        // is (select(2)).
        unsafe { limit.write_unaligned(left) };
    }
    result
}

fn to_span(limit: timeval) -> Option<Duration> {
    let microseconds = u64::try_from(limit.tv_usec).ok()?;
    let seconds = Duration::from_secs(u64::try_from(limit.tv_sec).ok()?);
    Some(seconds.saturating_add(Duration::from_micros(microseconds)))
}

alias!(__select = select);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    input: *mut fd_set,
    output: *mut fd_set,
    except: *mut fd_set,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        || unsafe { next!(c"pselect" as PSelectFn)(count, input, output, except, limit, mask) };
    let result =
        select_by(count, [input, output, except], || terms(limit, mask), || kernel() as isize);
    result as c_int
}
