//! The progress of both ends of a transfer, in a small file that both map and that a watching
//! process reads. After a program was killed, this file alone shows how much it had sent.
//!
//! The file has a record of 64 bytes for each end, in the machine's byte order. `lab-peer
//! --progress FILE` writes it, `cargo xtask torture` reads it. Not here: the transfer itself.

#![allow(unsafe_code, reason = "a file that is mapped")]

use anyhow::{Context, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a record; below, words of a file.
const WORDS: usize = 8;
const FILE_WORDS: usize = 2 * WORDS;

/// The end of a stream as its reader saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputEnd {
    /// The stream has not ended.
    #[default]
    Open,
    /// The stream ended in an orderly way: a read returned 0.
    Eof,
    /// A read failed.
    Failed,
}

/// The end of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The program has not ended, or was killed.
    #[default]
    None,
    /// The program found no fault.
    Well,
    /// The program reported a fault.
    Failed,
}

/// The record of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressRecord {
    /// Process number of the end; 0 before it has begun.
    pub pid: u32,
    /// Bytes that the end's calls have sent: the peer may still have to receive them.
    pub sent: u64,
    /// Bytes that the end has received and checked.
    pub received: u64,
    /// The end of the stream to this end.
    pub input: InputEnd,
    /// The end of the program itself.
    pub outcome: Outcome,
}

/// Makes a file of two empty records.
///
/// # Errors
/// If the file cannot be written.
pub fn make(path: &Path) -> Result<()> {
    std::fs::write(path, [0; 8 * FILE_WORDS]).with_context(|| path.display().to_string())
}

/// Reads the records of both ends: first that of the end that listens or started the other, then
/// the other's.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &Path) -> Result<[ProgressRecord; 2]> {
    let mut bytes = [0; 8 * FILE_WORDS];
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.read_exact_at(&mut bytes, 0)?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * at..8 * (at + 1)]);
        u64::from_ne_bytes(word)
    };
    Ok([0, WORDS].map(|at| ProgressRecord {
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

/// A writer of one end's record, mapped until the program ends; or of no record, if there is no
/// file.
#[derive(Clone, Copy, Debug)]
pub struct ProgressWriter(&'static [AtomicU64]);

impl ProgressWriter {
    /// Makes a writer without a file.
    #[must_use]
    pub fn nobody() -> Self {
        static NOWHERE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
        Self(&NOWHERE)
    }

    /// Maps one end's record of a file that [`make`] has made.
    ///
    /// # Errors
    /// If the file cannot be mapped.
    pub fn open(path: &Path, is_first: bool) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = 8 * FILE_WORDS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping of an open file; it replaces no other mapping.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping has that length, is aligned to pages, and is never unmapped.
        let words = unsafe { core::slice::from_raw_parts(at.cast::<AtomicU64>(), FILE_WORDS) };
        let teller = Self(if is_first { &words[..WORDS] } else { &words[WORDS..] });
        teller.0[0].store(u64::from(std::process::id()), Ordering::Relaxed);
        Ok(teller)
    }

    /// Adds `count` bytes that were sent.
    pub fn sent(self, count: u64) {
        self.0[1].fetch_add(count, Ordering::Relaxed);
    }

    /// Adds `count` bytes that were received and are right.
    pub fn received(self, count: u64) {
        self.0[2].fetch_add(count, Ordering::Relaxed);
    }

    /// Records the end of the stream to this end.
    pub fn input_ended(self, is_eof: bool) {
        self.0[3].store(if is_eof { 1 } else { 2 }, Ordering::Relaxed);
    }

    /// Records the end of the program.
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
        let second = ProgressWriter::open(&path, false).unwrap();
        second.sent(7);
        second.sent(5);
        second.received(3);
        second.input_ended(true);
        second.ended(false);
        let [first, found] = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(first, ProgressRecord::default());
        let (pid, input, outcome) = (std::process::id(), InputEnd::Eof, Outcome::Failed);
        assert_eq!(found, ProgressRecord { pid, sent: 12, received: 3, input, outcome });
    }
}
