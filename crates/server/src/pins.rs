//! Pipes by name: which two descriptors are ends of one pipe, for as long as anybody asks.
//!
//! # Theory of operation
//! Inode numbers of pipes come again after 2³² others, and the kernel does not look whether one is
//! still in use: neither an offer that waits nor an open descriptor keeps a number from being
//! another pipe's as well. What is never two objects is a watch of inotify(7): asked for a watch of
//! an object that has one, the kernel answers that one's number, and while it is there the object
//! is, even if all its ends are closed. So a pipe is called by its watch in the server's one set of
//! watches. A watch is no end: readers and writers are told of each other as if it were not there.
//! It is not told of anything either.
//!
//! A watch takes the right to read the pipe: of pipes that another user made only root's server can
//! have one. Not here: who asks (`service::ends`).

use crate::key::Key;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Shared {
    set: OwnedFd,
    /// Pins of each watch.
    counts: Mutex<HashMap<i32, usize>>,
}

/// The pipes that are known.
#[derive(Clone, Debug)]
pub struct Pins(Arc<Shared>);

/// While there is one, no other pipe has this one's key.
#[derive(Debug)]
pub struct Pin {
    watch: i32,
    shared: Arc<Shared>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the kernel tells of watches that have ended is of no use.
    fn forget_events(&self) {
        let mut bytes = [0; 1024];
        while matches!(rustix::io::read(&self.set, &mut bytes), Ok(1..)) {}
    }
}

impl Pins {
    /// # Errors
    /// No inotify, or too many of one user's.
    pub fn new() -> Result<Self, Errno> {
        let set = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { set, counts: Mutex::default() })))
    }

    /// Pins the pipe that `name`, opened with `O_PATH`, names.
    ///
    /// # Errors
    /// `EACCES`: somebody else's; others: no room for another one.
    pub fn pin(&self, name: BorrowedFd<'_>) -> Result<Pin, Errno> {
        let path = format!("/proc/self/fd/{}", name.as_raw_fd());
        // Held meanwhile, so that nobody ends the watch that is found.
        let mut counts = self.0.lock();
        let watch = inotify::add_watch(&self.0.set, path, WatchFlags::DELETE_SELF)?;
        *counts.entry(watch).or_default() += 1;
        Ok(Pin { watch, shared: Arc::clone(&self.0) })
    }
}

impl Pin {
    /// The key of one end of its pipe.
    #[must_use]
    pub fn key(&self, writes: bool) -> Key {
        Key::Pipe { object: self.watch.unsigned_abs().into(), writes }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut counts = self.shared.lock();
        let Some(count) = counts.get_mut(&self.watch) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.watch);
            let _ = inotify::remove_watch(&self.shared.set, self.watch);
            self.shared.forget_events();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::io::{Read, Write};

    fn name(end: &impl AsRawFd) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn watches(pins: &Pins) -> usize {
        let path = format!("/proc/self/fdinfo/{}", pins.0.set.as_raw_fd());
        std::fs::read_to_string(path).unwrap().matches("inotify wd:").count()
    }

    #[test]
    fn both_ends_are_of_one_pipe_and_of_no_other() {
        let pins = Pins::new().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (other, _writer) = std::io::pipe().unwrap();
        let pin = |end: BorrowedFd<'_>| pins.pin(end).unwrap();
        let [first, second, third] =
            [name(&reader), name(&writer), name(&other)].map(|name| pin(name.as_fd()));
        assert_eq!(first.key(false).mirror(), second.key(true));
        assert_ne!(first.key(false), third.key(false));
        assert_eq!(watches(&pins), 2);
        drop((first, third));
        assert_eq!(watches(&pins), 1);
        drop(second);
        assert_eq!(watches(&pins), 0);
    }

    #[test]
    fn a_pipe_that_is_closed_is_still_no_other() {
        let pins = Pins::new().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let stale = pins.pin(name(&reader).as_fd()).unwrap();
        drop((reader, writer));
        assert_eq!(watches(&pins), 1, "its object is there");
        let (reader, _writer) = std::io::pipe().unwrap();
        let fresh = pins.pin(name(&reader).as_fd()).unwrap();
        assert_ne!(stale.key(false), fresh.key(false));
    }

    #[test]
    fn a_pin_hides_no_end_of_its_pipe() {
        let pins = Pins::new().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let _pin = pins.pin(name(&reader).as_fd()).unwrap();
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the end of the file");
        let (reader, mut writer) = std::io::pipe().unwrap();
        let _pin = pins.pin(name(&writer).as_fd()).unwrap();
        drop(reader);
        let error = writer.write(&[0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
}
