//! How far the two ends of a transfer have come: a small file that both map, and that whoever
//! watches them reads. What a program had sent before it was killed is known by that alone.
//!
//! A record of 64 bytes for each end, in the machine's byte order. Written by `lab-peer
//! --progress FILE`, read by `cargo xtask torture`. Not here: what is transferred.

#![allow(unsafe_code, reason = "a file that is mapped")]

use anyhow::{Context, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a record, and of a file.
const WORDS: usize = 8;
const FILE_WORDS: usize = 2 * WORDS;

/// How a stream was seen to end by whoever reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputEnd {
    /// It was not.
    #[default]
    Open,
    /// By its end.
    Eof,
    /// By an error.
    Failed,
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It has not, or was killed.
    #[default]
    None,
    /// It has found no fault.
    Well,
    /// It has said what was wrong.
    Failed,
}

/// What one end has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its process number; 0 before it has begun.
    pub pid: u32,
    /// Bytes that its calls have sent: at least these are under way.
    pub sent: u64,
    /// Bytes that it has received and checked.
    pub received: u64,
    /// How the stream to it ended.
    pub input: InputEnd,
    /// How it ended itself.
    pub outcome: Outcome,
}

/// Makes a file of two empty records.
///
/// # Errors
/// If it cannot be written.
pub fn make(path: &Path) -> Result<()> {
    std::fs::write(path, [0; 8 * FILE_WORDS]).with_context(|| path.display().to_string())
}

/// What both ends have told so far: who listens or started the other, and the other.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &Path) -> Result<[Told; 2]> {
    let mut bytes = [0; 8 * FILE_WORDS];
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.read_exact_at(&mut bytes, 0)?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * at..8 * (at + 1)]);
        u64::from_ne_bytes(word)
    };
    Ok([0, WORDS].map(|at| Told {
        pid: u32::try_from(word(at)).unwrap_or_default(),
        sent: word(at + 1),
        received: word(at + 2),
        input: match word(at + 3) {
            0 => InputEnd::Open,
            1 => InputEnd::Eof,
            _ => InputEnd::Failed,
        },
        outcome: match word(at + 4) {
            0 => Outcome::None,
            1 => Outcome::Well,
            _ => Outcome::Failed,
        },
    }))
}

/// The record of one end, mapped until the program ends; or none, if nobody asked.
#[derive(Clone, Copy, Debug)]
pub struct Teller(&'static [AtomicU64]);

impl Teller {
    /// Tells nobody.
    #[must_use]
    pub fn nobody() -> Self {
        static NOWHERE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
        Self(&NOWHERE)
    }

    /// Maps that end's record of a file that [`make`] has made.
    ///
    /// # Errors
    /// If it cannot be mapped.
    pub fn open(path: &Path, is_first: bool) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = 8 * FILE_WORDS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping of an open file; nothing else is touched.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping is that long, aligned to pages, and is never undone.
        let words = unsafe { core::slice::from_raw_parts(at.cast::<AtomicU64>(), FILE_WORDS) };
        let teller = Self(if is_first { &words[..WORDS] } else { &words[WORDS..] });
        teller.0[0].store(u64::from(std::process::id()), Ordering::Relaxed);
        Ok(teller)
    }

    /// So many bytes were sent.
    pub fn sent(self, count: u64) {
        self.0[1].fetch_add(count, Ordering::Relaxed);
    }

    /// So many bytes were received, and are right.
    pub fn received(self, count: u64) {
        self.0[2].fetch_add(count, Ordering::Relaxed);
    }

    /// The stream to this end has ended.
    pub fn input_ended(self, is_eof: bool) {
        self.0[3].store(if is_eof { 1 } else { 2 }, Ordering::Relaxed);
    }

    /// The program ends.
    pub fn ended(self, is_well: bool) {
        self.0[4].store(if is_well { 1 } else { 2 }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_told_is_read() {
        let path = std::env::temp_dir().join(format!("sojourn-progress-{}", std::process::id()));
        make(&path).unwrap();
        let second = Teller::open(&path, false).unwrap();
        second.sent(7);
        second.sent(5);
        second.received(3);
        second.input_ended(true);
        second.ended(false);
        let [first, found] = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(first, Told::default());
        let (pid, input, outcome) = (std::process::id(), InputEnd::Eof, Outcome::Failed);
        assert_eq!(found, Told { pid, sent: 12, received: 3, input, outcome });
    }
}
