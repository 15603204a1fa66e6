//! The progress of a program, in a file, so that it can be read when the program is dead.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The other side's end was seen: as the end of file, as a reset, as a broken pipe.
pub(crate) mod end {
    pub(crate) const OF_FILE: u64 = 1;
    pub(crate) const RESET: u64 = 2;
    pub(crate) const BROKEN: u64 = 4;
}

/// The numbers, in bytes but for the last two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    /// Bytes that calls have begun to send.
    pub(crate) begun: u64,
    /// Bytes that calls said they have sent.
    pub(crate) sent: u64,
    /// Bytes received.
    pub(crate) got: u64,
    /// Constants of [`end`], all that were seen.
    pub(crate) end: u64,
    /// 1: nothing of streams was left in this process.
    pub(crate) is_tidy: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Record {
    file: File,
    pub(crate) now: Numbers,
}

impl Record {
    pub(crate) fn create(path: &Path) -> Self {
        let file = File::create(path).unwrap();
        let record = Self { file, now: Numbers::default() };
        record.write();
        record
    }

    /// Writes the record by a system call, so that it survives the process.
    pub(crate) fn write(&self) {
        let Numbers { begun, sent, got, end, is_tidy } = self.now;
        let bytes: Vec<u8> =
            [begun, sent, got, end, is_tidy].into_iter().flat_map(u64::to_ne_bytes).collect();
        self.file.write_all_at(&bytes, 0).unwrap();
    }

    pub(crate) fn read(path: &Path) -> Numbers {
        let bytes = std::fs::read(path).unwrap();
        let mut words = bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        let mut word = || words.next().unwrap();
        let (begun, sent, got) = (word(), word(), word());
        Numbers { begun, sent, got, end: word(), is_tidy: word() }
    }
}
