//! Threads that may still be in a system call that they made before the calls were rewritten.
//!
//! Such a call waits in the kernel, which does not tell it what comes into shared memory. So a
//! session does not move while a thread waits for it so. What a thread does is in
//! `/proc/self/task/*/syscall` (proc(5)): the call with its arguments, and where it was made; or
//! only that the thread runs. A thread that has run for a while since is in no such call any more:
//! that takes far less until it ends or sleeps.
//!
//! Not here: the rewriting (`super`).

use super::memory::read;
use crate::library::{OwnCalls, PollFd};
use crate::raw;
use std::fs::read_to_string;
use std::time::Duration;

/// Processor time after which a thread that ran has ended its call, or sleeps in it.
const RAN: Duration = Duration::from_millis(1);
/// The pauses between looks at threads that run, and their number.
const PAUSE: Duration = Duration::from_micros(500);
const LOOKS: usize = 12;
/// The most descriptors of a call that are looked at; a call with more concerns everything.
const MOST: usize = 4096;

/// What is known of a thread.
#[derive(Clone, Debug)]
struct Sleeper {
    thread: i32,
    /// The processor time that it had used when the calls were rewritten.
    ran_before: Duration,
}

/// The threads of which it is not known that they are in no call of before.
#[derive(Debug, Default)]
pub(super) struct Sleepers(Vec<Sleeper>);

/// What a thread is doing.
enum Doing {
    /// It runs, or is about to.
    Runs,
    /// It sleeps in a call made at an address before the last word.
    Sleeps { number: i64, arguments: [u64; 6], back: u64 },
    /// It sleeps, but not in a call; or it is gone.
    Else,
}

/// A call of before in which a thread sleeps.
enum Concern {
    Everything,
    Descriptors(Vec<i32>),
    Set(i32),
    Nothing,
}

fn doing(thread: i32) -> Doing {
    let text = read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap_or_default();
    if text.starts_with("running") {
        return Doing::Runs;
    }
    let mut words = text.split_whitespace();
    let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(-1);
    let mut values = words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let mut next = || values.next().unwrap_or(0);
    let arguments = [next(), next(), next(), next(), next(), next()];
    let (_stack, back) = (next(), next());
    if number < 0 { Doing::Else } else { Doing::Sleeps { number, arguments, back } }
}

/// Returns the processor time of a thread, by the first word of its `schedstat`.
fn ran(thread: i32) -> Option<Duration> {
    let text = read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn threads() -> impl Iterator<Item = i32> {
    let names = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    names.filter_map(|found| found.file_name().to_str()?.parse().ok())
}

/// The number of a call is one of those that wait for a set.
fn is_set_wait(number: i64) -> bool {
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => true,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => true,
        _ => false,
    }
}

/// Tells what a call of before concerns.
fn concern(number: i64, arguments: [u64; 6]) -> Concern {
    let [first, second, third, fourth, ..] = arguments;
    match number {
        number if is_set_wait(number) => Concern::Set(first as i32),
        libc::SYS_poll | libc::SYS_ppoll => polled(first, second as usize),
        libc::SYS_select | libc::SYS_pselect6 => selected(first as usize, [second, third, fourth]),
        // Calls that wait for something else have, at worst, a number as the first argument that
        // looks like a descriptor.
        _ => i32::try_from(first).map_or(Concern::Nothing, |fd| Concern::Descriptors(vec![fd])),
    }
}

fn polled(at: u64, count: usize) -> Concern {
    let mut all = vec![PollFd::NONE; count.min(MOST + 1)];
    let len = size_of_val(all.as_slice());
    // SAFETY: plain data without padding; any bytes are a `PollFd`.
    let bytes = unsafe { core::slice::from_raw_parts_mut(all.as_mut_ptr().cast::<u8>(), len) };
    if count > MOST || read(at, bytes) != len {
        return Concern::Everything;
    }
    Concern::Descriptors(all.iter().map(|one| one.fd).collect())
}

fn selected(count: usize, sets: [u64; 3]) -> Concern {
    let mut found = Vec::new();
    for set in sets.into_iter().filter(|set| *set != 0) {
        let mut bytes = vec![0u8; count.min(MOST).div_ceil(64) * 8];
        if count > MOST || read(set, &mut bytes) != bytes.len() {
            return Concern::Everything;
        }
        let has = |fd: &usize| bytes[fd / 8] >> (fd % 8) & 1 != 0;
        found.extend((0..count).filter(has).map(|fd| fd as i32));
    }
    Concern::Descriptors(found)
}

impl Sleepers {
    /// Returns a value if threads can be looked at here.
    pub(super) fn possible() -> Option<Self> {
        let any = threads().next()?;
        ran(any)?;
        read_to_string(format!("/proc/self/task/{any}/syscall")).ok()?;
        Some(Self::default())
    }

    /// Begins to look at all threads that there are. Called when the calls have been rewritten:
    /// threads that come later make none of before.
    pub(super) fn begin(self) -> Self {
        // The thread that looks is the library's, and makes no such call.
        let own = raw::thread_number();
        let all = threads().filter(|thread| *thread != own);
        let all = all.filter_map(|thread| Some(Sleeper { thread, ran_before: ran(thread)? }));
        Self(all.collect())
    }

    /// Tells what is under way at these calls, for these descriptors.
    pub(super) fn under_way(&mut self, calls: &[u64], numbers: &[i32]) -> OwnCalls {
        for look in 0..LOOKS {
            if look > 0 {
                std::thread::sleep(PAUSE);
            }
            let mut sets = Vec::new();
            let mut is_concerned = false;
            self.0.retain(|one| {
                let found = one.look(calls);
                match &found {
                    Concern::Nothing => {}
                    Concern::Everything => is_concerned = true,
                    Concern::Set(set) => sets.push(*set),
                    Concern::Descriptors(all) => {
                        is_concerned |= all.iter().any(|fd| numbers.contains(fd));
                    }
                }
                !matches!(found, Concern::Nothing)
            });
            if !is_concerned {
                return OwnCalls::Seen(sets);
            }
        }
        OwnCalls::UnderWay
    }
}

impl Sleeper {
    fn look(&self, calls: &[u64]) -> Concern {
        match doing(self.thread) {
            Doing::Else => Concern::Nothing,
            Doing::Runs => match ran(self.thread) {
                Some(now) if now.saturating_sub(self.ran_before) < RAN => Concern::Everything,
                _ => Concern::Nothing,
            },
            Doing::Sleeps { number, arguments, back } => {
                // The instruction before `back` has two bytes.
                match calls.binary_search(&back.wrapping_sub(2)) {
                    Ok(_) => concern(number, arguments),
                    Err(_) => Concern::Nothing,
                }
            }
        }
    }
}
