//! The sites of a text as bytes of a cache file, so that a program's later starts need no decoder.
//!
//! A cache file is used only if all of it is as it was written (a checksum), if it was written for
//! this very text of this very file by this very loader ([`Key`]), and if each site's bytes are
//! still in the text. Everything else is a miss, and the text is searched again. Not here: the
//! file's place, its owner and its mode (`crates/loader`, `cache`).

use crate::sites::{Found, Rewrite, Site, Text};
use core::ops::Range;

/// The first bytes of a cache file; the last one is the format's version.
const MAGIC: &[u8; 8] = b"SJSITES\x02";
/// The number of words of a key.
const KEY: usize = 14;
/// The bytes before the sites: the magic bytes, the key, the address that sets GS, and a byte that
/// is 1 if the program tests its integrity.
const HEAD: usize = 8 + 8 * KEY + 8 + 1;
/// Bytes of a site before the bytes of the text.
const SITE: usize = 10;
/// Takes the place of a number or an offset that is not there.
const NONE_32: u32 = u32::MAX;
const NONE_64: u64 = u64::MAX;
/// The length of a jump, which is what a patch needs at least.
const JUMP: usize = 5;
/// The most bytes of a cache file. A text with more sites is searched at each start.
pub const FILE_MAX: usize = 1 << 20;

/// Returns a time of the kernel's in nanoseconds.
#[must_use]
#[inline(always)]
pub const fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// A state of a file, as far as fstat(2) can tell: whoever changes the file changes this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change of the contents (ns since 1970).
    pub modified_ns: i64,
    /// The time of the last change of contents or inode (ns since 1970). Programs cannot set it.
    pub changed_ns: i64,
}

impl FileState {
    /// Returns the state that fstat(2) tells. Consists of nothing but its own instructions.
    #[must_use]
    #[inline(always)]
    pub const fn of(status: &libc::stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            size: status.st_size.cast_unsigned(),
            modified_ns: nanoseconds(status.st_mtime, status.st_mtime_nsec),
            changed_ns: nanoseconds(status.st_ctime, status.st_ctime_nsec),
        }
    }

    #[inline]
    pub(crate) fn words(&self) -> [u64; 5] {
        let times = [self.modified_ns, self.changed_ns].map(i64::cast_unsigned);
        [self.device, self.inode, self.size, times[0], times[1]]
    }
}

/// The checksum of a program's build-id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildId(pub u64);

/// The text that sites belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// The program's; that of no bytes if it has none.
    pub build_id: BuildId,
    /// The program's file.
    pub program: FileState,
    /// The loader's file: another loader may search in another way.
    pub loader: FileState,
    /// The offset of the text in the program's file.
    pub offset: u64,
    /// The length of the text in bytes.
    pub len: u64,
    /// The checksum of some of its bytes ([`sample`]).
    pub sample: u64,
}

impl Key {
    fn words(&self) -> [u64; KEY] {
        let mut words = [0; KEY];
        words[..4].copy_from_slice(&[self.build_id.0, self.offset, self.len, self.sample]);
        words[4..9].copy_from_slice(&self.program.words());
        words[9..].copy_from_slice(&self.loader.words());
        words
    }

