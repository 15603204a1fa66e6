//! The record of the last starts of programs, by which children that stay small are started
//! plainly (setting `load`, value `auto`).
//!
//! The record is one file of the user's cache folder, with an entry of a fixed length for each
//! program. Whoever is about to start a child counts the start there. The first hot session of a
//! loaded program sets the count to 0. So a program whose last starts made no hot session has a
//! high count, and is started without the loader. Processes that write the same entry at the same
//! time lose counts and nothing else: an entry that is not whole counts as none.
//!
//! Nothing here allocates, because a child of vfork(2) shares its parent's memory; and all of it is
//! a part of the crate that uses it (generic, or `inline`), because the preload library's calls of
//! other crates need relocation. System calls are the caller's ([`Files`]).
//! Not here: which programs the loader can load at all (`class`).

pub mod system;

use crate::cache::{FileState, checksum};
use crate::class::FIRST_GLANCE;
use core::ffi::CStr;

/// The value of the setting `load` in the environment of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A child is loaded unless its record says that it stays small.
    Auto,
    /// A child is loaded.
    On,
    /// A child is started plainly.
    Off,
}

impl Load {
    /// Reads the value of the variable; `None` means that it is not set. The configuration of a
    /// process (`sojourn_session::config`) has another reader of the same words, because this one
    /// runs in children of vfork(2), where nothing may be allocated, and before the relocation.
    /// `tests/system/tests/load_words.rs` compares the two.
    #[must_use]
    #[inline(always)]
    pub fn read(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::Auto };
        let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
        if is(b"auto") {
            Self::Auto
        } else if is(b"on") || is(b"true") || is(b"yes") || is(b"1") {
            Self::On
        } else {
            Self::Off
        }
    }
}

/// The number of starts without a hot session after which a program is taken for a small one.
const SMALL_AFTER: u64 = 3;
/// Of a small program each start whose number is divisible by this, a power of two, is made by the
/// loader again.
const TRIAL: u64 = 64;

/// The first bytes of an entry; the last one is the format's version.
const MAGIC: [u8; 8] = *b"SJSTART\x01";
/// The number of words of a key.
const KEY: usize = 7;
/// The bytes of an entry: the magic bytes, the key, the count, and the checksum of all these.
pub const ENTRY: usize = 8 + 8 * KEY + 8 + 8;
/// The bytes from one entry to the next. No entry crosses the border of a page.
const STRIDE: u64 = 128;
/// The number of entries.
const ENTRIES: u64 = 512;
/// The most bytes of the file.
const FILE: u64 = STRIDE * ENTRIES;
/// The file's name.
const NAME: &CStr = c"starts";
/// Bytes of the folder's path, with the final zero. Where it is longer there is no record.
pub const PATH: usize = 512;

/// A program, as an entry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u64; KEY]);

impl Key {
    /// Returns the key of the program at `path`, whose file begins with `first`. The first
    /// [`FIRST_GLANCE`] bytes count, or all of a shorter file: ELF headers and mostly the build-id.
    /// The name counts, too, because one file can be many programs (busybox).
    #[must_use]
    #[inline]
    pub fn new(path: &[u8], first: &[u8], program: &FileState) -> Self {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let [device, inode, size, modified, changed] = program.words();
        let first = first.get(..FIRST_GLANCE).unwrap_or(first);
        Self([checksum(name), checksum(first), device, inode, size, modified, changed])
    }

    /// Returns the offset of the program's entry. Later states of the same program have the same
    /// one. Of two programs with the same entry each replaces the other's.
    #[inline]
    fn offset(&self) -> u64 {
        let [name, _, device, inode, ..] = self.0;
        let mut bytes = [0; 24];
        for (to, word) in bytes.chunks_exact_mut(8).zip([name, device, inode]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        checksum(&bytes) % ENTRIES * STRIDE
    }

    /// Returns the entry that says that the program was started `count` times without a hot
    /// session.
    #[inline]
    fn entry(&self, count: u64) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&MAGIC);
        let words = self.0.into_iter().chain([count]);
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&bytes[..ENTRY - 8]);
        bytes[ENTRY - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns the count of an entry; 0 if it is not whole, or another program's.
    #[inline]
    fn count(&self, entry: &[u8; ENTRY]) -> u64 {
        let word = |at: usize| {
            entry[at..at + 8].iter().rev().fold(0, |all, one| all << 8 | u64::from(*one))
        };
        let count = word(ENTRY - 16);
        if *entry == self.entry(count) { count } else { 0 }
    }
}

