//! The common knowledge of both sides of a connection: the requests in a frame's first byte, and
//! the processor's time; and the client's calls.

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use super::frames::Frames;
use super::{End, Options};
use std::io::Result;
use std::time::{Duration, Instant};

/// Request: send the whole frame back.
pub const SEND_BACK: u8 = 1;
/// Request: send nothing back.
pub(super) const SWALLOW: u8 = 2;
/// Request: send one byte back.
pub(super) const ACKNOWLEDGE: u8 = 3;
/// Request: send the server's processor time so far, 8 bytes.
pub const PROCESSOR_TIME: u8 = 4;
/// Request: send as many frames as the next four bytes say.
pub(super) const SEND_MANY: u8 = 5;

/// Returns the processor time of another process so far: the sum over its threads that still exist,
/// which are all of them in a server. Returns 0 if the process is gone. See `/proc/<pid>/schedstat`
/// in the kernel's documentation of scheduler statistics.
pub fn cpu_ns_of(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.filter_map(of_task).sum()
}

/// Returns the processor time of this process so far, with all its threads.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The client's side of a connection.
pub(super) struct Client {
    pub(super) end: End,
    pub(super) frames: Frames,
    pub(super) answers: Frames,
    size: usize,
    watched: Vec<u32>,
}

impl Client {
    pub(super) fn new(mut end: End, options: &Options) -> Result<Self> {
        let size = options.size;
        if !end.is_datagrams {
            end.output.write_all(&(size as u32 | (options.offset as u32) << 24).to_le_bytes())?;
        }
        let watched = options.watched.clone();
        let frames = Frames::new(size, options.offset, options.is_cold);
        let answers = Frames::new(size.max(8), options.offset, options.is_cold);
        Ok(Self { end, frames, answers, size, watched })
    }

    pub(super) fn send(&mut self, what: u8) -> Result<()> {
        let frame = self.frames.next();
        frame[0] = what;
        self.end.output.write_all(frame)
    }

    pub(super) fn receive(&mut self, len: usize) -> Result<()> {
        self.end.input.read_exact(&mut self.answers.next()[..len])
    }

    pub(super) fn call(&mut self) -> Result<()> {
        self.send(SEND_BACK)?;
        self.receive(self.size)
    }

    /// Calls for `time`; returns the number of calls.
    pub(super) fn call_for(&mut self, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        let mut count = 0;
        while Instant::now() < end {
            self.call()?;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the processor time of both sides, and of the watched processes, so far.
    pub(super) fn cpu_ns(&mut self) -> Result<u64> {
        self.send(PROCESSOR_TIME)?;
        self.receive(8)?;
        let theirs = self.answers.here()[..8].try_into().map_or(0, u64::from_le_bytes);
        Ok(theirs + cpu_ns() + self.watched.iter().map(|pid| cpu_ns_of(*pid)).sum::<u64>())
    }
}