    /// Returns a number below `slots` for the cache file's name. Later states of the same program,
    /// and later loaders, get the same number. Two programs may share a number: then each replaces
    /// the other's file.
    #[must_use]
    pub fn slot(&self, slots: u64) -> u64 {
        let words = [self.build_id.0, self.program.device, self.program.inode, self.offset];
        checksum(&bytes_of(&words)) % slots
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns a checksum that damage changes. It is no protection against intent.
#[must_use]
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sum = bytes.len() as u64 ^ FACTOR;
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        sum = (sum.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
        sum ^= sum >> 32;
    }
    sum
}

/// Returns the checksum of parts of a text, all over it. The file's state is read by its
/// descriptor, whose number another thread may meanwhile have given to another file than the
/// text's: then the key must not be that file's.
#[must_use]
pub fn sample(text: &[u8]) -> u64 {
    const PARTS: usize = 8;
    const PART: usize = 64;
    let parts = text.chunks(text.len().div_ceil(PARTS).max(1));
    let sums = parts.map(|part| checksum(&part[..part.len().min(PART)]));
    sums.fold(0, |all, one| all.rotate_left(7) ^ one)
}

/// Returns the contents of a cache file; `None` if the sites do not fit into one.
#[must_use]
pub fn encode(key: &Key, text: Text<'_>, found: &Found) -> Option<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(bytes_of(&key.words()));
    let sets_gs = found.sets_gs.map_or(NONE_64, |at| at.wrapping_sub(text.address));
    bytes.extend(sets_gs.to_le_bytes());
    bytes.push(found.tests_integrity.into());
    for site in &found.sites {
        let at = u32::try_from(site.at.wrapping_sub(text.address)).ok()?;
        let (kind, before, after) = match site.rewrite {
            Rewrite::Before(before) => (0, before, 0),
            Rewrite::Around(before, after) => (1, before, after),
            Rewrite::Unchanged => (2, 0, 0),
        };
        bytes.extend(at.to_le_bytes());
        bytes.extend(site.number.unwrap_or(NONE_32).to_le_bytes());
        // The kind has two bits; an instruction has at most 15 bytes, and at most a jump's length
        // of them is moved on either side, so that `after` needs fewer than six.
        bytes.extend([before, kind << 6 | after]);
        bytes.extend(moved(text, site)?);
    }
    bytes.extend(checksum(&bytes).to_le_bytes());
    (bytes.len() <= FILE_MAX).then_some(bytes)
}

/// Returns the bytes of the text that a site's patch overwrites, and those of its `syscall`.
fn moved<'t>(text: Text<'t>, site: &Site) -> Option<&'t [u8]> {
    let Range { start, end } = site.moved();
    let at = |address: u64| usize::try_from(address.checked_sub(text.address)?).ok();
    text.bytes.get(at(start)?..at(end)?)
}

/// Returns the sites of `text` if `file` was written for it by [`encode`] with the same key.
#[must_use]
pub fn decode(file: &[u8], key: &Key, text: Text<'_>) -> Option<Found> {
    let (bytes, sum) = file.split_last_chunk::<8>()?;
    let words = bytes.get(8..8 + 8 * KEY)?;
    let is_right = bytes.starts_with(MAGIC)
        && words == bytes_of(&key.words())
        && key.len == text.bytes.len() as u64
        && checksum(bytes) == u64::from_le_bytes(*sum);
    if !is_right {
        return None;
    }
    let sets_gs = u64::from_le_bytes(*bytes.get(8 + 8 * KEY..)?.first_chunk()?);
    let tests_integrity = *bytes.get(HEAD - 1)? != 0;
    let mut found = Found { sites: Vec::new(), sets_gs: None, tests_integrity };
    found.sets_gs = (sets_gs != NONE_64).then(|| text.address.wrapping_add(sets_gs));
    let mut rest = &bytes[HEAD..];
    found.sites.reserve(rest.len() / (SITE + JUMP));
    let mut free = text.address;
    while !rest.is_empty() {
        let site = take(&mut rest, text)?;
        // Two patches must not overlap.
        let Range { start, end } = site.moved();
        if start < free {
            return None;
        }
        free = end;
        found.sites.push(site);
    }
    Some(found)
}

/// Takes the first site from `bytes`, and checks it against the text.
fn take(bytes: &mut &[u8], text: Text<'_>) -> Option<Site> {
    let (head, rest) = bytes.split_first_chunk::<SITE>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (at, number) = (word(0), word(4));
    let (before, after) = (head[8], head[9] & 0x3f);
    let rewrite = match head[9] >> 6 {
        0 if after == 0 => Rewrite::Before(before),
        1 => Rewrite::Around(before, after),
        2 if before == 0 && after == 0 => Rewrite::Unchanged,
        _ => return None,
    };
    let number = (number != NONE_32).then_some(number);
    let at = text.address.checked_add(at.into())?;
    at.checked_sub(before.into())?;
    let site = Site { at, number, rewrite };
    let now = moved(text, &site)?;
    let then;
    (then, *bytes) = rest.split_at_checked(now.len())?;
    let call = now.get(before.into()..)?;
    let has_room = match rewrite {
        Rewrite::Before(before) => usize::from(before) >= JUMP,
        Rewrite::Around(..) => now.len() >= JUMP,
        Rewrite::Unchanged => true,
    };
    let is_call = rewrite == Rewrite::Unchanged || call.starts_with(&[0x0f, 0x05]);
    (now == then && has_room && is_call).then_some(site)
}

#[cfg(test)]
#[path = "cache/tests.rs"]
mod tests;
