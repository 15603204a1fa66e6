//! The sites of texts, kept between starts in files of the user's cache folder.
//!
//! The folder is `$XDG_CACHE_HOME/sojourn`, or `$HOME/.cache/sojourn`. A file is used only if it
//! and the folder are this user's own and nobody else can write them. A file is written under
//! another name and then renamed, so that a reader finds all of it or nothing. Whatever fails
//! (there is no home, or it cannot be written) leaves the text to be searched at each start. Not
//! here: the contents of a file and the checks of each site (`sojourn_abi::cache`).

use crate::plain::starts_with;
use crate::raw::{self, is_file};
use core::ffi::CStr;
use core::ffi::c_char;
use core::sync::atomic::{AtomicBool, Ordering};
use sojourn_abi::cache::{BuildId, FILE_MAX, FileState, Key, decode, encode, nanoseconds, sample};
use sojourn_abi::sites::{Found, Text, find, tests_integrity};
use std::ffi::CString;
use std::sync::OnceLock;

/// The number of files that the folder can have.
const SLOTS: u64 = 1024;
/// A file that was changed less than this time ago may be changed again without another time stamp
/// (its clock has ticks), so its sites are not kept yet (ns).
const SETTLED_NS: i64 = 2_000_000_000;
/// The flags of all files and folders that are opened here.
const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// The part of a file that is a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileText {
    /// A descriptor of the file.
    pub(crate) fd: usize,
    /// The checksum of the file's build-id.
    pub(crate) build_id: BuildId,
    /// The text's offset in the file.
    pub(crate) offset: u64,
}

/// The cache of this process.
#[derive(Debug)]
struct Cache {
    /// The folder, with the folder that contains it.
    folder: CString,
    parent: CString,
    /// What the environment names: the home folder, or `parent`.
    named: CString,
    /// The loader's own file.
    loader: FileState,
}

// FORK: set before the guest runs.
static CACHE: OnceLock<Option<Cache>> = OnceLock::new();
/// True once the guest has confined itself: then files that the guest would not open may be
/// forbidden to it on pain of death (seccomp(2)).
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Reads the cache's place from the environment. `loader`: the status of the loader's own file.
pub(crate) fn open(environment: &[*const c_char], loader: Option<&libc::stat>) {
    let variable = |name: &[u8]| {
        let text = environment.iter().find(|one| starts_with(**one, name))?;
        // SAFETY: a string of the environment, which begins with the name.
        let value = unsafe { CStr::from_ptr(text.add(name.len())) }.to_bytes();
        value.starts_with(b"/").then_some(value)
    };
    let cache = || {
        let (named, rest) = match variable(b"XDG_CACHE_HOME=") {
            Some(named) => (named, &b""[..]),
            None => (variable(b"HOME=")?, &b"/.cache"[..]),
        };
        let parent = [named, rest].concat();
        let named = CString::new(named).ok()?;
        let folder = CString::new([&parent, &b"/sojourn"[..]].concat()).ok()?;
        let loader = FileState::of(loader?);
        Some(Cache { folder, parent: CString::new(parent).ok()?, named, loader })
    };
    let _ = CACHE.set(cache());
}

/// Leaves the cache alone from now on.
pub(crate) fn close() {
    IS_CLOSED.store(true, Ordering::Relaxed);
}

/// Returns true if the guest has confined itself.
pub(crate) fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

/// Finds the sites of a text: in the cache, or else by a search, whose result the cache keeps.
pub(crate) fn sites(file: FileText, text: Text<'_>) -> Found {
    let search = || Found { tests_integrity: has_test(file.fd), ..find(text) };
    let cache = CACHE.get().and_then(Option::as_ref);
    let cache = cache.filter(|_| !is_closed());
    let key = cache.and_then(|cache| Some((cache, key(cache, file, text)?)));
    let Some((cache, key)) = key else { return search() };
    if let Some(found) = cache.read(&key).and_then(|file| decode(&file, &key, text)) {
        return found;
    }
    let found = search();
    if is_settled(&key.program)
        && is_settled(&key.loader)
        && let Some(file) = encode(&key, text, &found)
    {
        // If this fails, the next start searches again.
        let _ = cache.write(&key, &file);
    }
    found
}

/// Returns true if a file tests the integrity of its code; its message is not in the text.
fn has_test(fd: usize) -> bool {
    let Ok(bytes) = raw::map_file(fd) else { return false };
    let does = tests_integrity(bytes);
    // SAFETY: no reference to the bytes is left.
    unsafe { raw::unmap(bytes) };
    does
}

fn key(cache: &Cache, file: FileText, text: Text<'_>) -> Option<Key> {
    let program = FileState::of(&raw::status(file.fd).filter(is_file)?);
    let (build_id, offset) = (file.build_id, file.offset);
    let (len, sample) = (text.bytes.len() as u64, sample(text.bytes));
    Some(Key { build_id, program, loader: cache.loader, offset, len, sample })
}