/// What fstat(2) tells of a file or folder.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// The owner.
    pub user: u32,
    /// The type and the permissions.
    pub mode: u32,
    /// The size in bytes.
    pub size: u64,
}

impl Status {
    /// Returns true if nobody but `user` can write it.
    #[inline]
    fn is_private_to(&self, user: u32) -> bool {
        self.user == user && self.mode & 0o022 == 0
    }
}

/// A descriptor.
pub type Fd = usize;

/// System calls, which the caller makes. None of them allocates.
pub trait Files {
    /// Opens a folder to open files in it. The path ends with a zero. Does not follow a symbolic
    /// link.
    fn folder(&self, path: &[u8]) -> Option<Fd>;
    /// Opens a file of the folder to read and write it, and makes it with mode 0600 if it is
    /// missing. Does not follow a symbolic link, and waits for nothing.
    fn file(&self, folder: Fd, name: &CStr) -> Option<Fd>;
    /// Asks for the status of a file or folder.
    fn status(&self, fd: Fd) -> Option<Status>;
    /// Reads at an offset. Bytes that cannot be read stay as they are.
    fn read(&self, fd: Fd, to: &mut [u8], offset: u64);
    /// Writes at an offset. If that fails nothing is counted.
    fn write(&self, fd: Fd, bytes: &[u8], offset: u64);
    /// Closes a descriptor.
    fn close(&self, fd: Fd);
    /// Returns the effective user.
    fn user(&self) -> u32;
    /// Returns the limit on the size of files, beyond which the kernel sends `SIGXFSZ`.
    fn size_limit(&self) -> u64;
}

/// Returns the path of the cache folder by the environment, whose variables `value_of` finds by
/// their name with its `=`. The path ends with a zero.
pub fn folder<'v>(
    value_of: impl Fn(&[u8]) -> Option<&'v [u8]>,
    room: &mut [u8; PATH],
) -> Option<&[u8]> {
    let absolute = |name: &[u8]| value_of(name).filter(|value| value.starts_with(b"/"));
    let (parent, rest) = match absolute(b"XDG_CACHE_HOME=") {
        Some(parent) => (parent, &b"/sojourn\0"[..]),
        None => (absolute(b"HOME=")?, &b"/.cache/sojourn\0"[..]),
    };
    let len = parent.len() + rest.len();
    room.get_mut(..parent.len())?.copy_from_slice(parent);
    room.get_mut(parent.len()..len)?.copy_from_slice(rest);
    room.get(..len)
}

/// Counts a start of a program. Returns true if it is to be started plainly.
pub fn is_small(files: &impl Files, folder: &[u8], key: &Key) -> bool {
    let count = |file| {
        let mut entry = [0; ENTRY];
        files.read(file, &mut entry, key.offset());
        let count = key.count(&entry).saturating_add(1);
        write(files, file, key, count);
        count > SMALL_AFTER && count & (TRIAL - 1) != 0
    };
    within(files, folder, count).unwrap_or(false)
}

/// Notes that a program has a hot session, or will not be able to note it.
pub fn is_hot(files: &impl Files, folder: &[u8], key: &Key) {
    within(files, folder, |file| write(files, file, key, 0));
}

fn write(files: &impl Files, file: Fd, key: &Key, count: u64) {
    if files.size_limit() >= FILE {
        files.write(file, &key.entry(count), key.offset());
    }
}

/// Opens the record for `act`, if it and its folder are this user's own and nobody else can write
/// them.
fn within<R>(files: &impl Files, folder: &[u8], act: impl FnOnce(Fd) -> R) -> Option<R> {
    /// An ordinary file that only its owner can read and write.
    const PRIVATE: u32 = 0o100_600;
    let user = files.user();
    let folder = files.folder(folder)?;
    let is_own = files.status(folder).is_some_and(|status| status.is_private_to(user));
    let file = if is_own { files.file(folder, NAME) } else { None };
    files.close(folder);
    let file = file?;
    let status = files.status(file).filter(|status| status.is_private_to(user));
    let is_record = status.is_some_and(|status| status.mode == PRIVATE && status.size <= FILE);
    let result = is_record.then(|| act(file));
    files.close(file);
    result
}

#[cfg(test)]
#[path = "starts/tests.rs"]
mod tests;
