//! Futex waits and wakes across processes: a thin, typed layer over the system calls.
//!
//! Waits return for any reason (woken, value differs, signal, time out), so the caller must check
//! its condition again. See futex(2) and futex_waitv(2) (Linux 5.16).

use core::sync::atomic::AtomicU32;
use core::time::Duration;
use once_cell::race::OnceBool;
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec};

/// The largest number of words for [`WaitSet::wait_any`] (`FUTEX_WAITV_MAX`).
pub const WAIT_ANY_MAX: usize = 128;

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Woken, interrupted, or the word no longer had the expected value.
    Look,
    /// The time was up.
    TimedOut,
}

/// Sleeps while `*word == expected`, for `timeout` at most.
#[inline]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
    let timeout = timeout.map(timespec);
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Err(Errno::TIMEDOUT) => Woken::TimedOut,
        _ => Woken::Look,
    }
}

/// Wakes one sleeper on `word`.
#[inline]
pub fn wake(word: &AtomicU32) {
    // A failure can only mean that the address is not a futex, which a reference excludes.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Wakes all threads that sleep on `word`.
#[inline]
pub fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Returns true if the kernel has futex_waitv(2): since Linux 5.16, unless a system call filter
/// forbids it. Without the call [`WaitSet::wait_any`] returns at once. The check is made once per
/// process.
pub fn can_wait_any() -> bool {
    static CAN: OnceBool = OnceBool::new();
    // An empty set of words gives `EINVAL` only on a kernel that has the call.
    CAN.get_or_init(|| {
        let flags = futex::WaitvFlags::empty();
        futex::waitv(&[], flags, None, ClockId::Monotonic) == Err(Errno::INVAL)
    })
}

/// The words of a [`WaitSet::wait_any`]. The caller keeps the set, so that a wait does not
/// allocate.
#[derive(Debug)]
pub struct WaitSet {
    waits: Vec<futex::Wait>,
}

// SAFETY: the raw pointers in a wait set are only handed to the kernel during `wait_any`, by the
// owner of the set; the set itself is plain data.
unsafe impl Send for WaitSet {}

impl WaitSet {
    /// Creates an empty set with room for [`WAIT_ANY_MAX`] words.
    pub fn new() -> Self {
        Self { waits: Vec::with_capacity(WAIT_ANY_MAX) }
    }

    /// Removes all words.
    pub fn clear(&mut self) {
        self.waits.clear();
    }

    /// Adds a word; returns false if the set is full.
    ///
    /// # Safety
    /// `word` must stay mapped until the set is cleared or waited on for the last time.
    pub unsafe fn push(&mut self, word: *const AtomicU32, expected: u32) -> bool {
        if self.waits.len() == WAIT_ANY_MAX {
            return false;
        }
        let mut wait = futex::Wait::new();
        wait.val = u64::from(expected);
        wait.uaddr = futex::WaitPtr::new(word.cast_mut().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
        self.waits.push(wait);
        true
    }

    /// Sleeps while every word of the set has its expected value, until `deadline`
    /// (`CLOCK_MONOTONIC`, since its zero) at the latest.
    pub fn wait_any(&self, deadline: Option<Duration>) -> Woken {
        let deadline = deadline.map(timespec);
        let flags = futex::WaitvFlags::empty();
        match futex::waitv(&self.waits, flags, deadline.as_ref(), ClockId::Monotonic) {
            Err(Errno::TIMEDOUT) => Woken::TimedOut,
            _ => Woken::Look,
        }
    }
}

impl Default for WaitSet {
    fn default() -> Self {
        Self::new()
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;
    use std::sync::Arc;

    #[test]
    fn a_different_value_does_not_sleep() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, Some(Duration::from_secs(20))), Woken::Look);
    }

    #[test]
    fn the_time_limit_ends_a_wait() {
        let word = AtomicU32::new(0);
        assert_eq!(wait(&word, 0, Some(Duration::from_millis(1))), Woken::TimedOut);
    }

    #[test]
    fn any_word_of_a_set_wakes() {
        if !can_wait_any() {
            eprintln!("skipped: no futex_waitv here");
            return;
        }
        let words = Arc::new([AtomicU32::new(1), AtomicU32::new(1)]);
        let waker = {
            let words = Arc::clone(&words);
            std::thread::spawn(move || {
                words[1].store(0, Ordering::SeqCst);
                wake(&words[1]);
            })
        };
        let mut set = WaitSet::new();
        for word in words.iter() {
            // SAFETY: `words` outlives the set.
            assert!(unsafe { set.push(word, 1) });
        }
        let limit = rustix::time::clock_gettime(ClockId::Monotonic);
        let limit = Duration::new(limit.tv_sec as u64 + 20, limit.tv_nsec as u32);
        while words[1].load(Ordering::SeqCst) == 1 {
            assert_eq!(set.wait_any(Some(limit)), Woken::Look);
        }
        waker.join().unwrap();
    }
}