/// Returns true if a later change of the file will show in its state.
fn is_settled(file: &FileState) -> bool {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [libc::CLOCK_REALTIME as usize, (&raw mut now) as usize, 0, 0, 0, 0];
    // SAFETY: `now` has room for the answer.
    unsafe { raw::call(libc::SYS_clock_gettime, arguments) };
    let now = nanoseconds(now.tv_sec, now.tv_nsec);
    now.saturating_sub(file.changed_ns.max(file.modified_ns)) > SETTLED_NS
}

/// Returns true if a file or folder is this user's own, and no one else can write it.
fn is_own(status: &libc::stat) -> bool {
    status.st_uid == user() && status.st_mode & 0o022 == 0
}

/// Returns the effective user.
fn user() -> u32 {
    // SAFETY: no arguments, no effect.
    unsafe { raw::call(libc::SYS_geteuid, [0; 6]) as u32 }
}

/// An open file, which Drop closes.
struct Opened(usize);

impl Opened {
    fn at(folder: i32, path: &CStr, flags: i32) -> Option<Self> {
        let path = path.as_ptr() as usize;
        let arguments = [folder as usize, path, (flags | FLAGS) as usize, 0o600, 0, 0];
        // SAFETY: a path that ends with a zero.
        usize::try_from(unsafe { raw::call(libc::SYS_openat, arguments) }).ok().map(Self)
    }

    /// Opens a file of this folder.
    fn open(&self, name: &CStr, flags: i32) -> Option<Self> {
        Self::at(self.0 as i32, name, flags)
    }

    /// Reads this many bytes; `None` if there are fewer.
    fn read(&self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            let at = bytes[done..].as_mut_ptr() as usize;
            // SAFETY: there is room for `len - done` bytes at `at`.
            let got = unsafe { raw::call(libc::SYS_read, [self.0, at, len - done, 0, 0, 0]) };
            done += usize::try_from(got).ok().filter(|got| *got > 0)?;
        }
        Some(bytes)
    }

    /// Writes all of `bytes`.
    fn write(&self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let arguments = [self.0, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
            // SAFETY: the bytes are readable.
            let done = unsafe { raw::call(libc::SYS_write, arguments) };
            bytes = &bytes[usize::try_from(done).ok().filter(|done| *done > 0)?..];
        }
        Some(())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: this value's own descriptor.
        unsafe { raw::call(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

impl Cache {
    fn folder(&self) -> Option<Opened> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let folder = Opened::at(libc::AT_FDCWD, &self.folder, flags)?;
        raw::status(folder.0).filter(is_own).map(|_| folder)
    }

    /// Makes the folder, unless the environment names another user's folder or link.
    fn make_folder(&self) -> Option<Opened> {
        let user = user();
        let named = Opened::at(libc::AT_FDCWD, &self.named, libc::O_PATH);
        if let Some(named) = named {
            raw::status(named.0).filter(|status| [user, 0].contains(&status.st_uid))?;
        }
        make(&self.parent);
        make(&self.folder);
        self.folder()
    }

    fn read(&self, key: &Key) -> Option<Vec<u8>> {
        let file = self.folder()?.open(&name(key), libc::O_RDONLY)?;
        let status = raw::status(file.0).filter(is_own).filter(is_file)?;
        let is_private = status.st_mode & 0o7777 == 0o600;
        let len = usize::try_from(status.st_size).ok()?;
        if is_private && len <= FILE_MAX { file.read(len) } else { None }
    }

    /// Writes a cache file under a name of this thread's own, and renames it.
    fn write(&self, key: &Key, bytes: &[u8]) -> Option<()> {
        if raw::limit(libc::RLIMIT_FSIZE) < bytes.len() as u64 {
            // The kernel would send `SIGXFSZ`, which ends the program.
            return None;
        }
        let folder = self.folder().or_else(|| self.make_folder())?;
        let new = CString::new(format!(".new-{}", raw::thread_number())).ok()?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let file = folder.open(&new, flags).or_else(|| {
            // A thread of the same number has left it behind.
            remove(&folder, &new);
            folder.open(&new, flags)
        })?;
        // The process's umask may have taken permissions away.
        // SAFETY: this process's own file.
        unsafe { raw::call(libc::SYS_fchmod, [file.0, 0o600, 0, 0, 0, 0]) };
        let written = file.write(bytes);
        let (from, to) = (new.as_ptr() as usize, name(key));
        let arguments = [folder.0, from, folder.0, to.as_ptr() as usize, 0, 0];
        // SAFETY: names that end with a zero.
        let renamed = written.map(|()| unsafe { raw::call(libc::SYS_renameat, arguments) });
        if renamed != Some(0) {
            remove(&folder, &new);
        }
        (renamed == Some(0)).then_some(())
    }
}

/// Returns the name of a key's file.
fn name(key: &Key) -> CString {
    CString::new(format!("sites-{:03x}", key.slot(SLOTS))).unwrap_or_default()
}

fn make(folder: &CStr) {
    // SAFETY: a path that ends with a zero.
    unsafe { raw::call(libc::SYS_mkdir, [folder.as_ptr() as usize, 0o700, 0, 0, 0, 0]) };
}

fn remove(folder: &Opened, name: &CStr) {
    // SAFETY: a name that ends with a zero.
    unsafe { raw::call(libc::SYS_unlinkat, [folder.0, name.as_ptr() as usize, 0, 0, 0, 0]) };
}
